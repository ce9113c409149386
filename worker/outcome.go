package worker

import (
	"log/slog"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// deliverResult puts the result of an ended attempt into the outbox of the current session. Without a session,
// or while another node is asked to take the leases over, the result waits for the next session.
func (w *Worker) deliverResult(a *attempt) {
	s := w.table.current
	if s == nil || s.superseded {
		if a.voidResult && a.knownEpoch != w.table.helloEpoch {
			w.giveUpAttempt(a)
		}
		return
	}
	if a.voidResult {
		w.discardVoidResult(a, s)
		return
	}
	a.sentOn, a.sentAt = s, time.Now()
	s.out.results = append(s.out.results, a)
}

// discardVoidResult forgets an attempt that failed because its lease was lost, which is no failure of the
// handler. It sends Returned if the node waits for an answer to free the slot, or has just taken the lease over.
func (w *Worker) discardVoidResult(a *attempt, s *session) {
	if a.lostEpoch == s.epoch || a.knownEpoch == s.epoch {
		s.out.returned = append(s.out.returned, a.id)
	}
	w.giveUpAttempt(a)
}

// handleAcks stops sending acknowledged results. After another node was asked to take the leases over, only its
// acknowledgements count, because it needs the result of every lease named to it.
func (w *Worker) handleAcks(s *session, acks []resultAck) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s != w.table.current || s.superseded {
		return
	}
	for _, ack := range acks {
		a := w.table.attempts[ack.id]
		if a == nil {
			w.stopReportingLost(ack.id)
		}
		if a == nil || a.phase != phaseEnded {
			continue
		}
		w.forgetAttempt(a)
		if ack.status == fermatav1.ResultAck_STATUS_STALE {
			w.reportLost(a.id)
			w.logAttempt(slog.LevelInfo, "result discarded, its lease had ended", a)
		}
	}
	w.checkIdle()
}

// cancelLeases ends handlers that the node cancels.
func (w *Worker) cancelLeases(s *session, c *fermatav1.Cancel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range c.GetLeaseIds() {
		a := w.table.attempts[id]
		switch {
		case a == nil && c.GetReason() == fermatav1.Cancel_REASON_LEASE_LOST:
			s.out.returned = append(s.out.returned, id)
		case a == nil:
		case c.GetReason() == fermatav1.Cancel_REASON_LEASE_LOST:
			w.loseLease(s, a)
		case c.GetReason() == fermatav1.Cancel_REASON_TIMED_OUT:
			w.timeOutAttempt(a)
		default:
			w.cancelAttempt(s, a)
		}
	}
	s.wakeUp()
}

// loseLease handles a node's report that a lease is lost. A node from which a later Hello took the lease reports
// that of a lease that is still valid; such a report is ignored.
func (w *Worker) loseLease(s *session, a *attempt) {
	if a.knownEpoch > s.epoch {
		return
	}
	a.lost, a.lostEpoch = true, s.epoch
	switch a.phase {
	case phaseEarly, phaseReady:
		w.releaseUnstarted(a)
		fallthrough
	case phaseQueued:
		w.forgetAttempt(a)
		s.out.returned = append(s.out.returned, a.id)
	case phaseRunning:
		a.ctx.endWith(ErrLeaseLost, time.Now())
	}
}

// cancelAttempt cancels a handler. An attempt that has not started is returned, because a result would count as
// a start; the run is marked as cancelled and ends with that.
func (w *Worker) cancelAttempt(s *session, a *attempt) {
	switch a.phase {
	case phaseRunning:
		a.ctx.endWith(ErrCancelled, time.Now())
	case phaseEarly, phaseReady:
		w.releaseUnstarted(a)
		fallthrough
	case phaseQueued:
		w.forgetAttempt(a)
		s.returnLease(a.id)
	}
}

// timeOutAttempt ends a handler. For an attempt that has not started it reports a timeout.
func (w *Worker) timeOutAttempt(a *attempt) {
	switch a.phase {
	case phaseRunning:
		a.ctx.endWith(ErrTimeout, time.Now())
	case phaseEarly, phaseReady:
		w.releaseUnstarted(a)
		fallthrough
	case phaseQueued:
		a.phase = phaseEnded
		a.result = result{outcome: fermatav1.Result_OUTCOME_TIMED_OUT, text: ErrTimeout.Error() + " before it started"}
		w.deliverResult(a)
	}
}

// loseAllLeases gives up all leases when they are no longer trusted. Attempts that have not started are returned
// on the next session, uncounted if their leases are still valid.
func (w *Worker) loseAllLeases() {
	t := &w.table
	var lost int
	var stopping []*attempt
	w.returnWaiting(nil, anyAttempt)
	w.returnEarly(nil, anyAttempt)
	w.returnReady(nil)
	w.reportLost(t.pendingReturns...)
	for _, a := range t.attempts {
		if a.lost {
			continue
		}
		lost++
		a.lost, a.lostEpoch, a.lostAt, a.sentOn = true, 0, time.Now(), nil
		switch a.phase {
		case phaseRunning:
			a.ctx.endWith(ErrLeaseLost, time.Now())
			stopping = append(stopping, a)
		case phaseEnded:
			w.deliverResult(a)
		}
	}
	if len(stopping) > 0 {
		u := w.trackStopping(len(stopping))
		for _, a := range stopping {
			a.stopping = u
		}
	}
	w.checkIdle()
	if lost > 0 {
		w.options.Logger.Warn("failed to confirm leases in time, leases lost", "attempts", lost)
	}
}
