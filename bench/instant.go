package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/hibiken/asynq"

	"github.com/fermata-io/fermata/bench/internal/asynqs"
	"github.com/fermata-io/fermata/bench/internal/fermata"
	"github.com/fermata-io/fermata/bench/internal/load"
	"github.com/fermata-io/fermata/bench/internal/record"
	"github.com/fermata-io/fermata/client"
)

// Classes of jobs in the scenario instant.
const (
	classCrowd = 0 // all at once, queue "default"
	classProbe = 1 // one every so often, queue "side"
)

const sideQueue = "side"

// instant measures what a crowd of jobs does that are due together, and what it does to
// others. 20,000 jobs are due at one instant that is no whole millisecond; a probe, a job of a second queue of
// the same worker that is due at once, is registered every 100 ms from a second before
// until two seconds after. Then a million jobs are due at random nanoseconds of one
// second, with jobs of the second queue scheduled every 10 ms until the crowd is done;
// /healthz is asked every 100 ms; leases and locks lost are read from /metrics. Disorder is
// how much later due a job of the same shard had already started when a job started.
var instant = Scenario{
	Name: "instant", Form: 1, MaxRounds: 2,
	Title: "Many jobs due at once",
	Text: "20,000 jobs at one instant, or a million in one second, with jobs of a second queue of the same worker " +
		"beside them (side). The instant is no whole millisecond; asynq's due times are whole seconds. Early: all starts " +
		"before the due time. Disorder: how much later due a job was that had started before, in the same shard. Lost: " +
		"leases, locks and conflicts from /metrics.",
	Metrics: []Metric{
		{"last", "last start s", 3}, {"rate", "jobs/s", 0}, {"side_p50", "side p50 ms", 1}, {"side_p99", "side p99 ms", 1},
		{"side_max", "side max ms", 1}, {"early", "early", 0},
		{"disorder_p99", "disorder p99 ms", 0}, {"disorder_max", "disorder max ms", 0},
		{"health", "healthz max ms", 1}, {"lost", "lost", 0},
	},
	Cases: func(p Params) []Case {
		n := p.jobs(1_000_000, 0)
		const crowd = 20_000
		cases := []Case{
			{Peer: peerFermata, Setting: oneInstant(slotsName(defaultSlots)), Run: timed(instantFermata, crowd, defaultSlots)},
			{Peer: peerAsynq, Setting: oneInstant(oneServerName + tenMS), Run: timed(instantAsynqWith(1), crowd, 64)},
			{Peer: peerAsynq, Setting: oneInstant(fourServersName + tenMS), Run: timed(instantAsynqWith(4), crowd, 64)},
		}
		if !p.Quick {
			cases = append(cases,
				Case{Peer: peerFermata, Setting: oneInstant("500 slots"), Run: timed(instantFermata, crowd, 500)},
				Case{Peer: peerFermata, Setting: bigCrowd, Once: true, Run: timed(crowdFermata, n, 500)})
		}
		return cases
	},
	Targets: func(r Results) []Target {
		one := oneInstant(defaultSetting)
		crowd := func(key string) float64 { return r.Of(peerFermata, bigCrowd, key) }
		return []Target{
			{Text: "20,000 at one instant, defaults: last start", Value: r.Of(peerFermata, one, "last"),
				Required: .5, Aimed: none, AtMost: true, Unit: "s"},
			{Text: "20,000 at one instant, defaults: probe lag p99", Value: r.Of(peerFermata, one, "side_p99"),
				Required: 20, Aimed: none, AtMost: true, Unit: "ms"},
			{Text: bigCrowd + ": lag p99 of the second queue", Value: crowd("side_p99"),
				Required: 50, Aimed: none, AtMost: true, Unit: "ms"},
			{Text: bigCrowd + ": leases and locks lost", Value: crowd("lost"), Required: 0, Aimed: none, AtMost: true},
			{Text: bigCrowd + ": early starts", Value: crowd("early"), Required: 0, Aimed: none, AtMost: true},
		}
	},
	Ratios: func(r Results) []Ratio {
		own := r.Of(peerFermata, oneInstant(defaultSetting), "last")
		return []Ratio{{
			Text: "20,000 jobs at one instant: time until the last start, defaults", Asynq: r.Least(peerAsynq, "last") / own,
			OneServer: r.LeastOf(peerAsynq, "last", oneServer) / own, Raw: none,
		}}
	},
}

