package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/bench/internal/asynqs"
	"github.com/fermata-io/fermata/bench/internal/load"
	"github.com/fermata-io/fermata/bench/internal/rawredis"
	"github.com/fermata-io/fermata/bench/internal/record"
	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/worker"
)

// idleWorkers are connected to measure the memory of each at a node.
const idleWorkers = 1000

// memory measures what jobs that are scheduled ahead take: in Redis (the growth of
// used_memory), and in the one node that holds all of them, after they were registered,
// after a tenth of them has run, and after all were listed; and what workers that wait
// take of the node. The workers run in the benchmark's own process.
var memory = Scenario{
	Name: "memory", MaxRounds: 1,
	Title: "Memory of jobs scheduled ahead",
	Text: "Jobs with ids of 24 bytes and payloads of 200. Fermata: interval of an hour, usual policies, no history; " +
		"names of records begin with the namespace, and allocators round up. \"After a run\" is what a job takes once it " +
		"has run. One-time jobs are finished then, and kept with one run.  Node: resident memory with all jobs in its " +
		"shards.",
	Metrics: []Metric{
		{"bytes", "Redis bytes/job", 0}, {"bytes_ran", "after a run", 0},
		{"node", "node MB", 0}, {"node_ran", "after runs", 0}, {"node_listed", "after listing", 0},
		{"worker", "node KB/idle worker", 1},
	},
	Cases: func(p Params) []Case {
		n := p.jobs(1_000_000, 100_000)
		var cases []Case
		for _, namespace := range []string{"default", "mail"} {
			n := n
			if namespace == "mail" { // for the bytes, which do not depend on the number
				n /= 5
			}
			cases = append(cases, Case{
				Peer: peerFermata, Setting: "namespace " + namespace,
				Run: func(ctx context.Context, r *runner) (Sample, error) {
					return memoryFermata(ctx, r, namespace, n)
				},
			})
		}
		cases = append(cases, Case{
			Peer: peerFermata, Setting: oneTimeJobs,
			Run: func(ctx context.Context, r *runner) (Sample, error) {
				return memoryOnce(ctx, r, n/5)
			},
		})
		return append(cases,
			Case{
				Peer: peerAsynq, Setting: "scheduled",
				Run: func(ctx context.Context, r *runner) (Sample, error) {
					return memoryAsynq(ctx, r, n/4)
				},
			},
			Case{
				Peer: peerRaw, Setting: "ZADD + HSET",
				Run: func(ctx context.Context, r *runner) (Sample, error) {
					return memoryRaw(ctx, r, n)
				},
			})
	},
	Targets: func(r Results) []Target {
		at := func(key string) float64 { return r.Of(peerFermata, "namespace default", key) }
		return []Target{
			{Text: "Redis bytes a recurring job, namespace default", Value: at("bytes"),
				Required: 450, Aimed: 400, AtMost: true, Unit: "B"},
			{Text: "Redis bytes a recurring job, namespace mail", Value: r.Of(peerFermata, "namespace mail", "bytes"),
				Required: 450, Aimed: 400, AtMost: true, Unit: "B"},
			{Text: "memory of a node with all jobs, after runs and listing",
				Value:    max(at("node"), at("node_ran"), at("node_listed")),
				Required: 150, Aimed: none, AtMost: true, Unit: "MB"},
			{Text: "memory of a node a connected idle worker", Value: at("worker"),
				Required: 50, Aimed: none, AtMost: true, Unit: "KB"},
		}
	},
}

func memoryFermata(ctx context.Context, r *runner, namespace string, n int) (Sample, error) {
	b, before, err := newMeasuredBed(ctx, r, bedOptions{nodes: 1})
	if err != nil {
		return nil, err
	}
	defer b.close()
	runs := n / 10
	first, err := registerAhead(ctx, b, namespace, n, runs)
	if err != nil {
		return nil, err
	}
	after, err := settledMemory(ctx, b)
	if err != nil {
		return nil, err
	}
	const mb = 1 << 20
	node := b.cluster.Nodes[0]
	sample := Sample{"bytes": float64(after-before) / float64(n), "node": float64(node.RSS()) / mb}
	if err := runSome(ctx, b, namespace, runs, time.Until(first)+patience); err != nil {
		return nil, err
	}
	ran, err := settledMemory(ctx, b)
	if err != nil {
		return nil, err
	}
	sample["bytes_ran"] = sample["bytes"] + float64(ran-after)/float64(runs)
	sample["node_ran"] = float64(node.RSS()) / mb
	if err := listAll(ctx, b, namespace, n); err != nil {
		return nil, err
	}
	sample["node_listed"] = float64(node.RSS()) / mb
	if namespace == "default" {
		sample["worker"], err = memoryOfWorkers(ctx, r)
	}
	return sample, err
}

