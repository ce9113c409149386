package worker

import (
	"math"
	"slices"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// This file moves leases from one session to the next:
//
//	hello     names them; the session before, if it still stands, is superseded
//	attach    the new session is welcomed and becomes the current one, or
//	refused   it is not, and the one before goes on
//	detach    a session has ended; without a current one the leases' time runs

// unwinding are the handlers that loseAll has told to stop, for as long as their margin lasts.
type unwinding struct {
	left int
	over chan struct{}
}

// unwind waits for n handlers until their margin is over.
func (w *Worker) unwind(n int) *unwinding {
	u := &unwinding{left: n, over: make(chan struct{})}
	w.table.unwinding = u
	time.AfterFunc(w.table.margin, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.unwound(u)
	})
	return u
}

// unwound ends the wait.
func (w *Worker) unwound(u *unwinding) {
	if w.table.unwinding == u {
		w.table.unwinding = nil
		close(u.over)
	}
}

// hello opens a session's bargain: it names every lease that is to be taken over. What it
// does not name has ended for the node, which has it leased anew: so it waits for handlers
// that are unwinding.
func (w *Worker) hello(s *session) *fermatav1.Hello {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.table
	w.expireTrust()
	for u := t.unwinding; u != nil && s.ctx.Err() == nil; u = t.unwinding {
		w.mu.Unlock()
		select {
		case <-u.over:
		case <-s.ctx.Done():
		}
		w.mu.Lock()
	}
	t.epoch++
	s.epoch, t.opening = t.epoch, t.epoch
	// What has not started goes back: a node would take it for started.
	w.giveBack(t.current, always)
	if t.current != nil {
		t.current.leaving, t.current.superseded = true, true
		t.current.wakeUp()
	}
	live := w.live(s.epoch)
	s.pulse.carries = slices.ContainsFunc(live, func(id string) bool { return t.attempts[id].trusts() })
	return &fermatav1.Hello{
		WorkerId: w.o.ID, Namespace: w.o.Namespace, Queues: w.o.Queues, Slots: int32(w.o.Slots),
		SessionEpoch: s.epoch, Live: live, Version: w.o.Version, Labels: w.o.Labels,
		Prefetch: int32(min(max(0, w.o.Prefetch), math.MaxInt32)), StartsAfter: true,
		Heartbeats: true,
	}
}

// live lists the leases that are this worker's, running ones first, to which those belong
// that will run in a moment: a Hello takes twice the slots and 1024 more.
func (w *Worker) live(epoch int32) []string {
	most := 2*w.o.Slots + 1024
	ids := make([]string, 0, min(len(w.table.attempts), most))
	now := time.Now()
	for _, p := range []phase{running, ready, early, ended} {
		for _, a := range w.table.attempts {
			if a.phase == p && (!a.lost || a.counts() || w.hangs(a, now)) && len(ids) < most {
				a.known, a.named = epoch, true
				ids = append(ids, a.id)
			}
		}
	}
	return ids
}

// trusts reports whether an attempt has a handler that relies on its lease, or will.
func (a *attempt) trusts() bool { return a.phase != ended && !a.lost }

// counts tells whether an attempt has a result that may still be accepted: what this process's
// clock says of a lease is on the safe side.
func (a *attempt) counts() bool { return a.phase == ended && !a.void }

// hangs tells whether an attempt has only its slot left: its handler goes on although its
// lease has ended beyond doubt. A node that is told of it says that it is lost, and takes
// the slot for free when the handler has ended. Without that it would send what is due to
// slots that are none.
func (w *Worker) hangs(a *attempt, now time.Time) bool {
	return a.phase == running && (a.lostOn != 0 || now.Sub(a.lostAt) >= w.table.ttl)
}

// attach makes a welcomed session the current one.
func (w *Worker) attach(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.table
	w.expireTrust()
	if t.current != nil {
		t.current.out.started, t.current.out.results = nil, nil
	}
	t.current, t.opening, t.ttl = s, 0, s.ttl()
	if t.sessions++; t.sessions > 1 {
		w.metrics.reconnects.Inc()
	}
	s.out.draining = t.draining
	w.sendOwed(s)
	s.out.lost = slices.Clone(t.lost)
	w.redeliver()
	w.beginTrust(s)
	s.wakeUp()
}

// redeliver repeats all results that are not acknowledged.
func (w *Worker) redeliver() {
	for _, a := range w.table.attempts {
		if a.phase == ended {
			w.deliver(a)
		}
	}
}

// refused undoes hello. The node of the session before has the say over its leases again.
func (w *Worker) refused(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.table
	t.opening = 0
	if t.current != nil {
		t.current.superseded, t.current.leaving = false, t.current.sentAway
		for _, a := range t.attempts {
			if a.known == s.epoch {
				a.known = t.current.epoch
			}
		}
		defer t.current.wakeUp()
	}
	w.redeliver()
	w.checkIdle()
}

// leave notes that the node of a session stops. What has not started goes back.
func (w *Worker) leave(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.leaving, s.sentAway = true, true
	w.trustLonger(s)
	w.giveBack(s, always)
	s.wakeUp()
}

// detach takes an ended session out. Its leases are trusted for as long as without it.
func (w *Worker) detach(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.table
	for _, a := range t.attempts {
		if a.phase == ended && a.lost && a.sentOn == s {
			w.giveUp(a)
		}
	}
	t.owed = append(t.owed, s.unconfirmed(t.draining)...)
	if t.current != s {
		if t.current != nil {
			w.sendOwed(t.current)
			t.current.wakeUp()
		}
		return
	}
	t.current, t.linkErr = nil, s.err
	// Results that failed by loss have nobody left to hear of them.
	w.redeliver()
	w.trustContact(s)
	w.checkIdle()
}

// take hands the sender what waits for a session.
func (w *Worker) take(s *session) []any {
	w.mu.Lock()
	defer w.mu.Unlock()
	messages := s.out.take()
	if s == w.table.current {
		w.allTold()
	}
	s.sending = len(messages) > 0
	w.checkIdle()
	return messages
}
