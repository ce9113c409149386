package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/fermata-io/fermata/bench/internal/asynqs"
	"github.com/fermata-io/fermata/bench/internal/fermata"
	"github.com/fermata-io/fermata/bench/internal/load"
	"github.com/fermata-io/fermata/bench/internal/rawredis"
	"github.com/fermata-io/fermata/bench/internal/record"
	"github.com/fermata-io/fermata/client"
)

// payloadSize of all jobs.
const payloadSize = 200

// rawBatch is how many jobs raw Redis moves a call.
const rawBatch = 100

// drain measures how fast a backlog is worked off: one-time jobs, due at random
// instants of the last minute, are registered while no worker is connected. The clock
// begins when the worker process is told to connect, and ends when Redis shows that
// nothing is waiting or leased any more. Redis is asked only after the last handler was
// entered, so that asking costs nothing before; then every 2 ms.
//
// asynq's tasks are enqueued for at once, before its servers start, in smaller
// number: its rate does not depend on it. Raw Redis leases and reschedules as many jobs
// as Fermata.
var drain = Scenario{
	Name:  "drain",
	Title: "A backlog of one-time jobs",
	Text: "One-time jobs with payloads of 200 bytes, due at random instants of the last minute, are registered before the worker connects. " +
		"The clock begins with the order to connect and ends when Redis shows no job that waits or is leased. " +
		"asynq has fewer jobs, in its list of pending tasks. \"aof\": Redis with appendonly everysec. " +
		"\"queue limits\": of concurrency and rate, neither of which is reached.",
	Metrics: drainMetrics,
	Cases:   drainCases,
	Targets: drainTargets,
}

var drainMetrics = []Metric{
	{"rate", "jobs/s", 0}, {"cpu_redis", "Redis us/job", 1}, {"cpu_scheduler", "scheduler us/job", 1}, {"cpu_worker", "worker us/job", 1},
}

func drainCases(p Params) []Case {
	var cases []Case
	full := p.jobs(500_000, 60_000)
	for _, slots := range p.slots(500, 2000, 64, 10) {
		cases = append(cases, Case{peerFermata, fmt.Sprintf("%d slots", slots), func(ctx context.Context, r *runner) (Sample, error) {
			return backlogFermata(ctx, r, backlog{n: full, slots: slots})
		}})
	}
	if len(p.Slots) == 0 {
		for _, c := range []struct {
			name string
			backlog
		}{
			{"500 slots, aof", backlog{slots: 500, aof: true}},
			{"2000 slots, no history", backlog{slots: 2000, noHistory: true}},
			{"500 slots, queue limits", backlog{slots: 500, limited: true}},
			{"64 slots, no prefetch", backlog{slots: 64, prefetch: -1}},
			{"10 slots, no prefetch", backlog{slots: 10, prefetch: -1, n: p.jobs(100_000, 20_000)}},
		} {
			c.n = cmp.Or(c.n, full)
			cases = append(cases, Case{peerFermata, c.name, func(ctx context.Context, r *runner) (Sample, error) {
				return backlogFermata(ctx, r, c.backlog)
			}})
		}
	}
	for _, c := range []struct {
		name string
		backlog
	}{
		{"10", backlog{slots: 10}}, {"64", backlog{slots: 64}}, {"256", backlog{slots: 256}}, {"64 x 4 servers", backlog{slots: 64, servers: 4}},
		{"64, aof", backlog{slots: 64, aof: true}},
	} {
		if p.Quick && c.slots == 256 {
			continue
		}
		c.n = p.jobs(100_000, 30_000)
		cases = append(cases, Case{peerAsynq, c.name, func(ctx context.Context, r *runner) (Sample, error) {
			return backlogAsynq(ctx, r, c.backlog)
		}})
	}
	for _, aof := range []bool{false, true} {
		name := "batches of 100"
		if aof {
			name += ", aof"
		}
		cases = append(cases, Case{peerRaw, name, func(ctx context.Context, r *runner) (Sample, error) { return cycleRaw(ctx, r, full, aof) }})
	}
	return cases
}