// oneTimeJobs is the setting in which all jobs run and are then kept as finished ones.
const oneTimeJobs = "one-time jobs, defaults"

// memoryOnce measures one-time jobs ahead, and the same jobs after they have run.
func memoryOnce(ctx context.Context, r *runner, n int) (Sample, error) {
	b, before, err := newMeasuredBed(ctx, r, bedOptions{nodes: 1})
	if err != nil {
		return nil, err
	}
	defer b.close()
	due := time.Now().Add(10*time.Second + time.Duration(n)*time.Second/10_000)
	if err := b.cluster.Register(ctx, 0, n, 4, func(i int) *client.Job { return onceJob(0, i, due) }); err != nil {
		return nil, err
	}
	after, err := settledMemory(ctx, b)
	if err != nil {
		return nil, err
	}
	if time.Now().After(due) {
		return nil, errLate
	}
	if err := runSome(ctx, b, "default", n, time.Until(due)+patience); err != nil {
		return nil, err
	}
	ran, err := settledMemory(ctx, b)
	return Sample{"bytes": float64(after-before) / float64(n), "bytes_ran": float64(ran-before) / float64(n)}, err
}

// settledMemory is what Redis uses when the buffers of its connections have shrunk.
func settledMemory(ctx context.Context, b *bed) (int64, error) {
	if err := sleepUntil(ctx, time.Now().Add(5*time.Second)); err != nil {
		return 0, err
	}
	return b.redis.UsedMemory(ctx)
}

