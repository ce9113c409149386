package worker

import (
	"errors"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// This file decides how long this worker may trust its leases. One time applies to all of
// them, and acknowledged heartbeats move it on:
//
//	handleHeartbeatTimer  a heartbeat is due, or its acknowledgement is overdue
//	handleHeartbeatAck    a heartbeat was acknowledged
//	checkTrust            the time has passed and was not moved on: all leases are lost
//
// A process that was suspended does not notice it. So the time is compared with the clock
// before each handler starts (trustsLeases). Once it has passed, only another session moves it
// on: messages that waited in the socket prove nothing.

// leaseTrustPeriod returns how long leases with this TTL may be trusted after the last contact with the node, so
// that their handlers have ended when other workers may start. Nodes renew leases every third of the TTL, so the
// last renewal may be that old. The rest, less the stop margin, is left.
func leaseTrustPeriod(ttl time.Duration) time.Duration { return ttl - ttl/3 - stopMarginOf(ttl) }

func stopMarginOf(ttl time.Duration) time.Duration { return min(ttl/6, 2*time.Second) }

var errTrustEnded = errors.New("the node did not acknowledge a heartbeat in time, or this process was suspended")

// heartbeat is a sent heartbeat that may still be acknowledged.
type heartbeat struct {
	seq int64
	at  time.Time // no later than it was sent
}

// heartbeatState is the state of a session's heartbeats. It is guarded by the worker's mutex.
type heartbeatState struct {
	seq   int64       // of the latest heartbeat
	sent  []heartbeat // the latest acknowledged one, and those after it
	acked int64       // of the latest acknowledged one
	// confirmedAt is when the heartbeat was sent whose acknowledgement confirmed all leases of this worker.
	confirmedAt time.Time
	// unconfirmedLeases: the session's Hello named leases that are not confirmed yet. They are trusted no longer
	// than the previous session allowed.
	unconfirmedLeases bool
	nextAt            time.Time // when the next heartbeat is due
	timerAt           time.Time // when the heartbeat timer fires next
	reportedSilent    bool      // unresponsive is closed
}

// sessionTTL is how long the node keeps the session after a heartbeat; 0: the node takes no heartbeats.
func (s *session) sessionTTL() time.Duration { return s.welcome.GetSessionTtl().AsDuration() }

func (s *session) sendsHeartbeats() bool { return s.sessionTTL() > 0 }

// stopMargin is how long handlers have to return after trust has ended.
func (s *session) stopMargin() time.Duration {
	if s.sendsHeartbeats() {
		return stopMarginOf(s.sessionTTL())
	}
	return stopMarginOf(s.leaseTTL())
}

// trustPeriod returns how long leases may be trusted after a confirmation. A node that drains keeps leases
// unchanged when the stream ends.
func (s *session) trustPeriod() time.Duration {
	if s.sendsHeartbeats() && !s.drainReceived {
		return s.sessionTTL() - s.stopMargin()
	}
	return leaseTrustPeriod(s.leaseTTL())
}

// heartbeatInterval is the time between heartbeats. If the node takes none, it is the interval at which the
// worker checks that the process was not suspended.
func (s *session) heartbeatInterval() time.Duration {
	if s.sendsHeartbeats() {
		return s.sessionTTL() / 4
	}
	return leaseTrustPeriod(s.leaseTTL()) / 4
}

// ackTimeout is how long the acknowledgement of a heartbeat may take before the worker looks for another node.
// The leases are still trusted then.
func (s *session) ackTimeout() time.Duration { return s.sessionTTL() / 3 }

// trustsLeases reports whether a handler may start now.
func (w *Worker) trustsLeases(now time.Time) bool { return now.Before(w.table.trustedUntil) }

// beginTrust starts the trust period of a session that was just welcomed. The node counts from when it read the
// Hello.
func (w *Worker) beginTrust(s *session) {
	t := &w.table
	until := s.helloAt.Add(s.trustPeriod())
	s.heartbeats.unconfirmedLeases = s.heartbeats.unconfirmedLeases &&
		w.anyReliesOnLease() // they may all be lost by now
	if !s.heartbeats.unconfirmedLeases || !s.sendsHeartbeats() || until.Before(t.trustedUntil) {
		t.trustedUntil = until
	}
	t.stopMargin = s.stopMargin()
	w.setTrustTimer()
	now := time.Now()
	s.heartbeats.nextAt = now
	w.paceHeartbeats(s, now)
	w.ensureRunner()
}

// anyReliesOnLease reports whether any handler relies on its lease, or will when it starts.
func (w *Worker) anyReliesOnLease() bool {
	for _, a := range w.table.attempts {
		if a.reliesOnLease() {
			return true
		}
	}
	return false
}

// setTrustTimer sets the timer of checkTrust to the end of trust.
func (w *Worker) setTrustTimer() { w.trustTimer.Reset(max(0, time.Until(w.table.trustedUntil))) }

// checkTrust is the callback of trustTimer. Most often the end of trust has moved on by then.
func (w *Worker) checkTrust() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.table.stopped || w.table.welcomedSessions == 0:
	case w.trustsLeases(time.Now()):
		w.setTrustTimer()
	default:
		w.endTrust()
	}
}