func drainTargets(r Results) []Target {
	asynq, raw := r.Best(peerAsynq, "rate"), r.Of(peerRaw, "batches of 100", "rate")
	best := r.Best(peerFermata, "rate")
	goCPU := func(setting string) float64 {
		return r.Of(peerFermata, setting, "cpu_scheduler") + r.Of(peerFermata, setting, "cpu_worker")
	}
	return []Target{
		{Text: "one-time jobs, best setting, against asynq's best", Value: best / asynq, Required: 5, Aimed: 8, Unit: "x"},
		{Text: "one-time jobs, best setting, against asynq's best with one server", Value: best / r.BestOf(peerAsynq, "rate", oneServer), Required: 5, Aimed: 8, Unit: "x"},
		{Text: "one-time jobs, best setting, share of raw Redis", Value: 100 * best / raw, Required: 45, Aimed: 70, Unit: "%"},
		{Text: "10 slots, against asynq with a concurrency of 10", Value: r.Of(peerFermata, "10 slots", "rate") / r.Of(peerAsynq, "10", "rate"), Required: 3, Aimed: none, Unit: "x"},
		{Text: "CPU of scheduler and worker a job, 500 slots", Value: goCPU("500 slots"), Required: 12, Aimed: 7, AtMost: true, Unit: "us"},
		{Text: "CPU of scheduler and worker a job, 64 slots", Value: goCPU("64 slots"), Required: 22, Aimed: none, AtMost: true, Unit: "us"},
	}
}

// backlog is a number of jobs that wait for a worker.
type backlog struct {
	n, slots  int
	servers   int // of asynq
	poll      int // of asynq, in ms
	aof       bool
	recurring bool // rather than one-time
	failFirst bool // each job fails once
	// What follows is of Fermata.
	nodes     int // default 1
	masters   int // of a Redis Cluster
	replica   bool
	prefetch  int
	noHistory bool
	limited   bool // the queue has limits that it does not reach
}

// expect is how often each job runs.
func (l backlog) expect() int {
	if l.failFirst {
		return 2
	}
	return 1
}

// backlogFermata registers a backlog and drains it.
func backlogFermata(ctx context.Context, r *runner, l backlog) (Sample, error) {
	return onTime(func(begin beginFunc) (Sample, error) { return l.fermata(ctx, r, begin) })
}

func (l backlog) fermata(ctx context.Context, r *runner, begin beginFunc) (Sample, error) {
	b, err := r.newBed(ctx, bedOptions{aof: l.aof, nodes: max(l.nodes, 1), masters: l.masters, replica: l.replica, worker: load.Config{
		Kind: load.Fermata, Slots: l.slots, Prefetch: l.prefetch, Classes: []int{l.n}, FailFirst: l.failFirst,
	}})
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := l.limit(ctx, b); err != nil {
		return nil, err
	}
	allDue, err := l.register(ctx, b, begin)
	if err != nil {
		return nil, err
	}
	if err := sleepUntil(ctx, allDue); err != nil {
		return nil, err
	}
	p, err := r.startProfile(ctx, b)
	if err != nil {
		return nil, err
	}
	future := time.Now().Add(recurringEvery / 2)
	before, err := b.redisReads(ctx)
	if err != nil {
		return nil, err
	}
	sample, err := b.drain(ctx, l, func(ctx context.Context) (int, error) { return fermata.Open(ctx, future, b.redisClients()...) })
	if err != nil {
		return nil, err
	}
	after, err := b.redisReads(ctx)
	if err != nil {
		return nil, err
	}
	sample["reads"] = float64(after-before) / float64(l.n)
	return sample, p.end(ctx, l.n)
}