// oneInstant is a setting in which 20,000 jobs are due together.
func oneInstant(setting string) string { return "20,000 at one instant, " + setting }

// timed is a case's function that measures n jobs and so many slots on time.
func timed(
	f func(context.Context, *runner, int, int, beginFunc) (Sample, error), n, slots int,
) func(context.Context, *runner) (Sample, error) {
	return func(ctx context.Context, r *runner) (Sample, error) {
		return onTime(func(begin beginFunc) (Sample, error) { return f(ctx, r, n, slots, begin) })
	}
}

const bigCrowd = "all of a second, 500 slots"

const (
	probeEvery  = 100 * time.Millisecond
	probeBefore = time.Second
	probeAfter  = 2 * time.Second
	probes      = int((probeBefore + probeAfter) / probeEvery)
)

// odd makes an instant one that is no whole millisecond, as those of users are.
const odd = 456_789 * time.Nanosecond

// nextSecond is a whole second, not before an instant.
func nextSecond(t time.Time) time.Time {
	return t.Add(time.Second - time.Nanosecond).Truncate(time.Second)
}

func instantFermata(ctx context.Context, r *runner, n, slots int, begin beginFunc) (Sample, error) {
	b, err := r.newBed(ctx, bedOptions{nodes: 1, worker: load.Config{
		Kind: load.Fermata, Slots: slots, Queues: []string{"default", sideQueue}, Classes: []int{n, probes},
	}})
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := b.connect(ctx, 1); err != nil {
		return nil, err
	}
	at := nextSecond(begin(n)).Add(odd)
	newJob := func(i int) *client.Job { return onceJob(classCrowd, i, at) }
	if err := b.cluster.Register(ctx, classCrowd, n, 4, newJob); err != nil {
		return nil, err
	}
	c, err := b.cluster.Client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	err = probe(ctx, at, func(i int) error {
		_, err := c.CreateJob(ctx, record.ID(classProbe, i), sideJob(i, time.Now()))
		return err
	})
	if err != nil {
		return nil, err
	}
	return b.instant(ctx, n, at, func(ctx context.Context) (int, error) {
		return fermata.Open(ctx, time.Now().Add(time.Hour), b.redisClients()...)
	})
}

// sideJob is the i-th job of the second queue.
func sideJob(i int, due time.Time) *client.Job {
	j := onceJob(classProbe, i, due)
	j.Queue = sideQueue
	return j
}

// instantAsynqWith measures so many servers.
func instantAsynqWith(servers int) func(context.Context, *runner, int, int, beginFunc) (Sample, error) {
	return func(ctx context.Context, r *runner, n, slots int, begin beginFunc) (Sample, error) {
		return instantAsynq(ctx, r, n, slots, servers, begin)
	}
}

