package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/fermata-io/fermata/bench/internal/asynqs"
	"github.com/fermata-io/fermata/bench/internal/fermata"
	"github.com/fermata-io/fermata/bench/internal/rawredis"
	"github.com/fermata-io/fermata/bench/internal/record"
	"github.com/fermata-io/fermata/bench/internal/stats"
	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// submit measures registration: one-time jobs due in an hour, by BatchCreateJobs with
// 1,000 jobs a call from one, two and four clients (each with a connection of its own, a
// call at a time), and by CreateJob with 64 calls of one client in flight, and one: of
// the Go client, which brings calls that wait for one another together, and of the bare
// stub, each a call of its own. Raw
// Redis adds 1,000 a pipeline. The clients run in the benchmark's own process, which also
// makes the jobs.
var submit = Scenario{
	Name:  "submit",
	Title: "Registration",
	Text: "One-time jobs due in an hour, 200-byte payloads. BatchCreateJobs: 1,000 a call, each client one call at a " +
		"time; names only: without the jobs in the answer. CreateJob: 64 calls of one Go client in flight, which brings " +
		"those together that would wait for one another, or one; stub: without the client, each a call of its own; no ids: " +
		"the client makes them, as asynq's does. Latencies are those of a call. asynq has no call for several tasks.",
	Metrics: []Metric{
		{"rate", "jobs/s", 0}, {"p50", "call p50 ms", 2}, {"p99", "call p99 ms", 2},
		{"cpu_redis", "Redis us/job", 1}, {"cpu_scheduler", "node us/job", 1},
		{"cpu_client", "client us/job", 1}, {"cpu_total", "total us/job", 1},
	},
	Cases: func(p Params) []Case {
		n := p.jobs(200_000, 50_000)
		var cases []Case
		for _, clients := range []int{1, 2, 4} {
			if p.Quick && clients == 2 {
				continue
			}
			cases = append(cases, Case{
				Peer: peerFermata, Setting: fmt.Sprintf("BatchCreateJobs, clients: %d", clients),
				Run: func(ctx context.Context, r *runner) (Sample, error) {
					return submitBatches(ctx, r, n, clients, createJobs)
				},
			})
		}
		cases = append(cases, Case{
			Peer: peerFermata, Setting: "BatchCreateJobs, names only, clients: 4",
			Run: func(ctx context.Context, r *runner) (Sample, error) {
				return submitBatches(ctx, r, n, 4, fermata.CreateNames)
			},
		}, Case{
			Peer: peerFermata, Setting: "BatchCreateJobs, names only, no ids, clients: 4",
			Run: func(ctx context.Context, r *runner) (Sample, error) {
				return submitBatches(ctx, r, n, 4, createNamesWithoutIDs)
			},
		})
		for _, inFlight := range []int{64, 1} {
			jobs := n / 4
			if inFlight == 1 {
				jobs = n / 40
			}
			cases = append(cases,
				Case{
					Peer: peerFermata, Setting: fmt.Sprintf("CreateJob, %d in flight", inFlight),
					Run: func(ctx context.Context, r *runner) (Sample, error) {
						return submitSingly(ctx, r, jobs, inFlight, (*client.Client).CreateJob)
					},
				},
				Case{
					Peer: peerFermata, Setting: fmt.Sprintf("CreateJob, no ids, %d in flight", inFlight),
					Run: func(ctx context.Context, r *runner) (Sample, error) {
						return submitSingly(ctx, r, jobs, inFlight, createWithoutID)
					},
				},
				Case{
					Peer: peerAsynq, Setting: fmt.Sprintf("Enqueue, %d in flight", inFlight),
					Run: func(ctx context.Context, r *runner) (Sample, error) {
						return submitAsynq(ctx, r, jobs, inFlight)
					},
				})
		}
		cases = append(cases, Case{
			Peer: peerFermata, Setting: "stub, 64 in flight",
			Run: func(ctx context.Context, r *runner) (Sample, error) {
				return submitSingly(ctx, r, n/4, 64, createByStub)
			},
		})
		return append(cases, Case{
			Peer: peerRaw, Setting: "ZADD + HSET, 1,000 a call",
			Run: func(ctx context.Context, r *runner) (Sample, error) {
				return submitRaw(ctx, r, n)
			},
		})
	},
	Targets: func(r Results) []Target {
		batch := none
		for _, row := range r.Rows {
			counts := row.Peer == peerFermata && strings.HasPrefix(row.Setting, "Batch") &&
				!strings.Contains(row.Setting, "no ids")
			if v := row.Median("rate"); counts && !(v <= batch) {
				batch = v
			}
		}
		enqueue := r.Of(peerAsynq, "Enqueue, 64 in flight", "rate")
		return []Target{
			{Text: "CreateJob, 64 in flight, against asynq's Enqueue",
				Value:    r.Of(peerFermata, "CreateJob, 64 in flight", "rate") / enqueue,
				Required: 1, Aimed: none, Unit: "x"},
			{Text: "CreateJob, no ids, 64 in flight, against asynq's Enqueue",
				Value:    r.Of(peerFermata, "CreateJob, no ids, 64 in flight", "rate") / enqueue,
				Required: 1.3, Aimed: none, Unit: "x"},
			{Text: "CreateJob by the bare stub, 64 in flight, against asynq's Enqueue",
				Value:    r.Of(peerFermata, "stub, 64 in flight", "rate") / enqueue,
				Required: .6, Aimed: none, Unit: "x"},
			{Text: "BatchCreateJobs, best number of clients", Value: batch, Required: 60_000, Aimed: 90_000, Unit: "jobs/s"},
			{Text: "CreateJob, one client: p99", Value: r.Of(peerFermata, "CreateJob, 1 in flight", "p99"),
				Required: 2, Aimed: none, AtMost: true, Unit: "ms"},
		}
	},
	Ratios: func(r Results) (out []Ratio) {
		for _, setting := range []string{
			"CreateJob, 64 in flight", "CreateJob, no ids, 64 in flight", "CreateJob, 1 in flight",
			"BatchCreateJobs, clients: 4",
			"BatchCreateJobs, names only, clients: 4",
		} {
			peer := "Enqueue, 64 in flight"
			if strings.HasSuffix(setting, " 1 in flight") {
				peer = "Enqueue, 1 in flight"
			}
			own := r.Of(peerFermata, setting, "rate")
			out = append(out, Ratio{
				Text: setting + ": jobs/s", Asynq: own / r.Of(peerAsynq, peer, "rate"), OneServer: none,
				Raw: own / r.Best(peerRaw, "rate"),
			})
		}
		return out
	},
}

