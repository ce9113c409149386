package dispatch

import (
	"container/list"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// A worker that sends heartbeats trusts its leases only until SessionTTL after it sent the
// latest heartbeat that its node has acknowledged, less the time that its handlers need to stop.
// The node counts from when it received that heartbeat, which is later. So the leases of an ended
// session have no use once its life is over, and end then: the runs of a worker that died start
// elsewhere after SessionTTL, not after LeaseTTL.

// heartbeatState is the state of a session's heartbeats.
type heartbeatState struct {
	listElement *list.Element // in heartbeating; nil: the worker sends none, or the session has ended
	endsAt      time.Time     // unless another heartbeat comes
	lastSeq     int64         // the latest heartbeat
	// heartbeatReceived: a heartbeat has come, so the worker has had its Welcome. A worker without one may
	// continue an earlier session, whose node does not know of this one yet.
	heartbeatReceived bool
	// leasesConfirmed: all leases in Hello have been renewed once.
	leasesConfirmed bool
}

// minLeaseRest is the time for which a lease is renewed that is to end at once.
const minLeaseRest = time.Millisecond

// startHeartbeats starts the session's life, if its worker sends heartbeats.
func (d *Dispatcher) startHeartbeats(s *Session) {
	if !s.hello.Heartbeats {
		return
	}
	s.heartbeatState.listElement = d.mu.heartbeating.PushBack(s)
	s.heartbeatState.endsAt = time.Now().Add(d.o.SessionTTL)
	if s.heartbeatState.endsAt.Before(d.mu.clockWakesAt) {
		d.mu.clockWakesAt = s.heartbeatState.endsAt
		wakeUp(d.clockWake)
	}
}

// stopHeartbeats is called for a closed session. Its leases keep the rest of its life.
func (d *Dispatcher) stopHeartbeats(s *Session) {
	if s.heartbeatState.listElement != nil {
		d.mu.heartbeating.Remove(s.heartbeatState.listElement)
		s.heartbeatState.listElement = nil
	}
}

// HandleHeartbeat extends the session and acknowledges the heartbeat. A heartbeat of a session that is being stopped
// has no effect.
func (s *Session) HandleHeartbeat(seq int64) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.heartbeatState.listElement == nil || s.stopping {
		return
	}
	s.heartbeatState.lastSeq, s.heartbeatState.heartbeatReceived = seq, true
	s.heartbeatState.endsAt = time.Now().Add(d.o.SessionTTL)
	d.mu.heartbeating.MoveToBack(s.heartbeatState.listElement)
	s.checkConfirmed()
	s.sendMessage(job.HeartbeatAck{Seq: seq, Confirmed: s.heartbeatState.leasesConfirmed})
}

// checkConfirmed checks whether all leases in Hello are confirmed or lost.
func (s *Session) checkConfirmed() {
	if s.heartbeatState.leasesConfirmed {
		return
	}
	for _, a := range s.attempts {
		if a.adopting && !a.over && a.pendingEvent == nil {
			return
		}
	}
	s.heartbeatState.leasesConfirmed = true
}

// confirmSessions acknowledges the latest heartbeat of a session once more when the last of its
// leases has been confirmed.
func (d *Dispatcher) confirmSessions(renewed []*attempt) {
	looked := make(map[*Session]bool)
	for _, a := range renewed {
		s := a.session
		if s == nil || s.heartbeatState.leasesConfirmed || looked[s] {
			continue
		}
		looked[s] = true
		s.checkConfirmed()
		if s.heartbeatState.leasesConfirmed && s.heartbeatState.heartbeatReceived && !s.stopping {
			s.sendMessage(job.HeartbeatAck{Seq: s.heartbeatState.lastSeq, Confirmed: true})
		}
	}
}

// endSilent ends the sessions whose life is over and returns when the next one ends; zero: there is none.
func (d *Dispatcher) endSilent(now time.Time) time.Time {
	for e := d.mu.heartbeating.Front(); e != nil; e = d.mu.heartbeating.Front() {
		s := e.Value.(*Session)
		if s.heartbeatState.endsAt.After(now) {
			return s.heartbeatState.endsAt
		}
		d.stopHeartbeats(s)
		s.stopStream(job.ErrHeartbeatTimeout)
	}
	return time.Time{}
}

// endsLeasesEarly reports whether the leases of a session end with its life, rather than with their own. They do
// not if the worker was sent away, and so knows that its node has left.
func (s *Session) endsLeasesEarly() bool { return s.heartbeatState.heartbeatReceived && !s.sentAway }

// renewalTTL is the time for which a lease is renewed: in full while the stream of its worker is open, and for
// the rest of the session's life afterwards.
func (d *Dispatcher) renewalTTL(a *attempt, now time.Time) time.Duration {
	if a.streamOpen() || !a.session.endsLeasesEarly() {
		return d.o.LeaseTTL
	}
	return min(d.o.LeaseTTL, max(minLeaseRest, a.session.heartbeatState.endsAt.Sub(now)))
}
