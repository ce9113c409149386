package dispatch

import (
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// takeOver gives a new session what its worker says it has, and deals with what
// an earlier session on this node leaves.
func (d *Dispatcher) takeOver(s, prev *Session, fx *effects) {
	now := time.Now()
	for _, id := range s.hello.Live {
		record, token, ok := job.ParseLeaseID(id)
		if key, _, _ := job.ParseRecord(record); !ok || key.Namespace != s.hello.Namespace {
			s.send(job.Cancellation{LeaseIDs: []string{id}, Reason: job.CancelLeaseLost})
			continue
		}
		switch a := d.mu.attempts[id]; {
		case a == nil:
			d.adoptUnknown(s, id, record, token, now)
		case a.session == s:
		case a.session == nil || a.session.key == s.key:
			d.adoptKnown(s, a, now, fx)
		default:
			s.send(job.Cancellation{LeaseIDs: []string{id}, Reason: job.CancelLeaseLost})
		}
	}
	if prev != nil {
		d.replace(s, prev, fx)
	}
}

// adoptKnown moves an attempt of this node to the worker's new session.
func (d *Dispatcher) adoptKnown(s *Session, a *attempt, now time.Time, fx *effects) {
	d.bind(a, s)
	switch {
	case a.over || a.byNode:
		s.cancel(a, job.CancelLeaseLost)
	case a.pending != nil:
		// Its result is on the way; the acknowledgement goes to the new stream.
	default:
		if !a.started {
			// The word of its start was lost with the stream. It may have
			// started as late as now, which is what its timeout counts from.
			nowMS := a.nowMS(nil)
			a.start(now, nowMS, d.o.Store.Latest(a.shard), d.o.margin())
			a.startedMS = min(nowMS, a.leasedMS())
			fx.notices = d.appendStart(fx.notices, a)
		}
		d.begin(a, now)
		if a.cancelled || a.rec != nil && a.rec.State.Cancel {
			s.cancel(a, job.CancelRequested) // the word may have been lost with the stream
		}
	}
	d.schedule(a)
}

// adoptUnknown makes an attempt of which only the worker's word is known. The lease was last
// prolonged by another node, up to renewEvery before the worker lost it, which most often
// was a moment ago.
func (d *Dispatcher) adoptUnknown(s *Session, id, record string, token uint64, now time.Time) {
	left := d.o.LeaseTTL - d.o.renewEvery() - d.o.margin()
	a := &attempt{id: id, record: record, token: token, born: now, busy: true, until: now.Add(left), foreign: true}
	a.shard = d.o.Store.ShardOf(a.key())
	a.wantRead = true
	d.add(a, s)
	d.begin(a, now)
	d.schedule(a)
}

// begin takes a lease over from an earlier session: the worker has it, so it has
// started, and the store is to be told at once.
func (d *Dispatcher) begin(a *attempt, now time.Time) {
	a.adopting, a.started = true, true
	if a.rec != nil {
		a.resume(d.o.LeaseTTL, d.o.margin())
	}
	a.renewAt = now
}

// replace ends the session that s follows. What its worker does not name any
// more has ended: with the attempt never seen if it had not started, with the
// process that ran it otherwise.
func (d *Dispatcher) replace(s, prev *Session, fx *effects) {
	later := s.hello.Epoch > prev.hello.Epoch
	if !prev.closed {
		d.detach(prev, fx)
		prev.stop(job.ErrSuperseded)
		later = true
	}
	for _, a := range slices.Clone(prev.attempts) { // which some of them leave
		switch {
		case a.over:
			d.forget(a, fx)
		case a.pending != nil:
			d.free(a, fx)
			a.renewAt = time.Time{}
			d.schedule(a)
		case !later:
			// A process that counts from the start again may not know what the
			// one before it still runs.
			d.orphan(a, fx)
		case a.started:
			d.metrics.lost.WithLabelValues("disclaimed").Inc()
			d.leave(a, d.loss(a), fx)
		default:
			d.giveBack(a, "unsent", fx)
		}
	}
}

// loss says that a started attempt has ended without a result. That it was
// acknowledged may not be stored yet, so it is said here.
func (d *Dispatcher) loss(a *attempt) job.Event {
	if a.rec != nil {
		rec := *a.rec
		rec.State.Acked = true
		a.rec = &rec
	}
	return job.Lose{Token: a.token}
}
