package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/fermata-io/fermata/bench/internal/asynqs"
	"github.com/fermata-io/fermata/bench/internal/fermata"
	"github.com/fermata-io/fermata/bench/internal/load"
	"github.com/fermata-io/fermata/bench/internal/record"
	"github.com/fermata-io/fermata/client"
)

// lag measures how far from their due time jobs start: one-time jobs are registered
// ahead, due at random milliseconds evenly over a span, with the worker connected. The
// lag is the entry of the handler, by the clock of the worker's process, minus the due
// time; below zero is early, and counted. CPU is that from the first due time to the
// last, as a share of one core.
var lag = Scenario{
	Name:  "lag",
	Title: "Schedule lag at a steady rate",
	Text: "One-time jobs at random milliseconds, registered ahead. Lag is handler entry minus due time, signed, in ms: below zero a job " +
		"started early. CPU is a share of one core while jobs were due. \"10 ms\": asynq's TaskCheckInterval and DelayedTaskCheckInterval.",
	Metrics: []Metric{
		{"min", "min ms", 2}, {"p50", "p50 ms", 2}, {"p99", "p99 ms", 2}, {"max", "max ms", 1}, {"early", "early", 0},
		{"redis", "Redis % of a core", 1}, {"scheduler", "scheduler %", 1}, {"worker", "worker %", 1},
	},
	Cases: func(p Params) []Case {
		long, short, million := 20*time.Second, 10*time.Second, 1_000_000
		if p.Quick {
			long, short, million = 4*time.Second, 2*time.Second, 50_000
		}
		cases := []struct {
			name string
			pace
		}{
			{"1,000 jobs/s, 64 slots", pace{rate: 1_000, over: long, slots: 64}},
			{"10,000 jobs/s, 500 slots", pace{rate: 10_000, over: short, slots: 500}},
			{fmt.Sprintf("1,000 jobs/s, 64 slots, %d others ahead", million), pace{rate: 1_000, over: long, slots: 64, ahead: million}},
		}
		var out []Case
		for _, c := range cases {
			out = append(out, Case{peerFermata, c.name, func(ctx context.Context, r *runner) (Sample, error) {
				return onTime(func(begin beginFunc) (Sample, error) { return lagFermata(ctx, r, c.pace, begin) })
			}})
		}
		for _, poll := range []int{10, 0} {
			if p.Quick && poll == 0 {
				continue // takes another 12 s, to no surprise
			}
			for _, rate := range []int{1_000, 10_000} {
				c := pace{rate: rate, over: long, slots: 64, poll: poll}
				name := "1,000 jobs/s, 64"
				if rate > 1_000 {
					c.over, c.slots, name = short, 256, "10,000 jobs/s, 256"
				}
				if poll > 0 {
					name += fmt.Sprintf(", %d ms", poll)
				}
				out = append(out, Case{peerAsynq, name, func(ctx context.Context, r *runner) (Sample, error) {
					return onTime(func(begin beginFunc) (Sample, error) { return lagAsynq(ctx, r, c, begin) })
				}})
			}
		}
		return out
	},
	Targets: func(r Results) (out []Target) {
		for _, row := range r.Rows {
			if row.Peer != peerFermata {
				continue
			}
			bound, aim := 5.0, 2.0
			if row.Setting == "10,000 jobs/s, 500 slots" {
				bound, aim = 15, none
				out = append(out, Target{Text: row.Setting + ": Redis, share of a core", Value: row.Median("redis"), Required: 70, Aimed: none, AtMost: true, Unit: "%"})
			} else {
				out = append(out, Target{Text: row.Setting + ": lag p50", Value: row.Median("p50"), Required: 1.5, Aimed: .5, AtMost: true, Unit: "ms"})
			}
			out = append(out,
				Target{Text: row.Setting + ": lag p99", Value: row.Median("p99"), Required: bound, Aimed: aim, AtMost: true, Unit: "ms"},
				Target{Text: row.Setting + ": early starts", Value: row.Worst("early"), Required: 0, Aimed: none, AtMost: true})
		}
		return out
	},
}

// pace is a number of jobs a second for a while.
type pace struct {
	rate, slots int
	over        time.Duration
	ahead       int // other jobs, due in a day
	poll        int // of asynq, in ms
}

func (l pace) jobs() int { return l.rate * int(l.over/time.Second) }

// dues are random instants over the span from a first one.
func (l pace) dues(first time.Time) []time.Time {
	out := make([]time.Time, l.jobs())
	for i := range out {
		out[i] = first.Add(rand.N(l.over))
	}
	return out
}

// beginFunc returns the earliest due time of n jobs that are registered from now on.
type beginFunc func(n int) time.Time

