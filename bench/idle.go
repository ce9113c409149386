package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fermata-io/fermata/bench/internal/load"
	"github.com/fermata-io/fermata/bench/internal/redisd"
	"github.com/fermata-io/fermata/client"
)

// idle measures what a scheduler costs while nothing is due: a million jobs scheduled
// ahead, one node and one worker connected.
var idle = Scenario{
	Name: "idle", Form: 1, MaxRounds: 1,
	Title: "Idle cost",
	Text: "All jobs are due in an hour or later; one worker process is connected. CPU is a share of one core over the " +
		"whole span. Calls are those that Redis counts, also inside scripts. An empty server is what redis-server takes by " +
		"itself.",
	Metrics: []Metric{
		{"redis", "Redis %", 2}, {"scheduler", "scheduler %", 2}, {"both", "both %", 2}, {"worker", "worker %", 2},
		{"scripts", "scripts/s", 1}, {"calls", "calls/s", 1},
	},
	Cases: func(p Params) []Case {
		n := p.jobs(1_000_000, 100_000)
		span := 30 * time.Second
		if p.Quick {
			span = 10 * time.Second
		}
		return []Case{
			{
				Peer: peerFermata, Setting: fmt.Sprintf("%d jobs", n),
				Run: func(ctx context.Context, r *runner) (Sample, error) {
					return idleFermata(ctx, r, n, span)
				},
			},
			{
				Peer: peerFermata, Setting: fmt.Sprintf("%d jobs in 1000 queues", n/5),
				Run: func(ctx context.Context, r *runner) (Sample, error) {
					return idleQueues(ctx, r, n/5, 1000, span)
				},
			},
			{
				Peer: peerRaw, Setting: "an empty server",
				Run: func(ctx context.Context, r *runner) (Sample, error) {
					return idleRedis(ctx, r, span)
				},
			},
			{
				Peer: peerAsynq, Setting: fmt.Sprintf("%d tasks, one server", n/4),
				Run: func(ctx context.Context, r *runner) (Sample, error) {
					return idleAsynq(ctx, r, n/4, 1, span)
				},
			},
			{
				Peer: peerAsynq, Setting: fmt.Sprintf("%d tasks, four servers", n/4),
				Run: func(ctx context.Context, r *runner) (Sample, error) {
					return idleAsynq(ctx, r, n/4, 4, span)
				},
			},
		}
	},
	Targets: func(r Results) []Target {
		return []Target{
			{Text: "CPU of Redis and scheduler while nothing is due, above an empty server",
				Value:    r.Least(peerFermata, "both") - r.Least(peerRaw, "both"),
				Required: 0.3, Aimed: none, AtMost: true, Unit: "% of a core"},
		}
	},
}

// settleFor is how long after registration and connection nothing is measured: caches
// are warm, collections are over.
const settleFor = 10 * time.Second

// idleBed has one node and a worker that knows n jobs.
func idleBed(n int) bedOptions {
	return bedOptions{
		nodes: 1, worker: load.Config{Kind: load.Fermata, Slots: defaultSlots, Classes: []int{n}},
	}
}

func idleFermata(ctx context.Context, r *runner, n int, span time.Duration) (Sample, error) {
	b, err := r.newBed(ctx, idleBed(n))
	if err != nil {
		return nil, err
	}
	defer b.close()
	if _, err := registerAhead(ctx, b, "default", n, 0); err != nil {
		return nil, err
	}
	return b.rest(ctx, r, span)
}

// idleQueues spreads the jobs over queues.
func idleQueues(ctx context.Context, r *runner, n, queues int, span time.Duration) (Sample, error) {
	b, err := r.newBed(ctx, idleBed(n))
	if err != nil {
		return nil, err
	}
	defer b.close()
	day := time.Now().Add(24 * time.Hour)
	err = b.cluster.Register(ctx, 0, n, 4, func(i int) *client.Job {
		j := onceJob(0, i, day.Add(time.Duration(i)*time.Millisecond))
		j.Queue = fmt.Sprint("queue-", i%queues)
		return j
	})
	if err != nil {
		return nil, err
	}
	return b.rest(ctx, r, span)
}

// idleRedis has nothing connected.
func idleRedis(ctx context.Context, r *runner, span time.Duration) (Sample, error) {
	b, err := r.newBed(ctx, bedOptions{})
	if err != nil {
		return nil, err
	}
	defer b.close()
	return b.rest(ctx, r, span)
}

func idleAsynq(ctx context.Context, r *runner, n, servers int, span time.Duration) (Sample, error) {
	b, err := r.newBed(ctx, bedOptions{worker: load.Config{
		Kind: load.Asynq, Slots: 64, Servers: servers, Queues: []string{"default"}, Classes: []int{n},
	}})
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := scheduleAsynq(ctx, b, n); err != nil {
		return nil, err
	}
	return b.rest(ctx, r, span)
}

// rest connects the worker, if there is one, and measures a span in which nothing is due.
func (b *bed) rest(ctx context.Context, r *runner, span time.Duration) (Sample, error) {
	if b.worker != nil {
		if err := b.worker.Go(); err != nil {
			return nil, err
		}
	}
	if err := sleepUntil(ctx, time.Now().Add(settleFor)); err != nil {
		return nil, err
	}
	before, err := b.redis.Commands(ctx)
	if err != nil {
		return nil, err
	}
	p, err := r.startProfile(ctx, b)
	if err != nil {
		return nil, err
	}
	m := b.meter()
	if err := sleepUntil(ctx, m.start.Add(span)); err != nil {
		return nil, err
	}
	s := m.stop()
	if err := p.end(ctx, int(span.Seconds())); err != nil {
		return nil, err
	}
	after, err := b.redis.Commands(ctx)
	if err != nil {
		return nil, err
	}
	calls := callsBetween(before, after)
	sample := Sample{
		"redis": 100 * s.share(partRedis), "worker": 100 * s.share(partWorker),
		"scripts": float64(calls["evalsha"]+calls["eval"]) / s.took.Seconds(),
	}
	for _, n := range calls {
		sample["calls"] += float64(n) / s.took.Seconds()
	}
	sample["both"] = sample["redis"]
	if b.cluster != nil {
		sample["scheduler"] = 100 * s.share(partScheduler)
		sample["both"] += sample["scheduler"]
	}
	sample[others.Key] = s.shareOfOthers()
	return sample, b.alive()
}

func callsBetween(before, after map[string]redisd.Command) map[string]int64 {
	out := map[string]int64{}
	for name, c := range after {
		out[name] = c.Calls - before[name].Calls
	}
	return out
}
