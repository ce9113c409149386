package dispatch

import (
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Close ends the session. Leases that never left this process, or that reached a worker which had left, are
// returned; the others are left to the worker's next session. They are renewed once more; if the worker sent
// heartbeats, for the rest of the session's life. Further calls do nothing.
func (s *Session) Close(reason string, unsent []job.WorkerMessage) {
	d := s.d
	var fx pendingEffects
	d.mu.Lock()
	if s.closed {
		d.mu.Unlock()
		return
	}
	held := len(s.attempts)
	d.detachSession(s, &fx)
	if len(s.heldAssignments) > 0 {
		unsent = append(unsent, s.heldAssignments)
		s.heldAssignments = nil
	}
	d.returnUnsent(s, unsent, &fx)
	for _, a := range slices.Clone(s.attempts) { // the loop body removes some of them
		if s.drained && !a.started && !a.over && a.pendingEvent == nil {
			d.returnLease(a, "closed", &fx)
			continue
		}
		d.orphanAttempt(a, &fx)
	}
	d.dropEmptySession(s)
	d.mu.Unlock()
	d.runEffects(&fx)
	d.o.Logger.Info("worker disconnected", "worker", s.hello.WorkerID, "namespace", s.hello.Namespace,
		"identity", s.hello.Identity, "reason", reason, "attempts", held)
}

// detachSession removes a session from its queues.
func (d *Dispatcher) detachSession(s *Session, fx *pendingEffects) {
	s.closed = true
	d.returnUnits(s)
	d.stopHeartbeats(s)
	d.leaveGroup(s)
	for _, x := range s.queueEntries {
		x.sessions.removeEntry(x)
		if len(x.sessions.entries) > 0 {
			d.passQueueOn(x.sessions)
			continue
		}
		d.removeQueue(x.sessions)
		fx.demandChanged = true
	}
	s.queueEntries, s.upToDateEntries = nil, nil
}

// returnUnsent returns the leases among messages that were not sent.
func (d *Dispatcher) returnUnsent(s *Session, unsent []job.WorkerMessage, fx *pendingEffects) {
	for _, m := range unsent {
		assignments, _ := m.(job.Assignments)
		for _, l := range assignments {
			if a := d.mu.attempts[l.LeaseID]; a != nil && a.session == s && a.pendingEvent == nil && !a.started {
				d.returnLease(a, "unsent", fx)
			}
		}
	}
}

// orphanAttempt handles an attempt whose stream was cut. A started attempt is renewed once more, so that its lease
// lasts for the rest of the session. Whether the worker received an attempt that has not started is unknown: the worker
// reports it, or the lease ends uncounted.
func (d *Dispatcher) orphanAttempt(a *attempt, fx *pendingEffects) {
	switch {
	case a.over:
		d.forgetAttempt(a, fx)
		return
	case a.pendingEvent != nil:
		a.renewAt = time.Time{}
	case a.started || a.session.endsLeasesEarly():
		a.renewAt = time.Now()
	default:
		a.renewAt = time.Time{}
	}
	a.cancelled = false
	if a.pendingEvent == nil {
		// Its worker may continue it elsewhere, and end it there. The node that has it then is notified.
		d.reportEnded(a, nil, false, fx)
		a.unknownToAttempts, a.endReported = true, false
	}
	d.scheduleAttempt(a)
}