// registerAhead registers n jobs with an interval of an hour. The first of them are due
// at an instant soon after, which is returned, and the others in an hour.
func registerAhead(ctx context.Context, b *bed, namespace string, n, soon int) (time.Time, error) {
	const calls, perCall, perSecond = 4, 1000, 15_000
	first := time.Now().Add(5*time.Second + time.Duration(n)*time.Second/perSecond)
	none := int32(0)
	job := func(i int) client.NewJob {
		s := client.Every(time.Hour)
		if i < soon {
			s.StartTime = timestamppb.New(first)
		}
		return client.NewJob{ID: record.ID(0, i), Job: &client.Job{
			Handler: load.Handler, Payload: record.Payload(0, i, time.Time{}, payloadSize), Schedule: s, HistoryLimit: &none,
		}}
	}
	var next atomic.Int64
	errs := make([]error, calls)
	var all sync.WaitGroup
	for k := range calls {
		all.Go(func() {
			cl, err := client.Dial(b.cluster.Addresses(), client.Options{Namespace: namespace})
			errs[k] = err
			if err != nil {
				return
			}
			defer cl.Close()
			for from := int(next.Add(perCall)) - perCall; from < n && errs[k] == nil; from = int(next.Add(perCall)) - perCall {
				var batch []client.NewJob
				for i := from; i < min(n, from+perCall); i++ {
					batch = append(batch, job(i))
				}
				results, err := cl.CreateJobs(ctx, batch, client.CreateJobsOptions{})
				errs[k] = err
				for _, c := range results {
					errs[k] = errors.Join(errs[k], c.Err)
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return first, err
	}
	if soon > 0 && time.Now().After(first) {
		return first, errors.New("registration took until jobs were due")
	}
	return first, nil
}

// runSome waits until so many jobs have run in this process.
func runSome(ctx context.Context, b *bed, namespace string, n int, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var done atomic.Int64
	all := make(chan struct{})
	stop, err := startWorker(ctx, b, worker.Options{Namespace: namespace, Slots: 500}, func() {
		if int(done.Add(1)) == n {
			close(all)
		}
	})
	if err != nil {
		return err
	}
	defer stop() // after what is to be reported has been
	select {
	case <-all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d jobs have run: %w", done.Load(), n, ctx.Err())
	}
}

// startWorker connects a worker in this process.
func startWorker(ctx context.Context, b *bed, o worker.Options, ran func()) (stop func(), err error) {
	o.Addresses = b.cluster.Addresses()
	w, err := worker.New(o)
	if err != nil {
		return nil, err
	}
	w.Handle(load.Handler, func(context.Context, *worker.Task) error { ran(); return nil })
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx) // what it could not do shows in what was run
	}()
	return func() { cancel(); <-ended }, nil
}

func listAll(ctx context.Context, b *bed, namespace string, n int) error {
	cl, err := client.Dial(b.cluster.Addresses(), client.Options{Namespace: namespace})
	if err != nil {
		return err
	}
	defer cl.Close()
	listed := 0
	for _, err := range cl.Jobs(ctx, client.Filter{PageSize: 1000}) {
		if err != nil {
			return err
		}
		listed++
	}
	if listed < n {
		return fmt.Errorf("%d of %d jobs were listed", listed, n)
	}
	return nil
}

// memoryOfWorkers is what a connected worker without work takes of a node, in KB. The
// node is a new one: one that has worked has memory to spare.
func memoryOfWorkers(ctx context.Context, r *runner) (float64, error) {
	b, err := r.newBed(ctx, bedOptions{nodes: 1})
	if err != nil {
		return 0, err
	}
	defer b.close()
	cl, err := b.cluster.Client()
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	node := b.cluster.Nodes[0]
	before := node.RSS()
	var all sync.WaitGroup
	defer all.Wait()
	for i := range idleWorkers {
		stop, err := startWorker(ctx, b, worker.Options{ID: fmt.Sprint("idle-", i), Queues: []string{"none"}}, func() {})
		if err != nil {
			return 0, err
		}
		defer func() { all.Go(stop) }()
	}
	for since := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		workers, err := cl.Admin().Workers(ctx)
		connected := 0
		for _, w := range workers {
			if strings.HasPrefix(w.GetWorkerId(), "idle-") {
				connected++
			}
		}
		if connected == idleWorkers {
			break
		}
		err = errors.Join(err, b.alive())
		if err != nil {
			return 0, err
		}
		if time.Since(since) > patience {
			return 0, fmt.Errorf("%d of %d workers are connected", connected, idleWorkers)
		}
	}
	return float64(node.RSS()-before) / idleWorkers / 1024, nil
}

func memoryAsynq(ctx context.Context, r *runner, n int) (Sample, error) {
	return measureGrowth(ctx, r, n, func(b *bed) error { return scheduleAsynq(ctx, b, n) })
}

// scheduleAsynq enqueues tasks that are due in hours.
func scheduleAsynq(ctx context.Context, b *bed, n int) error {
	c := asynqs.New(b.redis.Addr)
	defer c.Close()
	return c.Enqueue(ctx, n, 64, func(i int) ([]byte, []asynq.Option) {
		options := []asynq.Option{asynq.ProcessIn(3 * time.Hour), asynq.TaskID(record.ID(0, i))}
		return record.Payload(0, i, time.Time{}, payloadSize), options
	})
}

func memoryRaw(ctx context.Context, r *runner, n int) (Sample, error) {
	return measureGrowth(ctx, r, n, func(b *bed) error {
		limit := rawredis.New(b.redis.Addr)
		defer limit.Close()
		return limit.Add(ctx, n, 1000, payloadSize, true)
	})
}

// newMeasuredBed starts a bed, and returns also what its Redis uses while it is empty.
func newMeasuredBed(ctx context.Context, r *runner, o bedOptions) (b *bed, before int64, err error) {
	b, err = r.newBed(ctx, o)
	if err != nil {
		return nil, 0, err
	}
	before, err = b.redis.UsedMemory(ctx)
	if err != nil {
		b.close()
		return nil, 0, err
	}
	return b, before, nil
}

// measureGrowth measures what each of n jobs takes of a Redis without nodes, which store fills.
func measureGrowth(ctx context.Context, r *runner, n int, store func(*bed) error) (Sample, error) {
	b, before, err := newMeasuredBed(ctx, r, bedOptions{})
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := store(b); err != nil {
		return nil, err
	}
	after, err := b.redis.UsedMemory(ctx)
	return Sample{"bytes": float64(after-before) / float64(n)}, err
}
