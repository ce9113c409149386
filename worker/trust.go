package worker

import (
	"errors"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// This file decides how long the leases that are here may be trusted, which is one instant for
// all of them, and has heartbeats sent that move it on:
//
//	beat          a heartbeat is due, or it is time to see whether one was acknowledged
//	prolong       one was acknowledged
//	checkTrust    the instant has passed, unless it was moved on: all leases are lost
//
// A process that stood still does not know it. So the instant is compared with the clock
// whenever a handler is to begin (trusts), and once it has passed only another session moves it
// on: what lay in the socket meanwhile proves nothing.

// lossAfter is for how long leases of a lease TTL may be trusted after the node was last heard
// of, so that their handlers have ended when others may start. Nodes renew leases every third
// of their life: of a node that died with the contact, the last renewal may be that old.
// The margin is what handlers have to end.
func lossAfter(ttl time.Duration) time.Duration { return ttl - ttl/3 - lossMargin(ttl) }

func lossMargin(ttl time.Duration) time.Duration { return min(ttl/6, 2*time.Second) }

var errSilent = errors.New("the node has acknowledged no heartbeat while the leases could be trusted, or this process stood still")

// heartbeat is one that may still be acknowledged.
type heartbeat struct {
	seq int64
	at  time.Time // no later than it was sent
}

// pulse is what a session knows of its heartbeats. It is guarded by the worker's mutex.
type pulse struct {
	seq   int64       // of the latest heartbeat
	sent  []heartbeat // the latest acknowledged one, and those after it
	acked int64       // of the latest acknowledged one
	// proof is when the heartbeat was sent by which all leases that are here were confirmed.
	proof time.Time
	// carries: this session's Hello named leases that are not confirmed yet. They are trusted
	// for no longer than the session before left them.
	carries bool
	due     time.Time // the next heartbeat
	calls   time.Time // when beat is to be called next
	silent  bool      // the link was told
}

// sessionTTL is how long the node keeps the session after a heartbeat; 0: it takes none.
func (s *session) sessionTTL() time.Duration { return s.welcome.GetSessionTtl().AsDuration() }

func (s *session) sendsHeartbeats() bool { return s.sessionTTL() > 0 }

// margin is what handlers have to end in.
func (s *session) margin() time.Duration {
	if s.sendsHeartbeats() {
		return lossMargin(s.sessionTTL())
	}
	return lossMargin(s.ttl())
}

// trustFor is for how long after a proof leases may be trusted. A node that has sent the worker
// away leaves them as they are when the stream ends.
func (s *session) trustFor() time.Duration {
	if s.sendsHeartbeats() && !s.sentAway {
		return s.sessionTTL() - s.margin()
	}
	return lossAfter(s.ttl())
}

// every is the pace of heartbeats. Where the node takes none, it is that of noticing that this
// process stood still.
func (s *session) every() time.Duration {
	if s.sendsHeartbeats() {
		return s.sessionTTL() / 4
	}
	return lossAfter(s.ttl()) / 4
}

// patience is how long the acknowledgement of a heartbeat may take until the worker looks for
// another node, while it still trusts its leases.
func (s *session) patience() time.Duration { return s.sessionTTL() / 3 }

// trusts reports whether a handler may begin now.
func (w *Worker) trusts(now time.Time) bool { return now.Before(w.table.trusted) }

// beginTrust is for a session that was just welcomed. The node has counted from when it read the
// Hello.
func (w *Worker) beginTrust(s *session) {
	t := &w.table
	until := s.helloAt.Add(s.trustFor())
	s.pulse.carries = s.pulse.carries && w.relies() // it may all be lost since
	if !s.pulse.carries || !s.sendsHeartbeats() || until.Before(t.trusted) {
		t.trusted = until
	}
	t.margin = s.margin()
	w.watchTrust()
	now := time.Now()
	s.pulse.due = now
	w.pace(s, now)
	w.summon()
}

// relies reports whether any handler relies on its lease, or will.
func (w *Worker) relies() bool {
	for _, a := range w.table.attempts {
		if a.trusts() {
			return true
		}
	}
	return false
}

// watchTrust has checkTrust called when the leases are not trusted any more.
func (w *Worker) watchTrust() { w.trustEnd.Reset(max(0, time.Until(w.table.trusted))) }

// checkTrust is the call of the timer. Most often the instant has been moved on.
func (w *Worker) checkTrust() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.table.over || w.table.sessions == 0:
	case w.trusts(time.Now()):
		w.watchTrust()
	default:
		w.endTrust()
	}
}

