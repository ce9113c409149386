package main

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// retryAtOnce tries again without a wait.
var retryAtOnce = &client.RetryPolicy{
	Strategy: fermatav1.RetryPolicy_STRATEGY_FIXED, BaseDelay: durationpb.New(time.Millisecond), MaxAttempts: 3,
	Jitter: &fermatav1.Jitter{Kind: fermatav1.Jitter_KIND_NONE},
}

// retry measures how fast jobs that each fail once are drained: two leases, two executions, two settlements a
// job. Fermata waits 1 ms before the second attempt, the shortest backoff of a policy. asynq's RetryDelayFunc
// returns 0, and its two poll intervals are set to 10 ms; its other settings are defaults.
var retry = Scenario{
	Name:  "retry",
	Title: "Jobs that fail once",
	Text: "Each job's first attempt fails and is retried: at once in asynq, after 1 ms in Fermata. jobs/s counts jobs, " +
		"each of which ran twice. \"10 ms\": asynq's TaskCheckInterval and DelayedTaskCheckInterval.",
	Metrics: drainMetrics,
	Cases: func(p Params) []Case {
		n := p.jobs(20_000, 10_000)
		fermata := func(slots, n int) func(context.Context, *runner) (Sample, error) {
			return func(ctx context.Context, r *runner) (Sample, error) {
				return backlogFermata(ctx, r, backlog{n: n, slots: slots, failFirst: true})
			}
		}
		asynq := func(slots, servers, poll int) func(context.Context, *runner) (Sample, error) {
			return func(ctx context.Context, r *runner) (Sample, error) {
				return backlogAsynq(ctx, r, backlog{n: n, slots: slots, servers: servers, poll: poll, failFirst: true})
			}
		}
		cases := []Case{
			{peerFermata, "500 slots", fermata(500, n)},
			{peerFermata, "2000 slots", fermata(2000, n)},
			{peerFermata, "64 slots", fermata(64, n)},
			{peerFermata, "2000 slots, no history", func(ctx context.Context, r *runner) (Sample, error) {
				return backlogFermata(ctx, r, backlog{n: n, slots: 2000, failFirst: true, noHistory: true})
			}},
			{peerAsynq, "64, 10 ms", asynq(64, 1, 10)},
			{peerAsynq, "64 x 4 servers, 10 ms", asynq(64, 4, 10)},
		}
		if !p.Quick {
			cases = append(cases, Case{peerAsynq, "256, 10 ms", asynq(256, 1, 10)}, Case{peerAsynq, "64", asynq(64, 1, 0)})
		}
		return cases
	},
	Targets: func(r Results) []Target {
		best := r.Best(peerFermata, "rate")
		return []Target{
			{Text: "jobs that fail once, best setting, against asynq's best", Value: best / r.Best(peerAsynq, "rate"), Required: 8, Aimed: 12, Unit: "x"},
			{Text: "jobs that fail once, best setting, against asynq's best with one server", Value: best / r.BestOf(peerAsynq, "rate", oneServer), Required: 8, Aimed: 12, Unit: "x"},
		}
	},
}
