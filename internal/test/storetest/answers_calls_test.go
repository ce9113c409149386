package storetest_test

import (
	"context"
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/fsck"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// answerCalls takes two jobs of shard 0 through every kind of script, and limits through
// theirs. Each call builds on those before it.
func (b *answerBed) answerCalls() []answerCall {
	return append(b.jobCalls(), b.limitCalls()...)
}

func (b *answerBed) jobCalls() []answerCall {
	w, s := b.w, b.s
	ids := w.InShard(0, 3)
	d := storetest.Definition(ids[0])
	d.Retry.MaxAttempts = 1
	created, restored := w.Record(d), w.Record(storetest.Once(ids[1], time.Hour))
	var leased []job.Leased
	var settle job.Write
	return []answerCall{
		{name: "create", call: func(ctx context.Context) error {
			reply := storetest.Create(ctx, s, 0, []job.Record{created})
			if reply.Err == nil && reply.Results[0].Code != job.Created {
				return errors.New("it says that the job exists")
			}
			return reply.Err
		}},
		{name: "restore", call: func(ctx context.Context) error {
			return s.Restore(ctx, 0, []job.Restoration{{Record: restored}}).Err
		}, check: func() error {
			w.Advance(2 * time.Minute)
			return nil
		}},
		{name: "get", call: func(ctx context.Context) error {
			found, err := s.Get(ctx, []job.Key{d.Key, restored.Definition.Key})
			if err == nil && (found[0] == nil || found[1] == nil) {
				return errors.New("one is missing")
			}
			return err
		}},
		{name: "lanes", call: func(ctx context.Context) error {
			_, err := s.Lanes(ctx, []int{0})
			return err
		}},
		{name: "list", call: func(ctx context.Context) error {
			_, _, err := s.List(ctx, "ns", "", 10)
			return err
		}},
		{name: "lease", call: func(ctx context.Context) error {
			reply := s.Lease(ctx, []job.LeaseRequest{storetest.LeaseRequest(0, 1, "one")})[0]
			leased = reply.Leased
			return reply.Err
		}, check: func() error { return wantEqual("leases", len(leased), 1) }},
		{name: "renew", call: func(ctx context.Context) error {
			renewal := job.Renewal{Record: leased[0].Record, Lane: storetest.Lane(), Token: leased[0].Known.State.Token, Epoch: 1}
			reply := s.Renew(ctx, []job.RenewRequest{{Shard: 0, TTL: time.Minute, Renewals: []job.Renewal{renewal}}})[0]
			if reply.Err == nil && reply.Results[0].Code != job.Renewed {
				return errors.New("it claims that the lease is lost")
			}
			return reply.Err
		}, check: func() error {
			settle = w.Settle(leased[0], job.OutcomeFailed)
			return nil
		}},
		{name: "apply", call: func(ctx context.Context) error {
			reply := s.Apply(ctx, 0, []job.Write{settle})
			if reply.Err == nil && reply.Results[0].Code != job.Written {
				return errors.New("it says that the record has changed")
			}
			return reply.Err
		}, check: func() error {
			state := w.Get(leased[0].Known.Definition.ID).State
			return errors.Join(wantEqual("runs", state.Runs, 1), wantEqual("failures", state.Failures, 1))
		}},
		{name: "runs", call: func(ctx context.Context) error {
			runs, err := s.Runs(ctx, leased[0].Known.Definition.Key, 3)
			if err == nil && len(runs) != 1 {
				return errors.New("one run has ended")
			}
			return err
		}},
		{name: "expired", call: func(ctx context.Context) error {
			_, err := s.Expired(ctx, 0, leaseLock, []job.Lane{storetest.Lane()}, 10)
			return err
		}},
		{name: "sweep", call: func(ctx context.Context) error {
			_, err := s.Sweep(ctx, 0, leaseLock, []job.Lane{storetest.Lane()}, 10)
			return err
		}},
		{name: "audit", call: func(ctx context.Context) error {
			report, err := fsck.New(s).CheckShard(ctx, 0, true)
			if len(report.Findings) > 0 {
				return errors.New("it found faults")
			}
			return err
		}},
	}
}

func (b *answerBed) limitCalls() []answerCall {
	s := b.s
	ask := func(holder string) job.UnitRequest {
		return job.UnitRequest{Name: "n", Limit: 1, Holder: holder, Waiter: job.RecordID("record-" + holder), TTL: time.Minute}
	}
	acquire := func(holder string, want bool) func(context.Context) error {
		return func(ctx context.Context) error {
			grant := s.Limits().AcquireUnits(ctx, []job.UnitRequest{ask(holder)})[0]
			if grant.Err == nil && grant.Granted != want {
				return errors.New("granted or not: the other")
			}
			return grant.Err
		}
	}
	rate := job.RateRequest{Name: "n", N: 3, Interval: time.Hour, Burst: 10}
	queue := job.QueueKey{Namespace: "ns", Queue: "q"}
	return []answerCall{
		{name: "acquire", call: acquire("a", true)},
		{name: "wait in line", call: acquire("b", false)},
		{name: "keep", call: func(ctx context.Context) error {
			_, err := s.Limits().RenewUnits(ctx, []job.UnitRenewal{{Name: "n", Holder: "a", TTL: time.Minute}})
			return err
		}},
		{name: "release", call: func(ctx context.Context) error {
			return s.Limits().ReleaseUnits(ctx, []job.UnitRelease{{Name: "n", Limit: 1, Holder: "a"}})[0].Err
		}, check: func() error {
			room, err := s.Limits().FreeUnits(b.t.Context(), "n", 1)
			return errors.Join(err, wantEqual("room", room, 1))
		}},
		{name: "room", call: func(ctx context.Context) error {
			_, err := s.Limits().FreeUnits(ctx, "n", 1)
			return err
		}},
		{name: "rate", call: func(ctx context.Context) error {
			return s.Limits().TakeRate(ctx, []job.RateRequest{rate})[0].Err
		}, check: func() error {
			rest := rate
			rest.N = 100
			left := s.Limits().TakeRate(b.t.Context(), []job.RateRequest{rest})[0]
			return errors.Join(left.Err, wantEqual("what is left of 10 after 3", left.N, 7))
		}},
		{name: "swap", call: func(ctx context.Context) error {
			r := s.Limits().SwapCells(ctx, []job.CellSwap{{Name: "c", New: "1"}})[0]
			if r.Err == nil && !r.Swapped {
				return errors.New("it says that the cell has another text")
			}
			return r.Err
		}},
		{name: "cells", call: func(ctx context.Context) error { return s.Limits().ReadCells(ctx, []string{"c"})[0].Err }},
		{name: "settings", call: func(ctx context.Context) error {
			return s.Limits().PutQueueSettings(ctx, queue, job.QueueSettings{Burst: 1}, "")
		}},
		{name: "all settings", call: func(ctx context.Context) error {
			all, err := s.Limits().QueueSettings(ctx)
			if err == nil && all[queue].Burst != 1 {
				return errors.New("they are not what was stored")
			}
			return err
		}},
	}
}
