package dispatch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func TestResultIsAcknowledgedByTheLedgersAnswer(t *testing.T) {
	for _, c := range []struct {
		answer job.Answer
		err    error
		want   string
	}{
		{job.Applied, nil, "accepted"},
		{job.Duplicate, nil, "duplicate"},
		{job.Stale, nil, "stale"},
		{job.Applied, fmt.Errorf("settle: %w", job.ErrNotFound), "not_found"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			s, out := b.connect("w", 1, 1)
			ids := b.deliver("a")
			s.HandleStarted(ids)
			time.Sleep(20 * time.Millisecond)
			b.ledger.set(answering(c.answer, c.err))
			s.HandleResults(ok(ids[0]))
			b.wantSent(out, "lease a", "ack a "+c.want)
			settle := b.wantEvents("FinishAttempt a succeeded")[0]
			ev := settle.Input.(job.FinishAttempt)
			if settle.Known == nil || settle.Known.State.Token != ev.Token || ev.Worker != "w" {
				t.Errorf("settled as %+v, known %v", ev, settle.Known)
			}
			if ran := int64(unixtime.MilliOf(time.Now()) - ev.StartedMS); ran != 20 {
				t.Errorf("started %d ms ago, want 20", ran)
			}
			b.wantFree(1)
		})
	}
}

func TestACorruptJobTakesNoResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.ledger.set(answering(0, fmt.Errorf("%w: no such zone", job.ErrCorrupt)))
		s, out := b.connect("w", 4, 1)
		ids := b.deliver("a")
		s.HandleStarted(ids)
		s.HandleResults(ok(ids[0]))
		b.wantSent(out, "lease a", "ack a not_found")
		time.Sleep(time.Minute)
		b.wantEvents("FinishAttempt a succeeded")
		if n := b.remembered(); n != 0 {
			t.Errorf("%d attempts are still known", n)
		}
	})
}

func TestResultIsKeptUntilItIsStored(t *testing.T) {
	for _, err := range []error{job.ErrUnavailable, job.ErrDurability, job.ErrConflict} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			s, out := b.connect("w", 1, 1)
			ids := b.deliver("a")
			s.HandleStarted(ids)
			b.ledger.set(answering(job.Applied, err))
			s.HandleResults(ok(ids[0]))
			s.HandleResults(ok(ids[0])) // the worker repeats what is not acknowledged
			b.wantSent(out, "lease a")
			b.wantFree(1)
			time.Sleep(time.Minute)
			synctest.Wait()
			tries := b.ledger.took()
			if n := len(tries); n < 10 || n > 30 {
				t.Errorf("%d tries in a minute", n)
			}
			if tries[0].Known == nil || tries[1].Known != nil {
				t.Error("a repetition must not trust what was believed before")
			}
			b.ledger.set(answering(job.Duplicate, nil))
			time.Sleep(6 * time.Second)
			b.wantSent(out, "ack a duplicate")
		})
	}
}

// A result outlives its stream: it is stored all the same, and acknowledged on the worker's next stream.
func TestResultSurvivesItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 1, 1)
		ids := b.deliver("a")
		s.HandleStarted(ids)
		b.ledger.set(answering(job.Applied, job.ErrUnavailable))
		s.HandleResults(ok(ids[0]))
		b.wantSent(out, "lease a")
		s.Close("cut", nil)
		time.Sleep(2 * ttl)
		_, out = b.connect("w", 1, 2, ids[0])
		b.wantFree(1)
		b.ledger.set(answering(job.Applied, nil))
		time.Sleep(6 * time.Second)
		b.wantSent(out, "ack a accepted")
		if r := b.store.took(); len(r) != 0 {
			t.Errorf("renewed %v for an attempt that has ended", r)
		}
	})
}

func TestResultOfAnUnknownLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 1, 1)
		b.ledger.set(answering(job.Duplicate, nil))
		id := job.LeaseID("ns/elsewhere", 1_700_000_000_000_000)
		s.HandleResults(ok(id))
		b.wantSent(out, "ack elsewhere duplicate")
		if c := b.wantEvents("FinishAttempt elsewhere succeeded"); c[0].Known != nil {
			t.Error("what is stored is not known here")
		}
		s.HandleResults(ok(job.LeaseID("other/job", 5)))
		s.HandleResults(ok("nonsense"))
		b.wantSent(out, "ack job stale", "ack  stale")
		b.wantEvents()

		// Nor may a worker end what another one runs.
		_, other := b.connect("v", 1, 1)
		s.HandleDraining()
		ids := b.deliver("theirs")
		s.HandleResults(ok(ids[0]))
		b.wantSent(out, "ack theirs stale")
		b.wantSent(other, "lease theirs")
		b.wantEvents()
	})
}

func TestStartIsObservedWithItsLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 2, 1)
		ids := b.deliver("a", "b")
		time.Sleep(7 * time.Millisecond)
		s.HandleStarted(ids[:1])
		s.HandleStarted(ids[:1])
		time.Sleep(10 * time.Millisecond)
		s.HandleResults(ok(ids[1])) // quick ones may come without a start; it ran 5 ms
		if len(b.seen.all()) != 2 {
			t.Fatalf("observed %v", b.seen.all())
		}
		for i, lag := range []int64{7, 12} {
			n := b.seen.all()[i]
			if n.Kind != job.AttemptStarted || int64(n.AtMS-n.DueMS) != lag || n.Attempt != 1 || n.Worker != "w" || n.Correlation() == "" {
				t.Errorf("notice %d: %+v, want a start %d ms after due", i, n, lag)
			}
		}
	})
}

func TestReturnedByTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 2, 1)
		ids := b.deliver("a", "b")
		s.HandleStarted(ids[1:])
		s.HandleReturned(append(ids, "nonsense"))
		// One that had started is not free of charge.
		b.wantEvents("ReturnLease a", "FinishAttempt b failed")
		b.wantFree(2)
		b.wantSent(out, "lease a", "lease b")
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 1, 1)
		ids := b.deliver("a")
		time.Sleep(time.Second)
		started := time.Now()
		s.HandleStarted(ids)
		bound := started.Add(job.DefaultTimeout + job.DefaultTimeoutGrace)
		time.Sleep(time.Until(bound) - time.Millisecond)
		b.wantSent(out, "lease a")
		b.wantEvents()
		// Should this node die now, the lease ends soon after by itself.
		if end := b.store.lease("ns/a").deadline; end > unixtime.MilliOf(bound.Add(ttl/10)) {
			t.Errorf("lease reaches %d ms past the bound", int64(end-unixtime.MilliOf(bound)))
		} else if end <= unixtime.MilliOf(bound) {
			t.Errorf("lease ends before this node can settle it")
		}
		time.Sleep(time.Millisecond)
		b.wantSent(out, "cancel a timed_out")
		settle := b.wantEvents("FinishAttempt a timed_out")[0].Input.(job.FinishAttempt)
		if settle.StartedMS != unixtime.MilliOf(started) {
			t.Errorf("started at %d, want %d", settle.StartedMS, started.UnixMilli())
		}
		b.wantFree(0) // the handler still runs
		b.store.took()
		time.Sleep(time.Minute)
		if r := b.store.took(); len(r) != 0 {
			t.Errorf("renewed %v after the end", r)
		}
		s.HandleResults(ok(ids[0]))
		b.wantSent(out, "ack a stale")
		b.wantEvents()
		b.wantFree(1)
	})
}

// The worker's answer can come while the timeout is on its way to the store.
func TestTimeoutMeetsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 1, 1)
		ids := b.deliver("a")
		s.HandleStarted(ids)
		b.ledger.set(answering(job.Applied, job.ErrUnavailable))
		time.Sleep(36 * time.Second)
		s.HandleResults(ok(ids[0]))
		b.wantSent(out, "lease a", "cancel a timed_out")
		b.wantFree(1)
		b.ledger.set(answering(job.Applied, nil))
		time.Sleep(6 * time.Second)
		b.wantSent(out, "ack a stale")
		b.wantFree(1)
	})
}

func TestSlotOfATimedOutAttemptIsFreeWhenTheStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 1, 1)
		s.HandleStarted(b.deliver("a"))
		time.Sleep(36 * time.Second)
		b.wantEvents("FinishAttempt a timed_out")
		s.Close("cut", nil)
		b.connect("w", 1, 2)
		b.wantFree(1)
		b.wantEvents()
	})
}

// Slots that unanswered results had taken are announced when the answers come.
func TestAnswersGiveSlotsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 2, 1)
		b.ledger.set(answering(job.Applied, job.ErrUnavailable))
		for i := range 2 + pendingSlack {
			s.HandleResults(ok(job.LeaseID("ns/j", uint64(i+1))))
		}
		b.wantFree(0)
		before := b.demands.Load()
		b.ledger.set(answering(job.Stale, nil))
		time.Sleep(10 * time.Second)
		b.wantFree(2)
		if b.demands.Load() == before {
			t.Error("slots came free without a word")
		}
	})
}

func TestAWorkerThatFloodsIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 1, 1)
		b.ledger.set(answering(job.Applied, job.ErrUnavailable))
		for i := range s.maxPending() + 1 {
			s.HandleResults(ok(job.LeaseID("ns/j", uint64(i+1))))
		}
		if out.reason() == nil {
			t.Error("session goes on")
		}
		s.Close("flood", nil)
		b.ledger.set(answering(job.Stale, nil))
		time.Sleep(10 * time.Second)
		b.wantFree(0)
	})
}
