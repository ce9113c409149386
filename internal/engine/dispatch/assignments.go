package dispatch

import "github.com/fermata-io/fermata/internal/core/job"

// HoldAssignments makes the next calls of Deliver hold their messages, so that a worker gets one message with the
// leases of all of them. [Dispatcher.ReleaseAssignments] sends it. It has to follow at once: nothing between the two
// may wait.
func (d *Dispatcher) HoldAssignments() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.assignmentHolds++
}

// ReleaseAssignments ends a HoldAssignments and sends all messages that are held. Other holds that are still open do
// not delay them.
func (d *Dispatcher) ReleaseAssignments() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.assignmentHolds--
	for i, s := range d.mu.holdingSessions {
		s.sendHeldAssignments()
		d.mu.holdingSessions[i] = nil
	}
	d.mu.holdingSessions = d.mu.holdingSessions[:0]
}

// sendAssignments sends leases to their worker, or holds them. If the stream does not accept them they were never sent.
func (d *Dispatcher) sendAssignments(s *Session, batch job.Assignments, fx *pendingEffects) {
	if d.mu.assignmentHolds > 0 && !s.closed {
		if len(s.heldAssignments) == 0 {
			d.mu.holdingSessions = append(d.mu.holdingSessions, s)
		}
		s.heldAssignments = append(s.heldAssignments, batch...)
		return
	}
	if s.sendMessage(batch) {
		d.metrics.delivered.Add(float64(len(batch)))
		return
	}
	for _, l := range batch {
		if a := d.mu.attempts[l.LeaseID]; a != nil {
			d.returnLease(a, "unsent", fx)
		}
	}
}

// sendHeldAssignments sends the assignments that are held. If the stream does not accept them it ends, and Close
// returns them as unsent.
func (s *Session) sendHeldAssignments() {
	if len(s.heldAssignments) > 0 && s.queueMessage(s.heldAssignments) {
		s.d.metrics.delivered.Add(float64(len(s.heldAssignments)))
		s.heldAssignments = nil
	}
}
