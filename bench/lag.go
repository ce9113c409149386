package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/bench/internal/asynqs"
	"github.com/fermata-io/fermata/bench/internal/fermata"
	"github.com/fermata-io/fermata/bench/internal/load"
	"github.com/fermata-io/fermata/bench/internal/record"
	"github.com/fermata-io/fermata/client"
)

// lag measures jobs that are due at a steady rate, at random nanoseconds: how far from their due time they start, and
// the processor time that a job takes of Redis, nodes and worker. One-time jobs are registered ahead, with the worker
// connected; they are deleted a second after they finished, within the measurement. Recurring jobs have an interval
// and a phase each. The lag is the entry of the handler, by the clock of the worker's process, minus the exact due
// time; below zero is early, and counted, be it by a nanosecond.
var lag = Scenario{
	Name: "lag", Form: 1, MaxRounds: 2,
	Title: "Steady rates: lag and processor time",
	Text: "Jobs due at random nanoseconds at a steady rate, with 16 slots a worker (the default) unless another number " +
		"is given. One-time jobs are registered ahead and deleted 1 second after they finished, within the measurement. " +
		"Recurring jobs have an interval of 5 seconds and a phase each; each run counts. Lag is handler entry minus due " +
		"time, signed, in ms: below zero a job started early. \"early\" counts all starts before the due time. Processor " +
		"time a job is that of the whole span, with what the parts take while nothing is due. \"a worker each\": each node " +
		"has a worker; \"1 worker\": one node has it, and the others lease by its permits. asynq's tasks run once at these " +
		"times. Its due times are whole seconds. \"10 ms\": its TaskCheckInterval and DelayedTaskCheckInterval.",
	Metrics: []Metric{
		{"min", "min ms", 2}, {"p50", "p50 ms", 2}, {"p99", "p99 ms", 2}, {"max", "max ms", 1}, {"early", "early", 0},
		{"cpu_redis", "Redis us/job", 0}, {"cpu_scheduler", "nodes us/job", 0},
		{"cpu_worker", "worker us/job", 0}, {"cpu_total", "total us/job", 0},
	},
	Cases:   lagCases,
	Targets: lagTargets,
	Ratios:  lagRatios,
}

// Settings of lag.
const (
	busyPace   = "10,000 one-time jobs/s, 500 slots"
	eachWorker = ", 3 nodes, a worker each"
	oneWorker  = ", 3 nodes, 1 worker"
	tenMS      = ", 10 ms"
)

// steadyRates are the rates at which processor time is compared.
var steadyRates = []int{1_000, 2_000}

func onceAt(rate int) string { return fmt.Sprintf("%s one-time jobs/s", thousands(float64(rate), 0)) }
func recurringAt(rate int) string {
	return fmt.Sprintf("%s recurring jobs/s", thousands(float64(rate), 0))
}
func tasksAt(rate int, servers string) string {
	return fmt.Sprintf("%s tasks/s, %s", thousands(float64(rate), 0), servers)
}

func lagCases(p Params) []Case {
	const every = 5 * time.Second // the shortest interval that a job may have
	long, short, million := 2*every, 6*time.Second, 500_000
	if p.Quick {
		long, short = every, 2*time.Second
	}
	var out []Case
	fermata := func(name string, l pace) {
		measure := lagFermata
		if l.every > 0 {
			measure = lagRecurring
		}
		out = append(out, Case{
			Peer: peerFermata, Setting: name, Once: l.ahead > 0,
			Run: func(ctx context.Context, r *runner) (Sample, error) {
				return onTime(func(begin beginFunc) (Sample, error) { return measure(ctx, r, l, begin) })
			},
		})
	}
	asynq := func(name string, l pace) {
		out = append(out, Case{Peer: peerAsynq, Setting: name, Run: func(ctx context.Context, r *runner) (Sample, error) {
			return onTime(func(begin beginFunc) (Sample, error) { return lagAsynq(ctx, r, l, begin) })
		}})
	}
	rates := steadyRates
	if p.Quick {
		rates = steadyRates[:1]
	}
	for _, rate := range rates {
		fermata(onceAt(rate), pace{rate: rate, over: long, slots: defaultSlots})
		asynq(tasksAt(rate, oneServerName+tenMS), pace{rate: rate, over: long, slots: 64, poll: 10})
		asynq(tasksAt(rate, fourServersName+tenMS), pace{rate: rate, over: long, slots: 64, poll: 10, workers: 4})
		fermata(recurringAt(rate), pace{rate: rate, over: long, slots: defaultSlots, every: every})
		each := pace{rate: rate, over: long, slots: defaultSlots, every: every, nodes: 3, workers: 3}
		fermata(recurringAt(rate)+eachWorker, each)
		fermata(recurringAt(rate)+oneWorker, pace{rate: rate, over: long, slots: 3 * defaultSlots, every: every, nodes: 3})
	}
	fermata(busyPace, pace{rate: 10_000, over: short, slots: 500})
	asynq(tasksAt(10_000, fourServersName+tenMS), pace{rate: 10_000, over: short, slots: 64, poll: 10, workers: 4})
	if !p.Quick {
		fermata(fmt.Sprintf("%s, %s others ahead", onceAt(1_000), thousands(float64(million), 0)),
			pace{rate: 1_000, over: long, slots: defaultSlots, ahead: million})
		asynq(tasksAt(1_000, oneServerName+", default polls"), pace{rate: 1_000, over: long, slots: 64})
	}
	return out
}

