package main

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/bench/internal/load"
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
	Name:  "recurring",
	Title: "A backlog of recurring jobs",
	Text: "Jobs with an interval of an hour, all due before the worker connects; each settlement stores the next due time. " +
		"asynq's tasks run once: it has no recurring jobs that are rescheduled.",
	Metrics: drainMetrics,
	Cases: func(p Params) []Case {
		n := p.jobs(200_000, 30_000)
		return []Case{
			{peerFermata, "500 slots", func(ctx context.Context, r *runner) (Sample, error) {
				return backlogFermata(ctx, r, backlog{n: n, slots: 500, recurring: true})
			}},
			{peerFermata, "2000 slots", func(ctx context.Context, r *runner) (Sample, error) {
				return backlogFermata(ctx, r, backlog{n: n, slots: 2000, recurring: true})
			}},
			{peerFermata, "2000 slots, no history", func(ctx context.Context, r *runner) (Sample, error) {
				return backlogFermata(ctx, r, backlog{n: n, slots: 2000, recurring: true, noHistory: true})
			}},
			{peerAsynq, "64", func(ctx context.Context, r *runner) (Sample, error) {
				return backlogAsynq(ctx, r, backlog{n: n / 2, slots: 64})
			}},
			{peerAsynq, "64 x 4 servers", func(ctx context.Context, r *runner) (Sample, error) {
				return backlogAsynq(ctx, r, backlog{n: n / 2, slots: 64, servers: 4})
			}},
			{peerRaw, "batches of 100", func(ctx context.Context, r *runner) (Sample, error) { return cycleRaw(ctx, r, n, false) }},
		}
	},
	Targets: func(r Results) []Target {
		best := r.Best(peerFermata, "rate")
		return []Target{
			{Text: "recurring jobs, against asynq's best", Value: best / r.Best(peerAsynq, "rate"), Required: 5, Aimed: 8, Unit: "x"},
			{Text: "recurring jobs, against asynq's best with one server", Value: best / r.BestOf(peerAsynq, "rate", oneServer), Required: 5, Aimed: 8, Unit: "x"},
			{Text: "recurring jobs, share of raw Redis", Value: 100 * best / r.Best(peerRaw, "rate"), Required: 45, Aimed: 70, Unit: "%"},
		}
	},
}

// registerRecurring registers the jobs and returns when all of them are due.
func (l backlog) registerRecurring(ctx context.Context, b *bed, begin beginFunc) (time.Time, error) {
	first := begin(l.n)
	const over = 2 * time.Second
	err := b.cluster.Register(ctx, 0, l.n, 4, func(i int) *client.Job {
		s := client.Every(recurringEvery)
		s.StartTime = timestamppb.New(first.Add(rand.N(over)))
		return l.kept(&client.Job{Handler: load.Handler, Payload: record.Payload(0, i, time.Time{}, payloadSize), Schedule: s})
	})
	if err == nil && time.Now().After(first) {
		err = errLate
	}
	return first.Add(over), err
}
