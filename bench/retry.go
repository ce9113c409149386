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

// retry measures how fast jobs that each fail once are drained: two leases, two executions, two settlements a job, and
// the deletion of the finished job. Fermata waits 1 ms before the second attempt, the shortest backoff of a policy.
// asynq's RetryDelayFunc returns 0, and its two poll intervals are set to 10 ms; its other settings are defaults.
var retry = Scenario{
	Name: "retry", Form: 1,
	Title: "Jobs that fail once",
	Text: "One-time jobs whose first attempt fails and is retried: at once in asynq, after 1 ms in Fermata. jobs/s " +
		"counts jobs; each job ran twice. Columns as for a backlog of one-time jobs, deletion included. \"10 ms\": asynq's " +
		"TaskCheckInterval and DelayedTaskCheckInterval.",
	Metrics: drainMetrics,
	Cases: func(p Params) []Case {
		n := p.jobs(100_000, 15_000)
		fermata := func(l backlog) func(context.Context, *runner) (Sample, error) {
			l.n, l.failFirst, l.keep = n, true, retentionOf(p.Quick)
			return func(ctx context.Context, r *runner) (Sample, error) { return backlogFermata(ctx, r, l) }
		}
		asynq := func(servers int) func(context.Context, *runner) (Sample, error) {
			return func(ctx context.Context, r *runner) (Sample, error) {
				return backlogAsynq(ctx, r, backlog{n: n, slots: 64, servers: servers, poll: 10, failFirst: true})
			}
		}
		cases := []Case{
			{Peer: peerFermata, Setting: defaultSetting, Run: fermata(backlog{slots: defaultSlots})},
			{Peer: peerAsynq, Setting: oneServerName + tenMS, Run: asynq(1)},
			{Peer: peerAsynq, Setting: fourServersName + tenMS, Run: asynq(4)},
		}
		if !p.Quick {
			cases = append(cases, Case{Peer: peerFermata, Setting: "500 slots", Run: fermata(backlog{slots: 500})})
		}
		return cases
	},
	Targets: func(r Results) []Target { return r.rateTargets("jobs that fail once, defaults", 6, 8) },
	Ratios: func(r Results) []Ratio {
		return append(r.rateRatios("jobs that fail once"), r.cpuRatio("jobs that fail once, deletion included"))
	},
}
