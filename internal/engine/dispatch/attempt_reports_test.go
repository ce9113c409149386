package dispatch

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

func (b *bench) wantHeard(want ...string) {
	b.t.Helper()
	if got := b.heard.took(); !slices.Equal(got, want) {
		b.t.Errorf("told %q, want %q", got, want)
	}
}

func TestEndsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 9, 1)
		ids := b.deliver("done", "failed", "returned", "slow", "lost", "doubt", "stale")
		s.HandleStarted(slices.Delete(slices.Clone(ids), 2, 3))
		b.wantHeard()

		s.HandleResults(ok(ids[0]))
		s.HandleResults([]job.Result{{LeaseID: ids[1], Outcome: job.OutcomeFailed, Error: "HTTP 503", RetryAfter: time.Minute}})
		s.HandleReturned(ids[2:3])
		b.wantHeard("failed ns/failed", "over ns/returned", "succeeded ns/done")
		for _, e := range b.heard.endings {
			if e.Definition == nil || !e.Over || e.Token == 0 {
				t.Errorf("ending %+v", e)
			}
			if s, _ := e.Settle.(job.FinishAttempt); e.Record == "ns/failed" && s.RetryAfter != time.Minute {
				t.Errorf("settled as %+v", s)
			}
		}

		b.ledger.set(answering(job.Stale, nil))
		s.HandleResults(ok(ids[6]))
		b.wantHeard("over ns/stale")
		b.ledger.set(answering(job.Applied, nil))

		b.store.update("ns/lost", func(l *fakeLease) { l.rec.State.Token++ })
		time.Sleep(ttl / 2)
		b.wantHeard("over ns/lost") // though its handler has not stopped
		s.HandleResults(ok(ids[4]))
		b.wantHeard()

		if !b.d.AbandonAttempt("ns/doubt", tokenOf(t, ids[5])) || b.d.AbandonAttempt("ns/doubt", 1) {
			t.Error("abandoned the wrong one")
		}
		b.wantHeard("gone ns/doubt")
		time.Sleep(job.DefaultTimeout + job.DefaultTimeoutGrace)
		b.wantHeard("timed_out ns/slow")
		s.Close("cut", nil)
		time.Sleep(2 * ttl)
		b.wantHeard()
		if n := b.remembered(); n != 0 {
			t.Errorf("%d attempts are remembered", n)
		}
	})
}

func tokenOf(t *testing.T, id string) uint64 {
	_, token, ok := job.ParseLeaseID(id)
	if !ok {
		t.Fatalf("lease id %q", id)
	}
	return token
}

// A result that is stored twice, because the first answer was lost, is reported once.
func TestRepeatedResultIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 1, 1)
		ids := b.deliver("a")
		s.HandleStarted(ids)
		b.ledger.set(answering(0, job.ErrUnavailable))
		s.HandleResults(ok(ids[0]))
		b.wantHeard()
		b.ledger.set(answering(job.Duplicate, nil))
		time.Sleep(time.Second)
		b.wantHeard("succeeded ns/a")
	})
}

func TestAdoptionIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		here, gone, child := b.lease("here"), b.lease("gone"), b.lease("job#r3")
		b.store.update("ns/gone", func(l *fakeLease) { l.rec.State.Token++ })
		id := func(l job.Leased) string { return job.LeaseID(l.Record, l.Known.State.Token) }
		s, out := b.connect("w", 9, 2, id(here), id(gone), id(child))
		b.wantHeard("adopted ns/here", "adopted ns/job#r3")
		b.wantSent(out, "cancel gone lease_lost")
		if !b.d.CancelAttempt(child.Record, child.Known.State.Token) {
			t.Error("the attempt of a child record cannot be cancelled")
		}
		s.HandleResults(ok(id(child)))
		b.wantHeard("succeeded ns/job#r3")

		// The stream is cut: the worker comes back, or goes to another node.
		s.Close("cut", nil)
		b.wantHeard("gone ns/here")
		s2, _ := b.connect("w", 9, 3, id(here))
		b.wantHeard("adopted ns/here")
		s2.Close("cut", nil)
		b.wantHeard("gone ns/here")
		time.Sleep(2 * ttl)
		b.wantHeard()
	})
}