func lagTargets(r Results) (out []Target) {
	for _, row := range r.Rows {
		if row.Peer != peerFermata {
			continue
		}
		out = append(out, Target{Text: row.Setting + ": early starts", Value: row.Worst("early"),
			Required: 0, Aimed: none, AtMost: true})
		if row.Setting == busyPace {
			out = append(out, Target{Text: row.Setting + ": lag p99", Value: row.Median("p99"),
				Required: 15, Aimed: none, AtMost: true, Unit: "ms"})
			continue
		}
		out = append(out,
			Target{Text: row.Setting + ": lag p50", Value: row.Median("p50"),
				Required: 1.5, Aimed: .5, AtMost: true, Unit: "ms"},
			Target{Text: row.Setting + ": lag p99", Value: row.Median("p99"), Required: 3, Aimed: 2, AtMost: true, Unit: "ms"})
	}
	for _, rate := range steadyRates {
		one := r.Of(peerFermata, recurringAt(rate), "cpu_total")
		out = append(out,
			Target{Text: onceAt(rate) + ": processor time a job, against asynq's best",
				Value:    r.Of(peerFermata, onceAt(rate), "cpu_total") / r.cheapestTask(rate, anySetting),
				Required: 1, Aimed: .6, AtMost: true, Unit: "x"},
			Target{Text: recurringAt(rate) + ": processor time a job, against asynq's best",
				Value:    one / r.cheapestTask(rate, anySetting),
				Required: 1, Aimed: .6, AtMost: true, Unit: "x"},
			Target{Text: recurringAt(rate) + eachWorker + ": processor time a job, against one node",
				Value:    r.Of(peerFermata, recurringAt(rate)+eachWorker, "cpu_total") / one,
				Required: 1.3, Aimed: none, AtMost: true, Unit: "x"},
			Target{Text: recurringAt(rate) + oneWorker + ": processor time a job, against one node",
				Value:    r.Of(peerFermata, recurringAt(rate)+oneWorker, "cpu_total") / one,
				Required: 1.3, Aimed: none, AtMost: true, Unit: "x"})
	}
	return out
}

func lagRatios(r Results) (out []Ratio) {
	for _, rate := range steadyRates {
		settings := []string{
			onceAt(rate), recurringAt(rate), recurringAt(rate) + eachWorker, recurringAt(rate) + oneWorker,
		}
		for _, setting := range settings {
			own := r.Of(peerFermata, setting, "cpu_total")
			out = append(out, Ratio{
				Text: setting + ": processor time a job", Asynq: r.cheapestTask(rate, anySetting) / own,
				OneServer: r.cheapestTask(rate, oneServer) / own, Raw: none,
			})
		}
	}
	return out
}

func anySetting(string) bool { return true }

// cheapestTask is the least processor time of an asynq task at a rate.
func (r Results) cheapestTask(rate int, ok func(string) bool) float64 {
	return r.LeastOf(peerAsynq, "cpu_total", func(setting string) bool {
		return ok(setting) && strings.HasPrefix(setting, tasksAt(rate, "")) && strings.HasSuffix(setting, tenMS)
	})
}

// pace is a number of jobs a second for a while.
type pace struct {
	rate, slots int
	over        time.Duration
	poll        int // of asynq, in ms
	workers     int // or servers of asynq; default 1
	// What follows is of Fermata.
	ahead int           // other jobs, due in a day
	nodes int           // default 1
	every time.Duration // the interval of recurring jobs; 0: they are one-time
}

// runs is how many runs, or one-time jobs, are due in the span.
func (l pace) runs() int { return l.rate * int(l.over/time.Second) }

