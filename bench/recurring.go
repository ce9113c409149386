package main

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/bench/internal/load"
	"github.com/fermata-io/fermata/bench/internal/rawredis"
	"github.com/fermata-io/fermata/bench/internal/record"
	"github.com/fermata-io/fermata/client"
)

// recurringEvery is the interval of recurring jobs: long enough for each to run once.
const recurringEvery = time.Hour

// recurring measures the same as drain for jobs with an interval of an hour, which
// settling reschedules: a cycle is lease, handler and the next due time stored. The
// first due times lie in two seconds that end before the clock begins. asynq has no
// recurring jobs (its scheduler enqueues one task a tick, which is then one more call),
// so its figure is that of its one-time tasks.
var recurring = Scenario{
	Name: "recurring", Form: 1,
	Title: "A backlog of recurring jobs",
	Text: "Jobs with an interval of an hour, all due before the worker connects, at random nanoseconds; each settlement " +
		"stores the next due time. asynq's tasks run once: it has no recurring jobs that are rescheduled. Raw Redis leases " +
		"and reschedules.",
	Metrics: drainMetrics,
	Cases: func(p Params) []Case {
		n := p.jobs(200_000, 30_000)
		of := func(l backlog) func(context.Context, *runner) (Sample, error) {
			l.n, l.recurring = n, true
			return func(ctx context.Context, r *runner) (Sample, error) { return backlogFermata(ctx, r, l) }
		}
		asynq := func(servers int) func(context.Context, *runner) (Sample, error) {
			return func(ctx context.Context, r *runner) (Sample, error) {
				return backlogAsynq(ctx, r, backlog{n: n / 2, slots: 64, servers: servers})
			}
		}
		return []Case{
			{Peer: peerFermata, Setting: defaultSetting, Run: of(backlog{slots: defaultSlots})},
			{Peer: peerFermata, Setting: "500 slots", Run: of(backlog{slots: 500})},
			{Peer: peerFermata, Setting: "500 slots, no history", Once: true, Run: of(backlog{slots: 500, noHistory: true})},
			{Peer: peerAsynq, Setting: oneServerName, Run: asynq(1)},
			{Peer: peerAsynq, Setting: fourServersName, Run: asynq(4)},
			{Peer: peerRaw, Setting: rawRescheduleName, Run: func(ctx context.Context, r *runner) (Sample, error) {
				return drainRaw(ctx, r, n, rawredis.Reschedule, false)
			}},
		}
	},
	Targets: func(r Results) []Target {
		share := 100 * r.Of(peerFermata, defaultSetting, "rate") / r.Best(peerRaw, "rate")
		return append(r.rateTargets("recurring jobs, defaults", 5, 7),
			Target{Text: "recurring jobs, defaults, share of raw Redis", Value: share, Required: 50, Aimed: 60, Unit: "%"})
	},
	Ratios: func(r Results) []Ratio {
		return append(r.rateRatios("recurring jobs"), r.cpuRatio("recurring jobs"))
	},
}

// registerRecurring registers the jobs and returns when all of them are due.
func (l backlog) registerRecurring(ctx context.Context, b *bed, begin beginFunc) (time.Time, error) {
	first := begin(l.n)
	const over = 2 * time.Second
	err := b.cluster.Register(ctx, 0, l.n, 4, func(i int) *client.Job {
		s := client.Every(recurringEvery)
		s.StartTime = timestamppb.New(first.Add(rand.N(over)))
		payload := record.Payload(0, i, time.Time{}, payloadSize)
		return l.withHistory(&client.Job{Handler: load.Handler, Payload: payload, Schedule: s})
	})
	if err == nil && time.Now().After(first) {
		err = errLate
	}
	return first.Add(over), err
}