func submitBatches(ctx context.Context, r *runner, n, clients int, call fermata.Batch) (Sample, error) {
	b, err := r.newBed(ctx, bedOptions{nodes: 1})
	if err != nil {
		return nil, err
	}
	defer b.close()
	due := time.Now().Add(time.Hour)
	p, err := r.startProfile(ctx, b)
	if err != nil {
		return nil, err
	}
	m := b.meter()
	newJob := func(i int) *client.Job { return onceJob(0, i, due) }
	if err := b.cluster.RegisterBy(ctx, call, 0, n, clients, newJob); err != nil {
		return nil, err
	}
	sample := Sample{}
	measured := m.stop()
	measured.perJob(n, sample)
	measured.withClient(n, sample)
	return sample, p.end(ctx, n)
}

// create registers one job.
type create func(c *client.Client, ctx context.Context, id string, j *client.Job) (*client.Job, error)

func createByStub(c *client.Client, ctx context.Context, id string, j *client.Job) (*client.Job, error) {
	return fermatav1.NewJobServiceClient(c.Conn()).CreateJob(ctx, &fermatav1.CreateJobRequest{
		Parent: "namespaces/" + c.Namespace(), JobId: id, Job: j,
	})
}

// Without ids the client makes them, as asynq's client does with those of its tasks.
func createWithoutID(c *client.Client, ctx context.Context, _ string, j *client.Job) (*client.Job, error) {
	return c.CreateJob(ctx, "", j)
}

func createJobs(c *client.Client, ctx context.Context, jobs []client.NewJob) ([]client.CreateResult, error) {
	return c.CreateJobs(ctx, jobs, client.CreateJobsOptions{})
}

func createNamesWithoutIDs(c *client.Client, ctx context.Context, jobs []client.NewJob) ([]client.CreateResult, error) {
	for i := range jobs {
		jobs[i].ID = ""
	}
	return c.CreateJobs(ctx, jobs, client.CreateJobsOptions{NamesOnly: true})
}

func submitSingly(ctx context.Context, r *runner, n, inFlight int, do create) (Sample, error) {
	b, err := r.newBed(ctx, bedOptions{nodes: 1})
	if err != nil {
		return nil, err
	}
	defer b.close()
	c, err := b.cluster.Client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	p, err := r.startProfile(ctx, b)
	if err != nil {
		return nil, err
	}
	due := time.Now().Add(time.Hour)
	sample, err := b.submit(n, inFlight, func(i int) error {
		_, err := do(c, ctx, record.ID(0, i), onceJob(0, i, due))
		return err
	})
	if err != nil {
		return nil, err
	}
	return sample, p.end(ctx, n)
}

func submitAsynq(ctx context.Context, r *runner, n, inFlight int) (Sample, error) {
	b, err := r.newBed(ctx, bedOptions{})
	if err != nil {
		return nil, err
	}
	defer b.close()
	c := asynqs.New(b.redis.Addr)
	defer c.Close()
	due := time.Now().Add(time.Hour)
	return b.submit(n, inFlight, func(i int) error {
		return c.One(ctx, record.Payload(0, i, due, payloadSize), asynq.ProcessAt(due))
	})
}

// submit measures n calls, so many at once, after a few that do not count.
func (b *bed) submit(n, inFlight int, call func(i int) error) (Sample, error) {
	const warm = 200
	for i := range warm {
		if err := call(n + i); err != nil {
			return nil, err
		}
	}
	took := make([]float64, n)
	errs := make([]error, inFlight)
	var next atomic.Int64
	var all sync.WaitGroup
	m := b.meter()
	for k := range inFlight {
		all.Go(func() {
			for errs[k] == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				start := time.Now()
				errs[k] = call(i)
				took[i] = float64(time.Since(start).Microseconds()) / 1e3
			}
		})
	}
	all.Wait()
	measured := m.stop()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	q := stats.Of(took)
	sample := Sample{"p50": q.P50, "p99": q.P99}
	measured.perJob(n, sample)
	measured.withClient(n, sample)
	return sample, nil
}

func submitRaw(ctx context.Context, r *runner, n int) (Sample, error) {
	b, err := r.newBed(ctx, bedOptions{})
	if err != nil {
		return nil, err
	}
	defer b.close()
	raw := rawredis.New(b.redis.Addr)
	defer raw.Close()
	m := b.meter()
	if err := raw.Add(ctx, n, 1000, payloadSize, true); err != nil {
		return nil, err
	}
	sample := Sample{}
	measured := m.stop()
	measured.perJob(n, sample)
	measured.withClient(n, sample)
	return sample, nil
}
