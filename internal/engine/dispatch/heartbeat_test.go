package dispatch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// sessionTTL is that of the bench.
const sessionTTL = DefaultSessionTTL

// left is how long the stored lease of a record lives from now on.
func (b *bench) left(record job.RecordID) time.Duration {
	synctest.Wait()
	l := b.store.lease(record)
	return time.Until(l.deadline.Time())
}

// wantLeft checks that to a few milliseconds, which the heartbeat's way may take.
func (b *bench) wantLeft(record job.RecordID, want time.Duration) {
	b.t.Helper()
	if got := b.left(record); (got - want).Abs() > 5*time.Millisecond {
		b.t.Errorf("the lease of %s lives for %v more, want %v", record, got, want)
	}
}

func TestHeartbeatsAreAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.beats("w", 2, 1)
		s.HandleHeartbeat(1)
		b.wantSent(out, "heartbeat 1 confirmed true")
		time.Sleep(sessionTTL - time.Millisecond)
		s.HandleHeartbeat(7)
		b.wantSent(out, "heartbeat 7 confirmed true")
		time.Sleep(sessionTTL - time.Millisecond)
		synctest.Wait()
		if err := out.reason(); err != nil {
			t.Errorf("the session has ended before its time: %v", err)
		}
	})
}

// A session without heartbeats ends, and what comes after that is of no use to its worker.
func TestASilentSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		others, other := b.beats("other", 2, 1)
		s, out := b.beats("w", 2, 1)
		_, old := b.connect("old", 2, 1) // which sends none
		time.Sleep(sessionTTL / 2)
		others.HandleHeartbeat(1)
		time.Sleep(sessionTTL/2 + time.Millisecond)
		synctest.Wait()
		if !errors.Is(out.reason(), job.ErrHeartbeatTimeout) {
			t.Errorf("the session ended with %v", out.reason())
		}
		if other.reason() != nil || old.reason() != nil {
			t.Errorf("other sessions ended: %v, %v", other.reason(), old.reason())
		}
		s.HandleHeartbeat(1)
		b.wantSent(out)
		time.Sleep(sessionTTL)
		synctest.Wait()
		if !errors.Is(other.reason(), job.ErrHeartbeatTimeout) || old.reason() != nil {
			t.Errorf("the others ended with %v, %v", other.reason(), old.reason())
		}
		s.Close("silent", nil)
	})
}

// The runs of a worker that is lost are leased again when its session would have ended, whether
// they had started or not.
func TestLeasesEndWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.beats("w", 3, 1)
		ids := b.deliver("runs", "waits")
		s.HandleHeartbeat(1)
		s.HandleStarted(ids[:1])
		time.Sleep(2 * time.Second) // it has been renewed once
		s.HandleHeartbeat(2)
		time.Sleep(time.Second)
		s.Close("cut", nil)
		b.wantLeft("ns/runs", sessionTTL-time.Second)
		b.wantLeft("ns/waits", sessionTTL-time.Second)
		if l := b.store.lease("ns/waits"); l.rec.State.Acked {
			t.Error("what has not started counts as started")
		}
		time.Sleep(sessionTTL)
		if n := b.remembered(); n > 0 {
			t.Errorf("%d attempts are remembered", n)
		}
	})
}

// TestLeasesOfASilentSessionEndAtOnce: a host that dies sends nothing.
func TestLeasesOfASilentSessionEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.beats("w", 3, 1)
		s.HandleHeartbeat(1)
		s.HandleStarted(b.deliver("runs"))
		time.Sleep(sessionTTL)
		synctest.Wait()
		if out.reason() == nil {
			t.Fatal("the session goes on")
		}
		s.Close("silent", nil)
		b.wantLeft("ns/runs", 0)
	})
}

// Leases keep their own life where it cannot be known that the worker counts by heartbeats: it
// sends none, it may not have had its Welcome, or it was sent away.
func TestLeasesThatOutliveTheSession(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(*bench) *Session
		then  func(*bench, *Session)
	}{
		"of a worker without heartbeats": {
			begin: func(b *bench) *Session { s, _ := b.connect("w", 1, 1); return s },
		},
		"of a worker that may not have been welcomed": {
			begin: func(b *bench) *Session { s, _ := b.beats("w", 1, 1); return s },
		},
		"of a worker that was sent away": {
			begin: func(b *bench) *Session { s, _ := b.beats("w", 1, 1); s.HandleHeartbeat(1); return s },
			then:  func(_ *bench, s *Session) { s.RequestReconnect() },
		},
		"of a node that drains": {
			begin: func(b *bench) *Session { s, _ := b.beats("w", 1, 1); s.HandleHeartbeat(1); return s },
			then: func(b *bench, _ *Session) {
				ctx, cancel := context.WithCancel(context.Background())
				b.t.Cleanup(cancel)
				go b.d.Drain(ctx) // its error is that it is cancelled in the end
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				s := c.begin(b)
				s.HandleStarted(b.deliver("runs"))
				time.Sleep(time.Second)
				if c.then != nil {
					c.then(b, s)
					synctest.Wait()
				}
				s.Close("cut", nil)
				b.wantLeft("ns/runs", ttl)
			})
		})
	}
}