// limit sets limits of concurrency and rate, if they are wanted.
func (l backlog) limit(ctx context.Context, b *bed) error {
	if !l.limited {
		return nil
	}
	c, err := b.cluster.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Admin().SetQueueSettings(ctx, &client.QueueSettings{
		Name: c.QueueName("default"), MaxConcurrency: 10_000, Rate: 100_000, Burst: 10_000,
	}, client.SetQueueSettingsOptions{})
	return err
}

// register registers the jobs and returns when all of them are due.
func (l backlog) register(ctx context.Context, b *bed, begin beginFunc) (time.Time, error) {
	if l.recurring {
		return l.registerRecurring(ctx, b, begin)
	}
	now := time.Now()
	return now, b.cluster.Register(ctx, 0, l.n, 4, func(i int) *client.Job {
		j := onceJob(0, i, now.Add(-rand.N(time.Minute)))
		if l.failFirst {
			j.RetryPolicy = retryAtOnce
		}
		return l.kept(j)
	})
}

// kept is a job that keeps as much history as is wanted.
func (l backlog) kept(j *client.Job) *client.Job {
	if l.noHistory {
		j.HistoryLimit = new(int32)
	}
	return j
}

// onceJob is a one-time job. It is due to the nanosecond, so that a start which is early by
// the rounding of times counts as early.
func onceJob(class record.Class, i int, due time.Time) *client.Job {
	return &client.Job{Handler: load.Handler, Payload: record.Payload(class, i, due, payloadSize), Schedule: client.Once(due)}
}

// backlogAsynq is the same for asynq.
func backlogAsynq(ctx context.Context, r *runner, l backlog) (Sample, error) {
	b, err := r.newBed(ctx, bedOptions{aof: l.aof, worker: load.Config{
		Kind: load.Asynq, Slots: l.slots, Servers: l.servers, PollMS: l.poll, Queues: []string{"default"},
		Classes: []int{l.n}, FailFirst: l.failFirst,
	}})
	if err != nil {
		return nil, err
	}
	defer b.close()
	c := asynqs.New(b.redis.Addr)
	defer c.Close()
	err = c.Enqueue(ctx, l.n, 64, func(i int) ([]byte, []asynq.Option) {
		return record.Payload(0, i, time.Now(), payloadSize), nil
	})
	if err != nil {
		return nil, err
	}
	return b.drain(ctx, l, func(ctx context.Context) (int, error) { return asynqs.Open(ctx, b.redis.Client, "default") })
}

// drain lets the worker go and measures until all is settled.
func (b *bed) drain(ctx context.Context, l backlog, open func(context.Context) (int, error)) (Sample, error) {
	m := b.meter()
	if err := b.worker.Go(); err != nil {
		return nil, err
	}
	if err := b.waitExecuted(ctx, l.n*l.expect()); err != nil {
		return nil, err
	}
	if err := b.waitSettled(ctx, open); err != nil {
		return nil, err
	}
	measured := m.stop()
	if _, err := b.verify(l.expect(), 0); err != nil {
		return nil, err
	}
	sample := Sample{}
	measured.perJob(l.n, sample)
	return sample, nil
}

// cycleRaw leases and reschedules n jobs.
func cycleRaw(ctx context.Context, r *runner, n int, aof bool) (Sample, error) {
	b, err := r.newBed(ctx, bedOptions{aof: aof})
	if err != nil {
		return nil, err
	}
	defer b.close()
	raw := rawredis.New(b.redis.Addr)
	defer raw.Close()
	if err := raw.Add(ctx, n, 1000, payloadSize, false); err != nil {
		return nil, err
	}
	m := b.meter()
	done, err := raw.Cycle(ctx, rawBatch)
	if err != nil {
		return nil, err
	}
	measured := m.stop()
	if done != n {
		return nil, fmt.Errorf("%d of %d jobs were leased", done, n)
	}
	sample := Sample{}
	measured.perJob(n, sample)
	return sample, nil
}

// sleepUntil waits for an instant.
func sleepUntil(ctx context.Context, t time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(t)):
		return nil
	}
}
