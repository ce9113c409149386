package dispatch

import "github.com/fermata-io/fermata/internal/core/job"

// HandleLost handles a worker's report that it has given up leases while its process kept running: see
// [job.ForgiveLoss]. Most are of other nodes, or of earlier streams. Events that this node still has to submit
// for one, such as a loss, go first.
func (s *Session) HandleLost(leaseIDs []string) {
	d := s.d
	var fx pendingEffects
	d.mu.Lock()
	for _, id := range leaseIDs {
		a := d.mu.attempts[id]
		switch {
		case a == nil:
			if s.returnedForeign >= s.hello.MaxLive() {
				continue // it is reported again
			}
			a = d.newForeignAttempt(s, id)
			if a != nil {
				s.returnedForeign++
				d.submitForgiveLoss(a, &fx)
			}
		case a.session != nil && a.session.key != s.key:
		default:
			d.applyLossReport(s, a, &fx)
		}
	}
	d.mu.Unlock()
	d.runEffects(&fx)
}

// applyLossReport applies a worker's report to an attempt that this node has.
func (d *Dispatcher) applyLossReport(s *Session, a *attempt, fx *pendingEffects) {
	d.freeSlot(a, fx)
	d.bindToSession(a, s)
	switch a.pendingEvent.(type) {
	case nil:
		d.submitForgiveLoss(a, fx)
	case job.ForgiveLoss:
	default:
		a.lossReported = true
	}
}

// submitForgiveLoss submits that a loss does not count.
func (d *Dispatcher) submitForgiveLoss(a *attempt, fx *pendingEffects) {
	a.lossReported = false
	d.submitOwnEvent(a, job.ForgiveLoss{Token: a.token}, fx)
}

// ackForgiveLoss acknowledges the report to the worker.
func (d *Dispatcher) ackForgiveLoss(a *attempt, status job.AckStatus, fx *pendingEffects) {
	if _, ok := a.pendingEvent.(job.ForgiveLoss); ok && a.streamOpen() {
		d.addAck(a.session, a.id, status, fx)
	}
}
