package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/bench/internal/asynqs"
	"github.com/fermata-io/fermata/bench/internal/fermata"
	"github.com/fermata-io/fermata/bench/internal/load"
	"github.com/fermata-io/fermata/bench/internal/rawredis"
	"github.com/fermata-io/fermata/bench/internal/record"
	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/worker"
)

// payloadSize of all jobs.
const payloadSize = 200

// rawBatch is how many jobs raw Redis moves in one call.
const rawBatch = 100

// Settings that several scenarios share. The first is the headline: a user gets it without choosing anything.
const (
	defaultSlots    = worker.DefaultSlots
	defaultSetting  = "defaults (16 slots)"
	oneServerName   = "64, one server"
	fourServersName = "64, four servers"
)

// retentionOf is how long finished jobs are kept before they are deleted: longer than a drain takes, so that the
// cost of the two is measured separately.
func retentionOf(quick bool) time.Duration {
	if quick {
		return 2 * time.Second
	}
	return 6 * time.Second
}

// drain measures the whole life of one-time jobs after their registration. They are due at random nanoseconds of
// the last minute, and registered while no worker is connected. The clock starts when the worker process gets the order
// to connect. The drain ends when Redis shows that no job waits or is leased. Redis is asked only after the last
// handler was entered, so that asking costs nothing before; then every 2 ms. The measurement of processor time
// goes on until Redis shows that all finished jobs are deleted.
//
// asynq deletes a task when it completes. Its tasks are enqueued for at once, before its servers start. Raw Redis
// leases and removes as many jobs.
var drain = Scenario{
	Name: "drain", Form: 1,
	Title: "A backlog of one-time jobs",
	Text: "One-time jobs with payloads of 200 bytes, due at random nanoseconds of the last minute, are registered " +
		"before the worker connects. \"drained jobs/s\" is measured from the order to connect until Redis shows no job " +
		"that waits or is leased. Processor time includes the deletion of the finished jobs, which are kept for 6 seconds " +
		"here (1 hour by default) and then deleted. \"jobs/s\" is the drained rate, multiplied by the share of the " +
		"processor time that the drain has of the whole: the rate at which jobs can be drained and deleted all the time. " +
		"asynq deletes a task when it completes, and raw Redis too. asynq's tasks are in its list of pending tasks. " +
		"\"aof\": Redis with appendonly everysec. \"queue limits\": limits of concurrency and rate that are not reached.",
	Metrics: drainMetrics,
	Cases:   drainCases,
	Targets: drainTargets,
	Ratios: func(r Results) []Ratio {
		return append(r.rateRatios("one-time jobs"), r.cpuRatio("one-time jobs, deletion included"))
	},
}

var drainMetrics = []Metric{
	{"rate", "jobs/s", 0}, {"drained", "drained jobs/s", 0}, {"cpu_redis", "Redis us/job", 1},
	{"cpu_scheduler", "node us/job", 1},
	{"cpu_worker", "worker us/job", 1}, {"cpu_total", "total us/job", 1},
	{"deletion_redis", "of it deletion: Redis", 1}, {"deletion_scheduler", "deletion: node", 1},
}

func drainCases(p Params) []Case {
	var cases []Case
	full, part, tasks := p.jobs(200_000, 30_000), p.jobs(100_000, 15_000), p.jobs(100_000, 20_000)
	add := func(name string, once bool, l backlog) {
		l.n = cmp.Or(l.n, part)
		if !p.Quick || name == defaultSetting { // deletion takes a while to begin
			l.keep = retentionOf(p.Quick)
		}
		cases = append(cases, Case{
			Peer: peerFermata, Setting: name, Once: once,
			Run: func(ctx context.Context, r *runner) (Sample, error) {
				return backlogFermata(ctx, r, l)
			},
		})
	}
	for _, slots := range p.slots(defaultSlots, 500) {
		add(slotsName(slots), false, backlog{slots: slots, n: full})
	}
	if len(p.Slots) == 0 && !p.Quick {
		add("500 slots, no history", true, backlog{slots: 500, noHistory: true})
		add("500 slots, queue limits", true, backlog{slots: 500, limited: true})
		add("500 slots, aof", true, backlog{slots: 500, aof: true})
		add("16 slots, no prefetch", true, backlog{slots: defaultSlots, prefetch: -1, n: part / 2})
	}
	for _, c := range []struct {
		name string
		backlog
	}{
		{"16, one server", backlog{slots: 16}}, {oneServerName, backlog{slots: 64}},
		{fourServersName, backlog{slots: 64, servers: 4}},
		{fourServersName + ", aof", backlog{slots: 64, servers: 4, aof: true}},
	} {
		if p.Quick && (c.aof || c.slots == 16) {
			continue
		}
		c.n = tasks
		cases = append(cases, Case{
			Peer: peerAsynq, Setting: c.name,
			Run: func(ctx context.Context, r *runner) (Sample, error) {
				return backlogAsynq(ctx, r, c.backlog)
			},
		})
	}
	for _, aof := range []bool{false, true} {
		if p.Quick && aof {
			continue
		}
		name := rawCompleteName
		if aof {
			name += ", aof"
		}
		cases = append(cases, Case{Peer: peerRaw, Setting: name, Run: func(ctx context.Context, r *runner) (Sample, error) {
			return drainRaw(ctx, r, full, rawredis.Complete, aof)
		}})
	}
	return cases
}

// Settings of raw Redis.
const (
	rawCompleteName   = "lease + complete, batches of 100"
	rawRescheduleName = "lease + reschedule, batches of 100"
)

func slotsName(slots int) string {
	if slots == defaultSlots {
		return defaultSetting
	}
	return fmt.Sprintf("%d slots", slots)
}