// errLate voids a measurement whose jobs were not all registered before they were due.
var errLate = errors.New("registration took until jobs were due")

// onTime measures with jobs that have to be registered before they are due: first as
// if that were fast, so as not to wait for long, then as if it were slow.
func onTime(measure func(beginFunc) (Sample, error)) (Sample, error) {
	for _, speed := range []int{25_000, 12_000, 5_000} { // jobs registered a second
		sample, err := measure(func(n int) time.Time {
			return time.Now().Add(2*time.Second + time.Duration(n)*time.Second/time.Duration(speed))
		})
		if !errors.Is(err, errLate) {
			return sample, err
		}
	}
	return nil, errLate
}

func lagFermata(ctx context.Context, r *runner, l pace, begin beginFunc) (Sample, error) {
	n := l.jobs()
	b, err := r.newBed(ctx, bedOptions{nodes: 1, worker: load.Config{Kind: load.Fermata, Slots: l.slots, Classes: []int{n}}})
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := b.connect(ctx); err != nil {
		return nil, err
	}
	if err := b.registerAhead(ctx, l.ahead); err != nil {
		return nil, err
	}
	first := begin(n)
	dues := l.dues(first)
	if err := b.cluster.Register(ctx, 0, n, 4, func(i int) *client.Job { return onceJob(0, i, dues[i]) }); err != nil {
		return nil, err
	}
	return b.lag(ctx, r, l, first, func(ctx context.Context) (int, error) {
		return fermata.Open(ctx, time.Now().Add(time.Hour), b.redisClients()...)
	})
}

// registerAhead registers jobs of class 1 that are due in a day.
func (b *bed) registerAhead(ctx context.Context, n int) error {
	day := time.Now().Add(24 * time.Hour)
	return b.cluster.Register(ctx, 1, n, 4, func(i int) *client.Job { return onceJob(1, i, day.Add(rand.N(time.Hour))) })
}

func lagAsynq(ctx context.Context, r *runner, l pace, begin beginFunc) (Sample, error) {
	n := l.jobs()
	b, err := r.newBed(ctx, bedOptions{worker: load.Config{
		Kind: load.Asynq, Slots: l.slots, PollMS: l.poll, Queues: []string{"default"}, Classes: []int{n},
	}})
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := b.worker.Go(); err != nil {
		return nil, err
	}
	c := asynqs.New(b.redis.Addr)
	defer c.Close()
	first := begin(n)
	dues := l.dues(first)
	err = c.Enqueue(ctx, n, 64, func(i int) ([]byte, []asynq.Option) {
		return record.Payload(0, i, dues[i], payloadSize), []asynq.Option{asynq.ProcessAt(dues[i])}
	})
	if err != nil {
		return nil, err
	}
	return b.lag(ctx, r, l, first, func(ctx context.Context) (int, error) { return asynqs.Open(ctx, b.redis.Client, "default") })
}

// lag measures jobs that are registered already and due from first on.
func (b *bed) lag(ctx context.Context, r *runner, l pace, first time.Time, open func(context.Context) (int, error)) (Sample, error) {
	if time.Now().After(first) {
		return nil, errLate
	}
	if err := sleepUntil(ctx, first); err != nil {
		return nil, err
	}
	p, err := r.startProfile(ctx, b)
	if err != nil {
		return nil, err
	}
	m := b.meter()
	if err := sleepUntil(ctx, first.Add(l.over)); err != nil {
		return nil, err
	}
	measured := m.stop()
	if err := p.end(ctx, l.jobs()); err != nil {
		return nil, err
	}
	if err := b.waitExecuted(ctx, l.jobs()); err != nil {
		return nil, err
	}
	if err := b.waitSettled(ctx, open); err != nil {
		return nil, err
	}
	reports, err := b.verify(1, 0)
	if err != nil {
		return nil, err
	}
	sample := lagSample(reports[0])
	for _, part := range []string{partRedis, partScheduler, partWorker} {
		if _, ok := measured.cpu[part]; ok {
			sample[part] = 100 * measured.share(part)
		}
	}
	return sample, nil
}

func lagSample(p record.Report) Sample {
	return Sample{"min": p.LagMS.Min, "p50": p.LagMS.P50, "p99": p.LagMS.P99, "max": p.LagMS.Max, "early": float64(p.Early)}
}

// connect makes the worker connect to the cluster and waits until it has.
func (b *bed) connect(ctx context.Context) error {
	if err := b.worker.Go(); err != nil {
		return err
	}
	c, err := b.cluster.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		workers, err := c.Admin().Workers(ctx)
		if err != nil || len(workers) > 0 {
			return err
		}
		if err := b.alive(); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}