// dues are random instants, one for each job, over the span from a first one.
func dues(n int, first time.Time, over time.Duration) []time.Time {
	out := make([]time.Time, n)
	for i := range out {
		out[i] = first.Add(rand.N(over))
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
	n := l.runs()
	b, err := r.newBed(ctx, bedOptions{
		nodes: 1, worker: load.Config{Kind: load.Fermata, Slots: l.slots, Classes: []int{n}},
	})
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := b.connect(ctx, 1); err != nil {
		return nil, err
	}
	if err := b.registerAhead(ctx, l.ahead); err != nil {
		return nil, err
	}
	first := begin(n)
	at := dues(n, first, l.over)
	err = b.cluster.Register(ctx, 0, n, 4, func(i int) *client.Job {
		j := onceJob(0, i, at[i])
		if !r.p.Quick {
			j.Retention = durationpb.New(keptAtSteadyRates)
		}
		return j
	})
	if err != nil {
		return nil, err
	}
	return b.lag(ctx, r, l, first, func(ctx context.Context) error {
		err := b.waitSettled(ctx, func(ctx context.Context) (int, error) {
			return fermata.Open(ctx, time.Now().Add(time.Hour), b.redisClients()...)
		})
		if err == nil && !r.p.Quick { // deletion takes a while to begin
			_, err = b.waitDeleted(ctx, keptAtSteadyRates)
		}
		return err
	})
}

// keptAtSteadyRates is how long finished jobs are kept: deletion goes on beside the runs, as it does in the long term.
const keptAtSteadyRates = time.Second

// lagRecurring measures jobs that run several times in the span.
func lagRecurring(ctx context.Context, r *runner, l pace, begin beginFunc) (Sample, error) {
	periods := int(l.over / l.every)
	n, workers := l.runs()/periods, max(1, l.workers)
	b, err := r.newBed(ctx, bedOptions{nodes: max(1, l.nodes), worker: load.Config{
		Kind: load.Fermata, Slots: l.slots, Servers: workers, EachAtOne: true,
		Classes: []int{n}, Every: l.every, Periods: periods,
	}})
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := b.connect(ctx, workers); err != nil {
		return nil, err
	}
	first := begin(n)
	at := dues(n, first, l.every)
	err = b.cluster.Register(ctx, 0, n, 4, func(i int) *client.Job {
		s := client.Every(l.every)
		s.StartTime = timestamppb.New(at[i])
		return &client.Job{Handler: load.Handler, Payload: record.Payload(0, i, at[i], payloadSize), Schedule: s}
	})
	if err != nil {
		return nil, err
	}
	return b.lag(ctx, r, l, first, func(ctx context.Context) error {
		nodes, err := b.nodesWithWorkers(ctx)
		if err == nil && nodes != workers {
			err = fmt.Errorf("%d workers are at %d nodes", workers, nodes)
		}
		return err
	})
}

// registerAhead registers jobs of class 1 that are due in a day.
func (b *bed) registerAhead(ctx context.Context, n int) error {
	day := time.Now().Add(24 * time.Hour)
	return b.cluster.Register(ctx, 1, n, 4, func(i int) *client.Job { return onceJob(1, i, day.Add(rand.N(time.Hour))) })
}

func lagAsynq(ctx context.Context, r *runner, l pace, begin beginFunc) (Sample, error) {
	n := l.runs()
	b, err := r.newBed(ctx, bedOptions{worker: load.Config{
		Kind: load.Asynq, Slots: l.slots, Servers: l.workers, PollMS: l.poll, Queues: []string{"default"}, Classes: []int{n},
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
	at := dues(n, first, l.over)
	err = c.Enqueue(ctx, n, 64, func(i int) ([]byte, []asynq.Option) {
		return record.Payload(0, i, at[i], payloadSize), []asynq.Option{asynq.ProcessAt(at[i])}
	})
	if err != nil {
		return nil, err
	}
	return b.lag(ctx, r, l, first, func(ctx context.Context) error {
		return b.waitSettled(ctx, func(ctx context.Context) (int, error) {
			return asynqs.Open(ctx, b.redis.Client, "default")
		})
	})
}

// lag measures jobs that are registered already and due from first on, until end returns.
func (b *bed) lag(ctx context.Context, r *runner, l pace, first time.Time,
	end func(context.Context) error) (Sample, error) {
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
	if l.every > 0 { // they go on
		return b.lagUntil(ctx, l, m.stop(), p, end)
	}
	if err := b.waitExecuted(ctx, l.runs()); err != nil {
		return nil, err
	}
	if err := end(ctx); err != nil {
		return nil, err
	}
	return b.lagUntil(ctx, l, m.stop(), p, func(context.Context) error { return nil })
}

// lagUntil sums up what was measured, after the last runs and end.
func (b *bed) lagUntil(ctx context.Context, l pace, measured span,
	p *profile, end func(context.Context) error) (Sample, error) {
	if err := p.end(ctx, l.runs()); err != nil {
		return nil, err
	}
	if err := b.waitExecuted(ctx, l.runs()); err != nil {
		return nil, err
	}
	if err := end(ctx); err != nil {
		return nil, err
	}
	reports, err := b.verify(1, 0)
	if err != nil {
		return nil, err
	}
	sample := Sample{}
	measured.perJob(l.runs(), sample)
	q := reports[0].LagMS
	sample["min"], sample["p50"], sample["p99"], sample["max"] = q.Min, q.P50, q.P99, q.Max
	sample["early"] = float64(reports[0].Early)
	return sample, nil
}

// connect makes the workers connect to the cluster and waits until they have.
func (b *bed) connect(ctx context.Context, n int) error {
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
		if err != nil || len(workers) >= n {
			return err
		}
		if err := b.alive(); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// nodesWithWorkers counts the nodes that workers are connected to.
func (b *bed) nodesWithWorkers(ctx context.Context) (int, error) {
	c, err := b.cluster.Client()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	workers, err := c.Admin().Workers(ctx)
	nodes := map[string]bool{}
	for _, w := range workers {
		nodes[w.GetNode()] = true
	}
	return len(nodes), err
}
