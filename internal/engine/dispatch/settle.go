package dispatch

import (
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// HandleResults handles the ends of attempts. Each is acknowledged when the ledger has given a final answer, on the
// session that the worker has then.
func (s *Session) HandleResults(results []job.Result) {
	d := s.d
	ids := make([]string, len(results))
	for i, r := range results {
		ids[i] = r.LeaseID
	}
	clocks := d.clocksOfUnstarted(ids)
	var fx pendingEffects
	fx.submitted, fx.changes = make([]*attempt, 0, len(results)), make([]job.Change, 0, len(results))
	fx.reserveNotices(len(results))
	d.mu.Lock()
	for _, r := range results {
		d.applyResult(s, r, clocks, &fx)
	}
	d.sendAcks(&fx)
	if s.pendingResults > s.maxPending() {
		s.stopStream(job.ErrWorkerTooSlow)
	}
	d.mu.Unlock()
	d.runEffects(&fx)
}

func (d *Dispatcher) applyResult(s *Session, r job.Result, clocks map[int]unixtime.Milli, fx *pendingEffects) {
	a := d.mu.attempts[r.LeaseID]
	if a == nil {
		var ok bool
		a, ok = d.addForeignResult(s, r.LeaseID)
		if !ok {
			return
		}
		if a == nil {
			d.addAck(s, r.LeaseID, job.AckStale, fx)
			return
		}
		a.started, a.startedMS = true, a.earliestStartMS()
	}
	if a.session != s {
		if a.session != nil && (a.session.key != s.key || !a.session.closed) {
			d.addAck(s, r.LeaseID, job.AckStale, fx)
			return
		}
		d.bindToSession(a, s)
	}
	d.freeSlot(a, fx)
	switch {
	case a.settled:
		d.addAck(s, r.LeaseID, job.AckStale, fx)
		d.forgetAttempt(a, fx)
	case a.ownEvent:
		a.resultArrived = true
	case a.pendingEvent != nil:
		// A repetition; the answer is on its way.
	default:
		s.resultPace.countResult(fx.currentTime())
		if !a.started {
			s.chargeStarted(1)
		}
		s.markOutdated()
		d.applyMissedStart(a, r, clocks, fx)
		a.over = false
		a.trustedUntil = time.Time{}
		d.submitResult(a, job.FinishAttempt{
			Token: a.token, Outcome: r.Outcome, Permanent: r.Permanent, Error: r.Error, Output: r.Output,
			RetryAfter: r.RetryAfter, StartedMS: a.startedMS, Worker: s.hello.WorkerID,
		}, fx)
	}
}

// newForeignAttempt makes an attempt for a worker's report of a lease that this node does not know; nil if it
// cannot be one of this worker's.
func (d *Dispatcher) newForeignAttempt(s *Session, id string) *attempt {
	record, token, ok := job.ParseLeaseID(id)
	a := &attempt{id: id, record: record, token: token, born: time.Now(), unknownToAttempts: true}
	if !ok || a.jobKey().Namespace != s.hello.Namespace {
		return nil
	}
	a.shard = d.o.Store.ShardOf(a.jobKey())
	d.addAttempt(a, s)
	return a
}

// applyMissedStart sets the start of an attempt whose handler ended before its start was reported.
func (d *Dispatcher) applyMissedStart(a *attempt, r job.Result, clocks map[int]unixtime.Milli, fx *pendingEffects) {
	if a.started {
		if a.startedMS == 0 {
			a.startedMS = a.earliestStartMS()
		}
		return
	}
	now := a.nowMS(clocks)
	a.started, a.startedMS = true, min(now, max(now.Add(-r.Duration), a.earliestStartMS()))
	fx.notices = d.appendStart(fx.notices, a)
}

// submitResult sends the worker's result to the ledger.
func (d *Dispatcher) submitResult(a *attempt, ev job.Input, fx *pendingEffects) {
	a.session.pendingResults++
	a.session.markOutdated()
	d.submitEvent(a, ev, false, fx)
}

// submitOwnEvent sends an event of this node to the ledger.
func (d *Dispatcher) submitOwnEvent(a *attempt, ev job.Input, fx *pendingEffects) {
	a.renewAt = time.Time{}
	d.submitEvent(a, ev, true, fx)
}

func (d *Dispatcher) submitEvent(a *attempt, ev job.Input, byNode bool, fx *pendingEffects) {
	a.pendingEvent, a.ownEvent, a.pendingSince, a.tries, a.retryAt = ev, byNode, fx.currentTime(), 0, time.Time{}
	d.mu.pendingEvents++
	fx.submitChange(a)
	d.scheduleAttempt(a)
}

// applyAnswers applies the ledger's answers. After an answer that is not final the event waits and is sent
// again; it is never dropped before.
func (d *Dispatcher) applyAnswers(attempts []*attempt, answers []job.ChangeSummary) {
	var fx pendingEffects
	d.mu.Lock()
	for i := range answers {
		a, r := attempts[answers[i].Nth], &answers[i]
		if r.Err != nil && !errors.Is(r.Err, job.ErrNotFound) && !errors.Is(r.Err, job.ErrCorrupt) {
			a.tries++
			a.retryAt = fx.currentTime().Add(resubmitPause(a.tries))
			d.metrics.resubmitted.Inc()
			d.scheduleAttempt(a)
			continue
		}
		if a.known == nil && r.Definition != nil {
			a.known = &job.Record{Definition: r.Definition}
		}
		d.endPendingEvent(a, ackStatus(r), &fx)
	}
	d.sendAcks(&fx)
	d.mu.Unlock()
	d.runEffects(&fx)
}

// endPendingEvent ends a pending event.
func (d *Dispatcher) endPendingEvent(a *attempt, status job.AckStatus, fx *pendingEffects) {
	d.mu.pendingEvents--
	_, timedOut := a.pendingEvent.(job.FinishAttempt)
	if timedOut && (status == job.AckAccepted || status == job.AckDuplicate && a.tries > 0) {
		d.reportEnded(a, a.pendingEvent, true, fx)
	} else {
		d.reportEnded(a, nil, true, fx)
	}
	d.ackForgiveLoss(a, status, fx)
	switch {
	case a.lossReported && a.ownEvent:
		d.submitForgiveLoss(a, fx)
		return
	case !a.ownEvent:
		if s := a.session; s != nil {
			full := s.freeSlots() == 0
			s.pendingResults--
			s.markOutdated()
			if full && s.freeSlots() > 0 {
				fx.addFreed(s, 1)
			}
		}
		d.metrics.settle.Observe(fx.currentTime().Sub(a.pendingSince).Seconds())
		a.pendingEvent = nil
		if a.streamOpen() {
			d.addAck(a.session, a.id, status, fx)
		}
	case a.streamOpen() && a.takesSlot && timedOut:
		a.pendingEvent, a.ownEvent, a.over, a.settled = nil, false, true, true
		d.scheduleAttempt(a)
		return
	case a.streamOpen() && a.resultArrived:
		d.addAck(a.session, a.id, job.AckStale, fx)
	}
	a.pendingEvent = nil
	d.forgetAttempt(a, fx)
}

// addAck acknowledges a result, together with those before it.
func (d *Dispatcher) addAck(s *Session, id string, status job.AckStatus, fx *pendingEffects) {
	if fx.ackSession != s {
		d.sendAcks(fx)
		fx.ackSession = s
	}
	fx.acks = append(fx.acks, job.ResultAck{LeaseID: id, Status: status})
}

// sendAcks sends the gathered acks, before the mutex is released.
func (d *Dispatcher) sendAcks(fx *pendingEffects) {
	acks := fx.acks
	fx.acks = nil
	if len(acks) == 0 || !fx.ackSession.queueMessage(acks) {
		return
	}
	for _, a := range acks {
		d.metrics.acks[min(a.Status, job.AckNotFound)].Inc()
	}
}

func ackStatus(r *job.ChangeSummary) job.AckStatus {
	switch {
	case r.Err != nil: // there is no such job, or none that could take a result
		return job.AckNotFound
	case r.Answer == job.Applied:
		return job.AckAccepted
	case r.Answer == job.Duplicate:
		return job.AckDuplicate
	}
	return job.AckStale
}

// resubmitPause grows from 50 ms to 5 s.
func resubmitPause(tries int) time.Duration {
	return min(50*time.Millisecond<<min(tries-1, 10), 5*time.Second)
}