// What a worker gives back that got it from another node has ended, and so has what it does
// not name any more when it comes back.
func TestForeignReturnIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := b.lease("a")
		s, _ := b.connect("w", 9, 2)
		b.ledger.set(func(job.Change) job.ChangeResult {
			return job.ChangeResult{Answer: job.Applied, Record: job.Record{Definition: l.Known.Definition}}
		})
		s.HandleReturned([]string{job.LeaseID(l.Record, l.Known.State.Token)})
		b.wantHeard("over ns/a")
		s.HandleStarted(b.deliver("b"))
		s.Close("cut", nil)
		b.wantHeard("gone ns/b")
		b.connect("w", 9, 3)
		b.wantHeard("over ns/b")
	})
}

func TestForeignResultIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 9, 2)
		l := b.lease("a")
		b.ledger.set(func(job.Change) job.ChangeResult {
			return job.ChangeResult{Answer: job.Applied, Record: job.Record{Definition: l.Known.Definition}}
		})
		s.HandleResults(ok(job.LeaseID(l.Record, l.Known.State.Token)))
		b.wantHeard("succeeded ns/a")
		if e := b.heard.endings[0]; e.Definition == nil || e.Definition.ID != "a" {
			t.Errorf("ending %+v", e)
		}
		b.ledger.set(answering(job.Stale, nil))
		s.HandleResults(ok("77@ns/a"))
		b.wantHeard()
	})
}

func TestChildRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 2, 1)
		ids := b.deliver("job#r0", "job#r1")
		b.wantSent(out, "lease job", "lease job")
		s.HandleStarted(ids)
		time.Sleep(ttl)
		for _, r := range b.store.took() {
			if r.Record != "ns/job#r0" && r.Record != "ns/job#r1" {
				t.Errorf("renewed %+v", r)
			}
		}
		b.wantHeard()
		s.HandleResults(ok(ids[1]))
		if c := b.wantEvents("FinishAttempt job succeeded")[0]; c.Record != "ns/job#r1" || c.Known.State.Token != tokenOf(t, ids[1]) {
			t.Errorf("settled %+v", c)
		}
		b.wantHeard("succeeded ns/job#r1")
	})
}

func TestSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_, one := b.connect("v", 2, 1)
		_, two := b.connect("w", 3, 1)
		r := b.d.Reserve("ns", "q", 5)
		rest := r.Split(3)
		if r.Count() != 2 || rest.Count() != 3 || r.Split(9).Count() != 2 || r.Count() != 0 {
			t.Errorf("split into %d and %d", r.Count(), rest.Count())
		}
		b.wantFree(0)
		rest.Deliver([]job.Leased{b.lease("a"), b.lease("b")})
		r.Deliver(nil)
		synctest.Wait()
		if n := len(one.took()) + len(two.took()); n == 0 {
			t.Error("nothing was sent")
		}
		if free := b.free(); free != 1 { // two run, two were split off and never delivered
			t.Errorf("%d slots are free", free)
		}
		if rest.Split(1).Count() != 0 {
			t.Error("a reservation that was delivered is split")
		}
	})
}

func TestReturnIsRepeatedUntilItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.ledger.set(answering(0, job.ErrUnavailable))
		b.d.ReturnLeases([]job.Leased{b.lease("a"), b.lease("b")})
		time.Sleep(time.Second)
		b.ledger.set(answering(job.Applied, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.d.Drain(ctx); err != nil { // which waits for them
			t.Error(err)
		}
		b.wantHeard("over ns/a", "over ns/b")
		if n := b.remembered(); n != 0 {
			t.Errorf("%d attempts are remembered", n)
		}
	})
}

// Attempts is notified of the end of an attempt that this node gave up, and whose result was stored all the
// same.
func TestAResultAfterTheTrustEndedIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 1, 1)
		ids := b.deliver("a")
		s.HandleStarted(ids)
		b.store.setFail(errors.New("away"))
		time.Sleep(ttl)
		b.wantHeard("gone ns/a")
		b.store.setFail(nil)
		s.HandleResults(ok(ids[0])) // it was not reaped yet, so it counts
		b.wantHeard("succeeded ns/a")
	})
}
