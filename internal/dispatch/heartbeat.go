package dispatch

import (
	"container/list"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// A worker that sends heartbeats trusts its leases only until SessionTTL after it sent the
// latest heartbeat that its node has acknowledged, less what its handlers have to stop. The
// node counts from when it received that heartbeat, which is later. So the leases of a session
// that has ended are of no use to anybody once its life is over, and are made to end then: the
// runs of a worker that died start elsewhere after SessionTTL, and not after LeaseTTL.

// life is what heartbeats have to do with a session.
type life struct {
	place *list.Element // among those that are beating; nil: the worker sends no heartbeats, or the session has ended
	ends  time.Time     // unless another heartbeat comes
	seq   int64         // the latest heartbeat
	// proved: a heartbeat has come, so that the worker has had its Welcome. One that has not
	// may go on under an earlier session, whose node does not know of this one yet.
	proved bool
	// confirmed: no lease that Hello named is still to be renewed for the first time.
	confirmed bool
}

// leastRest is for how long a lease is renewed that is to end at once.
const leastRest = time.Millisecond

// beginLife begins the life of a session of a worker that sends heartbeats.
func (d *Dispatcher) beginLife(s *Session) {
	if !s.hello.Heartbeats {
		return
	}
	s.life.place = d.mu.beating.PushBack(s)
	s.life.ends = time.Now().Add(d.o.SessionTTL)
	if s.life.ends.Before(d.mu.armed) {
		d.mu.armed = s.life.ends
		signal(d.clockWake)
	}
}

// endLife is for a session that is closed. What is left of its life is that of its leases.
func (d *Dispatcher) endLife(s *Session) {
	if s.life.place != nil {
		d.mu.beating.Remove(s.life.place)
		s.life.place = nil
	}
}

// Heartbeat prolongs the session and acknowledges the heartbeat. What comes after the session
// has been told to end proves nothing any more.
func (s *Session) Heartbeat(seq int64) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.life.place == nil || s.stopping {
		return
	}
	s.life.seq, s.life.proved = seq, true
	s.life.ends = time.Now().Add(d.o.SessionTTL)
	d.mu.beating.MoveToBack(s.life.place)
	s.confirm()
	s.send(job.HeartbeatAck{Seq: seq, Confirmed: s.life.confirmed})
}

// confirm finds out whether all leases that Hello named are confirmed or lost.
func (s *Session) confirm() {
	if s.life.confirmed {
		return
	}
	for _, a := range s.attempts {
		if a.adopting && !a.over && a.pending == nil {
			return
		}
	}
	s.life.confirmed = true
}

// confirmSessions acknowledges the latest heartbeat of a session once more when the last of its
// leases has been confirmed.
func (d *Dispatcher) confirmSessions(renewed []*attempt) {
	looked := make(map[*Session]bool)
	for _, a := range renewed {
		s := a.session
		if s == nil || s.life.confirmed || looked[s] {
			continue
		}
		looked[s] = true
		if s.confirm(); s.life.confirmed && s.life.proved && !s.stopping {
			s.send(job.HeartbeatAck{Seq: s.life.seq, Confirmed: true})
		}
	}
}

// endSilent ends the sessions whose life is over and returns when the next one's is; zero: there
// is none.
func (d *Dispatcher) endSilent(now time.Time) time.Time {
	for e := d.mu.beating.Front(); e != nil; e = d.mu.beating.Front() {
		s := e.Value.(*Session)
		if s.life.ends.After(now) {
			return s.life.ends
		}
		d.endLife(s)
		s.stop(job.ErrSilentWorker)
	}
	return time.Time{}
}

// shortens reports whether the leases of a session end with its life, rather than with their own.
// They do not where the worker was sent away, and knows that its node has only gone.
func (s *Session) shortens() bool { return s.life.proved && !s.sentAway }

// leaseLife is for how long a lease is renewed: in full while the stream of its worker stands,
// and for the rest of the session's life afterwards.
func (d *Dispatcher) leaseLife(a *attempt, now time.Time) time.Duration {
	if a.live() || !a.session.shortens() {
		return d.o.LeaseTTL
	}
	return min(d.o.LeaseTTL, max(leastRest, a.session.life.ends.Sub(now)))
}