func drainTargets(r Results) []Target {
	at := func(setting, key string) float64 { return r.Of(peerFermata, setting, key) }
	nodeAndWorker := at("500 slots", "cpu_scheduler") - at("500 slots", "deletion_scheduler") +
		at("500 slots", "cpu_worker")
	return append(r.rateTargets("one-time jobs, defaults", 5, 7),
		Target{Text: "one-time jobs, defaults, share of raw Redis",
			Value:    100 * at(defaultSetting, "rate") / r.Of(peerRaw, rawCompleteName, "rate"),
			Required: 50, Aimed: 60, Unit: "%"},
		Target{Text: "CPU of node and worker a one-time job, 500 slots, without deletion", Value: nodeAndWorker,
			Required: 6.5, Aimed: none, AtMost: true, Unit: "us"},
		Target{Text: "Redis CPU of a one-time job, 500 slots, without deletion",
			Value:    at("500 slots", "cpu_redis") - at("500 slots", "deletion_redis"),
			Required: 6, Aimed: none, AtMost: true, Unit: "us"})
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
	limited   bool          // the queue has limits that it does not reach
	keep      time.Duration // of finished one-time jobs, whose deletion is then measured; 0: the default, and it is not
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
	b, err := r.newBed(ctx, bedOptions{
		aof: l.aof, nodes: max(l.nodes, 1), masters: l.masters, replica: l.replica, worker: load.Config{
			Kind: load.Fermata, Slots: l.slots, Prefetch: l.prefetch, Classes: []int{l.n}, FailFirst: l.failFirst,
		},
	})
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
	open := func(ctx context.Context) (int, error) { return fermata.Open(ctx, future, b.redisClients()...) }
	measured, err := b.drain(ctx, l, open)
	if err != nil {
		return nil, err
	}
	after, err := b.redisReads(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.end(ctx, l.n); err != nil {
		return nil, err
	}
	deletion, err := b.waitDeleted(ctx, l.keep)
	if err != nil {
		return nil, err
	}
	sample := l.sample(measured, deletion)
	sample["reads"] = float64(after-before) / float64(l.n)
	return sample, nil
}

// sample has the drain, and the deletion that follows, if it was measured.
func (l backlog) sample(drain span, deletion span) Sample {
	sample := Sample{}
	drain.plus(deletion).perJob(l.n, sample)
	rate := float64(l.n) / drain.took.Seconds()
	sample["rate"] = rate
	if l.keep > 0 {
		sample["drained"] = rate
		sample["rate"] = rate * drain.total().Seconds() / drain.plus(deletion).total().Seconds()
		for _, part := range []string{partRedis, partScheduler} {
			sample["deletion_"+part] = float64(deletion.cpu[part].Microseconds()) / float64(l.n)
		}
	}
	return sample
}

// waitDeleted measures from the end of a drain until all jobs are deleted, which are kept for so long. It measures
// nothing of 0.
func (b *bed) waitDeleted(ctx context.Context, keep time.Duration) (span, error) {
	if keep == 0 {
		return span{}, nil
	}
	m := b.meter()
	last, since := -1, time.Now().Add(keep)
	for {
		if err := sleepUntil(ctx, time.Now().Add(200*time.Millisecond)); err != nil {
			return span{}, err
		}
		n, err := fermata.Finished(ctx, b.redisClients()...)
		switch {
		case err != nil:
			return span{}, err
		case n == 0:
			return m.stop(), b.alive()
		case n != last:
			last, since = n, time.Now()
		case time.Since(since) > keep+patience:
			return span{}, fmt.Errorf("%d finished jobs are not deleted, and no further one for %v", n, patience)
		}
	}
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
		if l.keep > 0 {
			j.Retention = durationpb.New(l.keep)
		}
		return l.withHistory(j)
	})
}

// withHistory is a job that keeps as much history as is wanted.
func (l backlog) withHistory(j *client.Job) *client.Job {
	if l.noHistory {
		j.HistoryLimit = new(int32)
	}
	return j
}

// onceJob is a one-time job. It is due at a nanosecond, so that a start that is early by the rounding of times counts
// as early.
func onceJob(class record.Class, i int, due time.Time) *client.Job {
	return &client.Job{
		Handler: load.Handler, Payload: record.Payload(class, i, due, payloadSize), Schedule: client.Once(due),
	}
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
	measured, err := b.drain(ctx, l, func(ctx context.Context) (int, error) {
		return asynqs.Open(ctx, b.redis.Client, "default")
	})
	if err != nil {
		return nil, err
	}
	return l.sample(measured, span{}), nil
}

// drain lets the worker connect and measures until all is settled.
func (b *bed) drain(ctx context.Context, l backlog, open func(context.Context) (int, error)) (span, error) {
	m := b.meter()
	if err := b.worker.Go(); err != nil {
		return span{}, err
	}
	if err := b.waitExecuted(ctx, l.n*l.expect()); err != nil {
		return span{}, err
	}
	if err := b.waitSettled(ctx, open); err != nil {
		return span{}, err
	}
	measured := m.stop()
	_, err := b.verify(l.expect(), 0)
	return measured, err
}

// drainRaw leases n jobs, and completes or reschedules them.
func drainRaw(ctx context.Context, r *runner, n int, end rawredis.End, aof bool) (Sample, error) {
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
	done, err := raw.Drain(ctx, rawBatch, end)
	if err != nil {
		return nil, err
	}
	measured := m.stop()
	if done != n {
		return nil, fmt.Errorf("%d of %d jobs were leased", done, n)
	}
	return backlog{n: n}.sample(measured, span{}), nil
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