// endTrustIfOver does the work of checkTrust when the timer may be late.
func (w *Worker) endTrustIfOver() {
	if w.table.welcomedSessions > 0 && !w.trustsLeases(time.Now()) {
		w.endTrust()
	}
}

// endTrust gives up all leases and ends the session. The next Hello states which leases are left.
func (w *Worker) endTrust() {
	s := w.table.current
	if s != nil {
		w.table.current, w.table.linkErr = nil, errTrustEnded
	}
	w.loseAllLeases()
	if s != nil {
		s.cancel(errTrustEnded)
	}
}

// handleHeartbeatTimer is the callback of heartbeatTimer.
func (w *Worker) handleHeartbeatTimer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.table.current; s != nil && !w.table.stopped {
		w.paceHeartbeats(s, time.Now())
	}
}

// paceHeartbeats sends a heartbeat if one is due, checks that the last one was acknowledged, and sets the timer.
func (w *Worker) paceHeartbeats(s *session, now time.Time) {
	p := &s.heartbeats
	if !s.sendsHeartbeats() {
		// The node takes no heartbeats. This call shows that the process is not suspended.
		if w.trustsLeases(now) {
			w.table.trustedUntil = now.Add(s.trustPeriod())
		}
		w.setHeartbeatTimer(s, now, now.Add(s.heartbeatInterval()))
		return
	}
	if !now.Before(p.nextAt) {
		p.nextAt = now.Add(s.heartbeatInterval())
		s.queueHeartbeat(now)
	}
	next := p.nextAt
	if at := s.ackOverdueAt(); !at.IsZero() {
		// After a suspension of the process the acknowledgement may not be read yet.
		if late := now.Sub(p.timerAt) > s.ackTimeout()/2; !late && !now.Before(at) {
			s.markUnresponsive()
		} else {
			at = laterTime(at, now.Add(s.ackTimeout()/4))
			next = earlierTime(next, at)
		}
	}
	w.setHeartbeatTimer(s, now, next)
}

func (w *Worker) setHeartbeatTimer(s *session, now, at time.Time) {
	s.heartbeats.timerAt = at
	w.heartbeatTimer.Reset(at.Sub(now))
}

func earlierTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func laterTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// queueHeartbeat puts a heartbeat into the outbox, in place of one that was not sent.
func (s *session) queueHeartbeat(now time.Time) {
	p := &s.heartbeats
	p.seq++
	p.sent = append(p.sent, heartbeat{p.seq, now})
	s.out.heartbeat = p.seq
	s.wakeUp()
}

// ackOverdueAt returns when the next acknowledgement is overdue; zero: none is expected.
func (s *session) ackOverdueAt() time.Time {
	for _, h := range s.heartbeats.sent {
		if h.seq > s.heartbeats.acked && !s.heartbeats.reportedSilent {
			return h.at.Add(s.ackTimeout())
		}
	}
	return time.Time{}
}

// markUnresponsive makes the link look for another node. The session continues until there is one.
func (s *session) markUnresponsive() {
	s.heartbeats.reportedSilent = true
	close(s.unresponsive)
}

// handleHeartbeatAck extends trust from when the acknowledged heartbeat was sent: the node had the session when
// it read it.
func (w *Worker) handleHeartbeatAck(s *session, ack *fermatav1.HeartbeatAck) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &s.heartbeats
	for len(p.sent) > 0 && p.sent[0].seq < ack.GetSeq() {
		p.sent = p.sent[1:]
	}
	if len(p.sent) == 0 || p.sent[0].seq != ack.GetSeq() {
		return // not a heartbeat of this session
	}
	p.acked = ack.GetSeq()
	p.unconfirmedLeases = p.unconfirmedLeases && !ack.GetConfirmed()
	if s == w.table.current && !p.unconfirmedLeases && w.trustsLeases(time.Now()) {
		p.confirmedAt = p.sent[0].at
		w.table.trustedUntil = p.confirmedAt.Add(s.trustPeriod())
	}
}

// extendTrustOnDrain extends trust of a session whose node drains.
func (w *Worker) extendTrustOnDrain(s *session) {
	if p := s.heartbeats.confirmedAt; s == w.table.current && !p.IsZero() && w.trustsLeases(time.Now()) {
		w.table.trustedUntil = p.Add(s.trustPeriod())
	}
}

// trustAfterContact sets the trust of a session that has ended and whose node takes no heartbeats: its leases
// are trusted for a while after the last contact.
func (w *Worker) trustAfterContact(s *session) {
	if !s.sendsHeartbeats() && w.trustsLeases(time.Now()) {
		w.table.trustedUntil = s.contact.lastReceived().Add(s.trustPeriod())
		w.setTrustTimer()
	}
}