// A stream that is cut while leases are renewed leaves them no longer than one that is cut
// before.
func TestCutDuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.beats("w", 1, 1)
		s.HandleHeartbeat(1)
		s.HandleStarted(b.deliver("runs"))
		b.store.mu.Lock()
		b.store.during = func() { s.Close("cut", nil) }
		b.store.mu.Unlock()
		time.Sleep(time.Second) // it is stored that it has started
		b.wantLeft("ns/runs", sessionTTL-time.Second)
	})
}

// If Redis cannot be asked just then, the rest is less when it can.
func TestShorteningIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.beats("w", 1, 1)
		s.HandleHeartbeat(1)
		s.HandleStarted(b.deliver("runs"))
		time.Sleep(time.Second)
		synctest.Wait()
		b.store.setFail(errors.New("away"))
		s.Close("cut", nil)
		time.Sleep(3 * time.Second)
		b.wantLeft("ns/runs", ttl-3500*time.Millisecond) // as it was
		b.store.setFail(nil)
		time.Sleep(2 * time.Second)
		b.wantLeft("ns/runs", sessionTTL-6*time.Second)
	})
}

// A worker that comes back has its leases in full, and the node that it left cannot take that
// back.
func TestTheNextSessionHasItsLeasesInFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		first, _ := b.beats("w", 1, 1)
		first.HandleHeartbeat(1)
		ids := b.deliver("runs")
		first.HandleStarted(ids)
		time.Sleep(time.Second)
		first.Close("cut", nil)
		time.Sleep(time.Second)
		second, out := b.beats("w", 1, 2, ids...)
		second.HandleHeartbeat(1)
		b.wantLeft("ns/runs", ttl)
		if got := out.took(); len(got) == 0 || got[len(got)-1] != "heartbeat 1 confirmed true" {
			t.Errorf("it was told %q", got)
		}
		time.Sleep(2 * sessionTTL)
		if l := b.left("ns/runs"); l < 0 {
			t.Error("the lease has ended")
		}
	})
}

// Leases that a Hello names are not confirmed before they have been renewed under the new
// session: the one before may have left them a moment only.
func TestHeartbeatsConfirmAdoptedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := b.lease("runs")
		b.store.setFail(errors.New("away"))
		s, out := b.beats("w", 1, 2, job.LeaseID(l.Record, l.Known.State.Token))
		s.HandleHeartbeat(1)
		b.wantSent(out, "heartbeat 1 confirmed false")
		time.Sleep(2 * time.Second)
		s.HandleHeartbeat(2)
		b.wantSent(out, "heartbeat 2 confirmed false")
		b.store.setFail(nil)
		time.Sleep(1500 * time.Millisecond)
		b.wantSent(out, "heartbeat 2 confirmed true")
		s.HandleHeartbeat(3)
		b.wantSent(out, "heartbeat 3 confirmed true")
	})
}

// A refused lease needs no confirmation, but the worker is notified of the refusal first.
func TestHeartbeatsConfirmRefusedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := b.lease("runs")
		b.store.update("ns/runs", func(f *fakeLease) { f.rec.State.Token++ })
		const slow = time.Millisecond // so that the heartbeat comes before the lease is refused
		b.store.during, b.store.stall = func() { time.Sleep(slow) }, slow
		s, out := b.beats("w", 1, 2, job.LeaseID(l.Record, l.Known.State.Token))
		s.HandleHeartbeat(1)
		time.Sleep(5 * slow)
		b.wantSent(out, "heartbeat 1 confirmed false", "cancel runs lease_lost", "heartbeat 1 confirmed true")
	})
}

// A worker may have to give up what it named in its Hello before it was welcomed. That is a
// loss, and no failure of the handler.
func TestReturnedAdoptedLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := b.lease("runs")
		id := job.LeaseID(l.Record, l.Known.State.Token)
		s, _ := b.beats("w", 1, 2, id)
		synctest.Wait()
		s.HandleReturned([]string{id})
		b.wantEvents("LoseLease runs")
		b.wantFree(1)
	})
}
