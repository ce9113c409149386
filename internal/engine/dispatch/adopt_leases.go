package dispatch

import (
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// adoptLeases gives a new session the leases that its worker reports, and ends an earlier session on this node.
func (d *Dispatcher) adoptLeases(s, prev *Session, fx *pendingEffects) {
	now := time.Now()
	for _, id := range s.hello.Live {
		record, token, ok := job.ParseLeaseID(id)
		if !ok || record.Namespace() != s.hello.Namespace {
			s.sendMessage(job.Cancellation{LeaseIDs: []string{id}, Reason: job.CancelLeaseLost})
			continue
		}
		switch a := d.mu.attempts[id]; {
		case a == nil:
			d.adoptUnknown(s, id, record, token, now)
		case a.session == s:
		case a.session == nil || a.session.key == s.key:
			d.adoptKnown(s, a, now, fx)
		default:
			s.sendMessage(job.Cancellation{LeaseIDs: []string{id}, Reason: job.CancelLeaseLost})
		}
	}
	if prev != nil {
		d.endPreviousSession(s, prev, fx)
	}
}

// adoptKnown moves an attempt of this node to the worker's new session.
func (d *Dispatcher) adoptKnown(s *Session, a *attempt, now time.Time, fx *pendingEffects) {
	d.bindToSession(a, s)
	switch {
	case a.over || a.ownEvent:
		s.cancelAttempt(a, job.CancelLeaseLost)
	case a.pendingEvent != nil:
		// Its result is on the way; the acknowledgement goes to the new stream.
	default:
		if !a.started {
			// The report of its start was lost with the stream. It may have started just now, which is the
			// instant that its timeout counts from.
			nowMS := a.nowMS(nil)
			a.markStarted(now, nowMS, d.o.Store.Latest(a.shard), d.o.margin())
			a.startedMS = min(nowMS, a.earliestStartMS())
			fx.notices = d.appendStart(fx.notices, a)
		}
		d.startAdopted(a, now)
		if a.cancelled || a.known != nil && a.known.State.Cancel {
			s.cancelAttempt(a, job.CancelRequested) // the first request may have been lost with the stream
		}
	}
	d.scheduleAttempt(a)
}

// adoptUnknown makes an attempt that is known only from the worker's report. Another node renewed the lease
// last, up to renewEvery before the worker lost its stream, which usually was a moment ago.
func (d *Dispatcher) adoptUnknown(s *Session, id string, record job.RecordID, token uint64, now time.Time) {
	left := d.o.LeaseTTL - d.o.renewEvery() - d.o.margin()
	a := &attempt{id: id, record: record, token: token, born: now, takesSlot: true, trustedUntil: now.Add(left),
		unknownToAttempts: true}
	a.shard = d.o.Store.ShardOf(a.jobKey())
	a.wantRead = true
	d.addAttempt(a, s)
	d.startAdopted(a, now)
	d.scheduleAttempt(a)
}

// startAdopted adopts a lease of an earlier session. The worker has it, so it has started, and that is to be
// stored at once.
func (d *Dispatcher) startAdopted(a *attempt, now time.Time) {
	a.adopting, a.started = true, true
	if a.known != nil {
		a.boundAdopted(d.o.LeaseTTL, d.o.margin())
	}
	a.renewAt = now
}

// endPreviousSession ends the session that s follows. Attempts that the worker does not report any more have
// ended: if they had not started, no handler saw them; otherwise they ended with the process that ran them.
func (d *Dispatcher) endPreviousSession(s, prev *Session, fx *pendingEffects) {
	later, returned := s.hello.Epoch > prev.hello.Epoch, 0
	s.inheritReturns(prev)
	if !prev.closed {
		d.detachSession(prev, fx)
		prev.stopStream(job.ErrSuperseded)
		later = true
	}
	for _, a := range slices.Clone(prev.attempts) { // the loop body removes some of them
		switch {
		case a.over:
			d.forgetAttempt(a, fx)
		case a.pendingEvent != nil:
			d.freeSlot(a, fx)
			a.renewAt = time.Time{}
			d.scheduleAttempt(a)
		case !later:
			// A restarted process may not know what the previous one still runs.
			d.orphanAttempt(a, fx)
		case a.started:
			d.metrics.lost.WithLabelValues("disclaimed").Inc()
			d.submitOwnEvent(a, d.newLossEvent(a), fx)
		default:
			d.returnLease(a, "unsent", fx)
			returned++
		}
	}
	s.chargeReturned(returned)
}

// newLossEvent is the event that a started attempt has ended without a result. It carries that the attempt was
// acknowledged, which may not be stored yet.
func (d *Dispatcher) newLossEvent(a *attempt) job.Input {
	if a.known != nil {
		rec := *a.known
		rec.State.Acked = true
		a.known = &rec
	}
	return job.LoseLease{Token: a.token}
}
