package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// TestARunThatAWorkerDoesNotStartIsJudged: while it is leased, no other node knows that it has not started.
func TestARunThatAWorkerDoesNotStartIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.maxLag = 2 * time.Second
		s, _ := b.connect("w", 4, 1)
		ids := b.deliver("idle", "prompt", "brief")
		s.HandleStarted(ids[1:])
		time.Sleep(2 * time.Second)
		b.wantEvents()
		time.Sleep(lateGrace + 2*time.Millisecond)
		c := b.wantEvents("CheckLateness idle")[0]
		if ev := c.Input.(job.CheckLateness); ev.StartedMS != 0 || c.Known == nil || c.Known.State.Token != ev.Token {
			t.Errorf("%+v", c)
		}
		time.Sleep(5 * time.Second)
		s.HandleStarted(ids[:1])
		s.HandleResults(ok(ids[1]))
		time.Sleep(5 * time.Second)
		b.wantEvents("FinishAttempt prompt succeeded")
	})
}

// TestALateStartIsCountedWithItsResultOrAlone: a result that comes soon counts it as well.
func TestALateStartIsCountedWithItsResultOrAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.maxLag = 100 * time.Millisecond
		s, _ := b.connect("w", 4, 1)
		ids := b.deliver("brief", "long")
		time.Sleep(200 * time.Millisecond)
		s.HandleStarted(ids[:2])
		started := unixtime.MilliOf(time.Now())
		time.Sleep(500 * time.Millisecond)
		s.HandleResults(ok(ids[0]))
		b.wantEvents("FinishAttempt brief succeeded")
		b.ledger.set(answering(0, job.ErrUnavailable))
		time.Sleep(lateGrace)
		for _, c := range b.wantEvents("CheckLateness long") {
			if ev := c.Input.(job.CheckLateness); ev.StartedMS != started {
				t.Errorf("%+v", ev)
			}
		}
		b.ledger.set(answering(job.Applied, nil))
		time.Sleep(lateRetry)
		b.wantEvents("CheckLateness long")
		time.Sleep(time.Minute)
		for _, c := range b.ledger.took() {
			if _, again := c.Input.(job.CheckLateness); again {
				t.Errorf("%+v", c)
			}
		}
	})
}

// TestARunWithoutAnObjectiveCostsNoTimer: nor one whose objective was broken while it waited.
func TestARunWithoutAnObjectiveCostsNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.connect("w", 4, 1)
		ids := b.deliver("a")
		b.maxLag = time.Second
		r := b.d.Reserve("ns", "q", 1)
		l := b.lease("b")
		l.Known.State.LateNominal = l.Known.State.Nominal
		r.Deliver([]job.Leased{l})
		ids = append(ids, job.LeaseID(l.Record, l.Known.State.Token))
		b.d.mu.Lock()
		defer b.d.mu.Unlock()
		for _, id := range ids {
			if a := b.d.mu.attempts[id]; !a.lateAt.IsZero() {
				t.Errorf("%s is judged at %v", id, a.lateAt)
			}
		}
	})
}
