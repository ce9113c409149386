package dispatch

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func TestShortAttemptsAreNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 10, 1)
		for i := range 50 {
			ids := b.deliver(fmt.Sprint("j", i))
			s.HandleStarted(ids)
			time.Sleep(300 * time.Millisecond)
			s.HandleResults(ok(ids[0]))
		}
		synctest.Wait()
		if n := b.store.callCount(); n != 0 {
			t.Errorf("%d calls to renew", n)
		}
	})
}

func TestRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 1000, 7)
		var names []string
		for i := range 500 {
			names = append(names, fmt.Sprint("j", i))
		}
		ids := b.deliver(names...)
		for _, id := range ids {
			s.HandleStarted([]string{id})
			time.Sleep(50 * time.Microsecond)
		}
		// What runs longer is marked as acknowledged, in few calls.
		time.Sleep(DefaultAckAfter + b.d.o.renewalGrid())
		synctest.Wait()
		marks := b.store.took()
		if len(marks) != 500 || b.store.callCount() > 2 {
			t.Fatalf("%d marks in %d calls", len(marks), b.store.callCount())
		}
		for _, r := range marks {
			if !r.Acked || r.Epoch != 7 || r.Lane.Queue != "q" || r.HardStopMS == 0 {
				t.Fatalf("marked by %+v", r)
			}
		}
		time.Sleep(ttl / 3)
		synctest.Wait()
		if n := len(b.store.took()); n != 500 {
			t.Errorf("%d renewals after a third of the TTL", n)
		}
		for _, name := range names {
			if left := int64(b.store.lease(job.RecordID("ns/"+name)).deadline - unixtime.MilliOf(time.Now())); unixtime.Milli(left) < unixtime.Milli((2*ttl/3).Milliseconds()-1000) {
				t.Fatalf("a lease has %d ms left", left)
			}
		}
		out.took()
	})
}

// A worker that never reports a start does not have the lease.
func TestUnstartedLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 1, 1)
		ids := b.deliver("a")
		time.Sleep(ttl - ttl/10 - time.Millisecond)
		b.wantSent(out, "lease a")
		time.Sleep(time.Millisecond)
		b.wantSent(out, "cancel a lease_lost")
		b.wantEvents()
		b.wantFree(0)
		s.HandleReturned(ids)
		b.wantFree(1)
		b.wantEvents()
	})
}

func TestLeaseRefusedByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 1, 1)
		ids := b.deliver("a")
		s.HandleStarted(ids)
		b.store.update("ns/a", func(l *fakeLease) { l.rec.State.Token++ })
		time.Sleep(time.Second)
		b.wantSent(out, "lease a", "cancel a lease_lost")
		b.wantFree(0)
		// A late result is for the ledger to judge.
		b.ledger.set(answering(job.Stale, nil))
		s.HandleResults(ok(ids[0]))
		b.wantSent(out, "ack a stale")
		b.wantFree(1)
	})
}

// Invariant 5: the store does not answer, so this node stops trusting the lease
// before it can have ended.
func TestLeaseExpiresByOurOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 1, 1)
		ids := b.deliver("a")
		granted := time.Now()
		s.HandleStarted(ids)
		b.store.setFail(job.ErrUnavailable)
		time.Sleep(ttl - ttl/10 - time.Millisecond)
		b.wantSent(out, "lease a")
		time.Sleep(time.Millisecond)
		b.wantSent(out, "cancel a lease_lost")
		if time.Since(granted) >= ttl {
			t.Error("too late")
		}
		b.store.setFail(nil)
		s.HandleResults([]job.Result{{LeaseID: ids[0], Outcome: job.OutcomeCancelled}})
		b.wantSent(out, "ack a accepted")
	})
}

func TestRenewalIsRepeatedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 1, 1)
		s.HandleStarted(b.deliver("a"))
		b.store.setFail(errors.New("reply lost"))
		time.Sleep(15 * time.Second)
		b.store.setFail(nil)
		time.Sleep(15 * time.Second)
		b.wantSent(out, "lease a")
		if !b.store.lease("ns/a").rec.State.Acked {
			t.Error("not marked as acknowledged")
		}
	})
}

// Records of many shards that cannot be read must not cost the leases of others.
func TestSlowReadsDoNotHoldUpRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 8, 1)
		ids := b.deliver("a")
		s.HandleStarted(ids)
		b.wantSent(out, "lease a")
		b.store.mu.Lock()
		b.store.stall = 8 * time.Second
		b.store.mu.Unlock()
		// One record in each shard, that takes long to read.
		b.connect("moved", 8, 2, job.LeaseID("ns/k", 71), job.LeaseID("ns/kk", 72), job.LeaseID("ns/kkk", 73), job.LeaseID("ns/kkkk", 74))
		time.Sleep(b.d.o.LeaseTTL + time.Second)
		synctest.Wait()
		b.wantSent(out)
		if left := int64(b.store.lease("ns/a").deadline - unixtime.MilliOf(time.Now())); left <= 0 {
			t.Errorf("the lease lives for %d ms more", left)
		}
	})
}

func TestMovedLeaseEndsTheOldSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 2, 1)
		s.HandleStarted(b.deliver("a"))
		b.store.update("ns/a", func(l *fakeLease) { l.rec.State.Epoch = 2 })
		time.Sleep(time.Second)
		b.wantSent(out, "lease a")
		if !errors.Is(out.reason(), job.ErrSuperseded) {
			t.Errorf("stream ended with %v", out.reason())
		}
		b.wantFree(0)
		s.Close("superseded", nil)
		b.wantEvents()
	})
}

func TestEditedRecordIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 2, 1)
		ids := b.deliver("a", "b")
		s.HandleStarted(ids)
		b.store.update("ns/a", func(l *fakeLease) { l.rec.State.Revision++; l.rec.State.Cancel = true })
		b.store.update("ns/b", func(l *fakeLease) { l.rec.State.Revision++; l.rec.Definition.Handler = "new" })
		time.Sleep(time.Second)
		b.wantSent(out, "lease a", "lease b", "cancel a requested")
		time.Sleep(ttl)
		b.wantSent(out)
		s.HandleResults(ok(ids[1]))
		if known := b.wantEvents("FinishAttempt b succeeded")[0].Known; known.Definition.Handler != "new" || known.State.Revision != 4 {
			t.Errorf("settled on %+v", known)
		}
	})
}

func TestCancelAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 1, 1)
		ids := b.deliver("a")
		s.HandleStarted(ids)
		record, token, _ := job.ParseLeaseID(ids[0])
		if w := b.d.WorkerOf(record, token); w != "w" {
			t.Errorf("the worker is %q", w)
		}
		if w := b.d.WorkerOf(record, token+1) + b.d.WorkerOf("ns/b", token); w != "" {
			t.Errorf("attempts that are not here have the worker %q", w)
		}
		if b.d.CancelAttempt(record, token+1) || b.d.CancelAttempt("ns/b", token) {
			t.Error("cancelled what is not here")
		}
		for range 2 {
			if !b.d.CancelAttempt(record, token) {
				t.Error("not found")
			}
		}
		b.wantSent(out, "lease a", "cancel a requested")
		s.HandleResults([]job.Result{{LeaseID: ids[0], Outcome: job.OutcomeCancelled}})
		b.wantEvents("FinishAttempt a cancelled")
		if b.d.CancelAttempt(record, token) {
			t.Error("cancelled what has ended")
		}
		if w := b.d.WorkerOf(record, token); w != "" {
			t.Errorf("an attempt that has ended has the worker %q", w)
		}
	})
}

// deadShard answers renewals of all shards but one, whose server is away: a call with it in
// takes all the time it has.
type deadShard struct {
	*fakeStore
	dead int
}

func (s deadShard) Renew(ctx context.Context, requests []job.RenewRequest) []job.RenewReply {
	var up []job.RenewRequest
	for _, r := range requests {
		if r.Shard != s.dead {
			up = append(up, r)
		}
	}
	answers := s.fakeStore.Renew(ctx, up)
	if len(up) == len(requests) {
		return answers
	}
	<-ctx.Done()
	replies := make([]job.RenewReply, len(requests))
	for i, r := range requests {
		if r.Shard == s.dead {
			replies[i].Err = errors.New("away")
			continue
		}
		replies[i], answers = answers[0], answers[1:]
	}
	return replies
}

// A shard that cannot be reached must not cost the leases of the others (renew.go), however
// many a node has.
func TestADeadShardCostsNoOtherLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.d.mu.Lock()
		b.d.o.Store = deadShard{b.store, 0}
		b.d.mu.Unlock()
		const n = 20_000
		s, out := b.connect("w", n, 1)
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("%06d%s", i, "xx"[:i%3]) // lengths 6 to 8: shards 2, 3, 0
		}
		r := b.d.Reserve("ns", "q", n)
		leases := make([]job.Leased, n)
		ids := make([]string, n)
		healthy := map[string]bool{}
		for i, name := range names {
			l := b.lease(name)
			l.Known.Definition.Timeout = time.Hour
			leases[i], ids[i] = l, job.LeaseID(l.Record, l.Known.State.Token)
			healthy[ids[i]] = l.Shard != 0
		}
		r.Deliver(leases)
		s.HandleStarted(ids)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		lost := 0
		for _, m := range out.messages {
			if c, is := m.(job.Cancellation); is {
				for _, id := range c.LeaseIDs {
					if healthy[id] {
						lost++
					}
				}
			}
		}
		if lost > 0 {
			t.Errorf("%d leases of shards that answer were lost", lost)
		}
	})
}