// expireTrust is checkTrust where the timer may be late.
func (w *Worker) expireTrust() {
	if w.table.sessions > 0 && !w.trusts(time.Now()) {
		w.endTrust()
	}
}

// endTrust gives up all leases, and the session: its node is to hear in the next Hello what has
// become of them.
func (w *Worker) endTrust() {
	s := w.table.current
	if s != nil {
		w.table.current, w.table.linkErr = nil, errSilent
	}
	w.loseAll()
	if s != nil {
		s.cancel(errSilent)
	}
}

// beat is the call of the timer.
func (w *Worker) beat() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.table.current; s != nil && !w.table.over {
		w.pace(s, time.Now())
	}
}

// pace sends a heartbeat if one is due, and has beat called when something is to be done next.
func (w *Worker) pace(s *session, now time.Time) {
	p := &s.pulse
	if !s.sendsHeartbeats() {
		// The node does not say that it lives. That this process does not stand still is known.
		if w.trusts(now) {
			w.table.trusted = now.Add(s.trustFor())
		}
		w.callBeat(s, now, now.Add(s.every()))
		return
	}
	if !now.Before(p.due) {
		p.due = now.Add(s.every())
		s.heartbeat(now)
	}
	next := p.due
	if at := s.overdueAt(); !at.IsZero() {
		// Of a process that stood still the acknowledgement may just not be read yet.
		if late := now.Sub(p.calls) > s.patience()/2; !late && !now.Before(at) {
			s.suspect()
		} else {
			at = later(at, now.Add(s.patience()/4))
			next = earlier(next, at)
		}
	}
	w.callBeat(s, now, next)
}

func (w *Worker) callBeat(s *session, now, at time.Time) {
	s.pulse.calls = at
	w.beats.Reset(at.Sub(now))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// heartbeat puts one into the outbox, in place of one that has not been sent.
func (s *session) heartbeat(now time.Time) {
	p := &s.pulse
	p.seq++
	p.sent = append(p.sent, heartbeat{p.seq, now})
	s.out.heartbeat = p.seq
	s.wakeUp()
}

// overdueAt is when an acknowledgement has taken too long; zero: none is awaited.
func (s *session) overdueAt() time.Time {
	for _, h := range s.pulse.sent {
		if h.seq > s.pulse.acked && !s.pulse.silent {
			return h.at.Add(s.patience())
		}
	}
	return time.Time{}
}

// suspect has the link look for another node. The session goes on until there is one.
func (s *session) suspect() {
	s.pulse.silent = true
	close(s.silent)
}

// prolong takes the acknowledgement of a heartbeat: the node had the session when it read that.
func (w *Worker) prolong(s *session, ack *fermatav1.HeartbeatAck) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &s.pulse
	for len(p.sent) > 0 && p.sent[0].seq < ack.GetSeq() {
		p.sent = p.sent[1:]
	}
	if len(p.sent) == 0 || p.sent[0].seq != ack.GetSeq() {
		return // it is not one of this session's
	}
	p.acked = ack.GetSeq()
	p.carries = p.carries && !ack.GetConfirmed()
	if s == w.table.current && !p.carries && w.trusts(time.Now()) {
		p.proof = p.sent[0].at
		w.table.trusted = p.proof.Add(s.trustFor())
	}
}

// trustLonger is for a session whose node sends the worker away.
func (w *Worker) trustLonger(s *session) {
	if p := s.pulse.proof; s == w.table.current && !p.IsZero() && w.trusts(time.Now()) {
		w.table.trusted = p.Add(s.trustFor())
	}
}

// trustContact is for a session that has ended and whose node takes no heartbeats: its leases
// may be trusted for a while after it was last heard of.
func (w *Worker) trustContact(s *session) {
	if !s.sendsHeartbeats() && w.trusts(time.Now()) {
		w.table.trusted = s.contact.last().Add(s.trustFor())
		w.watchTrust()
	}
}
