package worker

import (
	"math"
	"slices"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// This file moves leases from one session to the next:
//
//	buildHello     names the leases; the previous session, if still open, is superseded
//	attachSession  the new session is welcomed and becomes the current one, or
//	undoHello      it is refused, and the previous session continues
//	detachSession  a session has ended; without a current one the trust period runs out

// stoppingHandlers counts the handlers that loseAllLeases has cancelled, until their stop margin is over.
type stoppingHandlers struct {
	remaining int
	done      chan struct{}
}

// trackStopping tracks n cancelled handlers until their stop margin is over.
func (w *Worker) trackStopping(n int) *stoppingHandlers {
	u := &stoppingHandlers{remaining: n, done: make(chan struct{})}
	w.table.stopping = u
	time.AfterFunc(w.table.stopMargin, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.endStopping(u)
	})
	return u
}

// endStopping releases everything that waits for the cancelled handlers.
func (w *Worker) endStopping(u *stoppingHandlers) {
	if w.table.stopping == u {
		w.table.stopping = nil
		close(u.done)
	}
}

// buildHello returns the Hello of a session. It names every lease that the node is to take over. A lease that it
// does not name has ended for the node, which may lease the job again; so buildHello first waits for cancelled
// handlers.
func (w *Worker) buildHello(s *session) *fermatav1.Hello {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.table
	w.endTrustIfOver()
	for u := t.stopping; u != nil && s.ctx.Err() == nil; u = t.stopping {
		w.mu.Unlock()
		select {
		case <-u.done:
		case <-s.ctx.Done():
		}
		w.mu.Lock()
	}
	t.epoch++
	s.epoch, t.helloEpoch = t.epoch, t.epoch
	// Attempts that have not started are returned: a node would count them as started.
	w.returnWaiting(t.current, anyAttempt)
	if t.current != nil {
		t.current.closedToLeases, t.current.superseded = true, true
		t.current.wakeUp()
	}
	live := w.liveLeases(s.epoch)
	s.heartbeats.unconfirmedLeases = slices.ContainsFunc(live,
		func(id string) bool { return t.attempts[id].reliesOnLease() })
	return &fermatav1.Hello{
		WorkerId: w.options.ID, Namespace: w.options.Namespace, Queues: w.options.Queues, Slots: int32(w.options.Slots),
		SessionEpoch: s.epoch, LiveLeaseIds: live, Version: w.options.Version, Labels: w.options.Labels,
		Prefetch: int32(min(max(0, w.options.Prefetch), math.MaxInt32)), SupportsStartAfter: true,
		SupportsHeartbeats: true,
	}
}

// liveLeases lists the leases to take over: first those that run, then those that have a slot, then ended ones.
// A Hello has room for twice the slots and 1024 more.
func (w *Worker) liveLeases(epoch int32) []string {
	most := 2*w.options.Slots + 1024
	ids := make([]string, 0, min(len(w.table.attempts), most))
	now := time.Now()
	for _, p := range []phase{phaseRunning, phaseReady, phaseEarly, phaseEnded} {
		for _, a := range w.table.attempts {
			if a.phase == p && (!a.lost || a.resultMayCount() || w.holdsOnlySlot(a, now)) && len(ids) < most {
				a.knownEpoch, a.namedInHello = epoch, true
				ids = append(ids, a.id)
			}
		}
	}
	return ids
}

// reliesOnLease reports whether the attempt's handler relies on the lease now, or will when it starts.
func (a *attempt) reliesOnLease() bool { return a.phase != phaseEnded && !a.lost }

// resultMayCount reports whether the attempt has a result that may still be accepted. The lease may still be
// valid when this process's clock says it has ended, because that estimate is early.
func (a *attempt) resultMayCount() bool { return a.phase == phaseEnded && !a.voidResult }

// holdsOnlySlot reports whether the handler still runs although its lease has certainly ended, so that it only
// holds a slot. A node that reads such a lease in a Hello answers that it is lost, and counts the slot as free
// only when the handler has ended. Otherwise it would send leases for slots that are taken.
func (w *Worker) holdsOnlySlot(a *attempt, now time.Time) bool {
	return a.phase == phaseRunning && (a.lostEpoch != 0 || now.Sub(a.lostAt) >= w.table.leaseTTL)
}

// attachSession makes a welcomed session the current one.
func (w *Worker) attachSession(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.table
	w.endTrustIfOver()
	if t.current != nil {
		t.current.out.started, t.current.out.results = nil, nil
	}
	t.current, t.helloEpoch, t.leaseTTL = s, 0, s.leaseTTL()
	t.welcomedSessions++
	if t.welcomedSessions > 1 {
		w.metrics.reconnects.Inc()
	}
	if t.draining {
		s.announceStop()
	}
	w.sendPendingReturns(s)
	s.out.lost = slices.Clone(t.pendingLosses)
	w.resendResults()
	w.beginTrust(s)
	s.wakeUp()
}

// resendResults sends all results again that are not acknowledged.
func (w *Worker) resendResults() {
	for _, a := range w.table.attempts {
		if a.phase == phaseEnded {
			w.deliverResult(a)
		}
	}
}

// undoHello reverts buildHello. The previous session's node decides about its leases again.
func (w *Worker) undoHello(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.table
	t.helloEpoch = 0
	if t.current != nil {
		t.current.superseded, t.current.closedToLeases = false, t.current.drainReceived
		if t.draining {
			t.current.announceStop()
		}
		for _, a := range t.attempts {
			if a.knownEpoch == s.epoch {
				a.knownEpoch = t.current.epoch
			}
		}
		defer t.current.wakeUp()
	}
	w.resendResults()
	w.checkIdle()
}

// leaveNode records that the session's node drains, and returns attempts that have not started.
func (w *Worker) leaveNode(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.closedToLeases, s.drainReceived = true, true
	w.extendTrustOnDrain(s)
	w.returnWaiting(s, anyAttempt)
	s.wakeUp()
}

// detachSession removes an ended session. Its leases stay trusted for the trust period without a session.
func (w *Worker) detachSession(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.table
	for _, a := range t.attempts {
		if a.phase == phaseEnded && a.lost && a.sentOn == s {
			w.giveUpAttempt(a)
		}
	}
	t.pendingReturns = append(t.pendingReturns, s.unconfirmedReturns()...)
	if t.current != s {
		if t.current != nil {
			w.sendPendingReturns(t.current)
			t.current.wakeUp()
		}
		return
	}
	t.current, t.linkErr = nil, s.err
	// Results that failed because the lease was lost cannot be reported now.
	w.resendResults()
	w.trustAfterContact(s)
	w.checkIdle()
}

// takeMessages returns what waits in the session's outbox, for the sender.
func (w *Worker) takeMessages(s *session) []any {
	w.mu.Lock()
	defer w.mu.Unlock()
	messages := s.out.takeMessages()
	if s == w.table.current {
		w.clearPendingFlush()
	}
	s.sending = len(messages) > 0
	w.checkIdle()
	return messages
}