func instantAsynq(ctx context.Context, r *runner, n, slots, servers int, begin beginFunc) (Sample, error) {
	b, err := r.newBed(ctx, bedOptions{worker: load.Config{
		Kind: load.Asynq, Slots: slots, Servers: servers, PollMS: 10,
		Queues: []string{"default", sideQueue}, Classes: []int{n, probes},
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
	at := nextSecond(begin(n)).Add(odd)
	err = c.Enqueue(ctx, n, 64, func(i int) ([]byte, []asynq.Option) {
		return record.Payload(classCrowd, i, at, payloadSize), []asynq.Option{asynq.ProcessAt(at)}
	})
	if err != nil {
		return nil, err
	}
	err = probe(ctx, at, func(i int) error {
		return c.One(ctx, record.Payload(classProbe, i, time.Now(), payloadSize), asynq.Queue(sideQueue))
	})
	if err != nil {
		return nil, err
	}
	return b.instant(ctx, n, at, func(ctx context.Context) (int, error) {
		return asynqs.Open(ctx, b.redis.Client, "default", sideQueue)
	})
}

// probe submits jobs at their times around an instant.
func probe(ctx context.Context, at time.Time, submit func(i int) error) error {
	begin := at.Add(-probeBefore)
	if time.Now().After(begin) {
		return errLate
	}
	for i := range probes {
		if err := sleepUntil(ctx, begin.Add(time.Duration(i)*probeEvery+probeEvery/2)); err != nil {
			return err
		}
		if err := submit(i); err != nil {
			return err
		}
	}
	return nil
}

// instant waits for the end and sums up.
func (b *bed) instant(ctx context.Context, n int, at time.Time,
	open func(context.Context) (int, error)) (Sample, error) {
	if err := b.waitExecuted(ctx, n+probes); err != nil {
		return nil, err
	}
	if err := b.waitSettled(ctx, open); err != nil {
		return nil, err
	}
	reports, err := b.verify(1, 0)
	if err != nil {
		return nil, err
	}
	crowd, side := reports[classCrowd], reports[classProbe]
	last := crowd.LastStart.Sub(at).Seconds()
	return Sample{
		"last": last, "rate": float64(n) / last, "early": float64(crowd.Early + side.Early),
		"side_p50": side.LagMS.P50, "side_p99": side.LagMS.P99, "side_max": side.LagMS.Max,
	}, nil
}

const sideEvery = 10 * time.Millisecond

// crowdFermata has n jobs due within one second.
func crowdFermata(ctx context.Context, r *runner, n, slots int, begin beginFunc) (Sample, error) {
	const speed = 30_000 // jobs drained a second: how long there are jobs in the second queue
	beside := n * int(time.Second/sideEvery) / speed
	b, err := r.newBed(ctx, bedOptions{nodes: 1, worker: load.Config{
		Kind: load.Fermata, Slots: slots, Queues: []string{"default", sideQueue}, Classes: []int{n, beside},
	}})
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := b.connect(ctx, 1); err != nil {
		return nil, err
	}
	at := nextSecond(begin(n + beside))
	due := func() time.Time { return at.Add(rand.N(time.Second)) }
	newJob := func(i int) *client.Job { return onceJob(classCrowd, i, due()) }
	if err := b.cluster.Register(ctx, classCrowd, n, 4, newJob); err != nil {
		return nil, err
	}
	err = b.cluster.Register(ctx, classProbe, beside, 4, func(i int) *client.Job {
		return sideJob(i, at.Add(time.Duration(i)*sideEvery))
	})
	if err != nil {
		return nil, err
	}
	if time.Now().After(at) {
		return nil, errLate
	}
	before, err := b.cluster.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	if err := sleepUntil(ctx, at); err != nil {
		return nil, err
	}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	health := make(chan time.Duration, 1)
	go func() { health <- slowestAnswer(watch, "http://"+b.cluster.Nodes[0].HTTP+"/healthz") }()
	if err := b.waitExecuted(ctx, n+beside); err != nil {
		return nil, err
	}
	stop()
	slow := <-health
	err = b.waitSettled(ctx, func(ctx context.Context) (int, error) {
		return fermata.Open(ctx, time.Now().Add(time.Hour), b.redisClients()...)
	})
	if err != nil {
		return nil, err
	}
	reports, err := b.verify(1, b.cluster.Shards)
	if err != nil {
		return nil, err
	}
	after, err := b.cluster.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	crowd := reports[classCrowd]
	last := crowd.LastStart.Sub(at).Seconds()
	side := reports[classProbe].LagMS
	return Sample{
		"last": last, "rate": float64(n) / last, "early": float64(crowd.Early + reports[classProbe].Early),
		"side_p50": side.P50, "side_p99": side.P99, "side_max": side.Max, "health": float64(slow.Microseconds()) / 1e3,
		"disorder_p99": crowd.DisorderMS.P99, "disorder_max": crowd.DisorderMS.Max,
		"lost": losses(after) - losses(before),
	}, nil
}

// losses adds up what an overloaded node loses.
func losses(m fermata.Metrics) float64 {
	total := 0.0
	for _, name := range []string{
		"fermata_shard_lock_losses_total", "fermata_leases_expired_total", "fermata_dispatch_leases_lost_total",
		"fermata_dispatch_store_failures_total",
	} {
		total += m.Sum(name)
	}
	return total
}

// slowestAnswer asks a URL every 100 ms until ctx ends. No answer counts as one after
// a minute.
func slowestAnswer(ctx context.Context, url string) (slowest time.Duration) {
	for ctx.Err() == nil {
		start := time.Now()
		r, err := http.Get(url)
		took := time.Since(start)
		if err != nil {
			took = time.Minute
		} else {
			_ = r.Body.Close()
		}
		slowest = max(slowest, took)
		_ = sleepUntil(ctx, start.Add(100*time.Millisecond)) // ends with ctx
	}
	return slowest
}
