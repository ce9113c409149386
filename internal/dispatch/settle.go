package dispatch

import (
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// Results takes the ends of attempts. Each is acknowledged when the ledger has
// answered for good, on the session that the worker has then.
func (s *Session) Results(results []job.Result) {
	d := s.d
	ids := make([]string, len(results))
	for i, r := range results {
		ids[i] = r.LeaseID
	}
	clocks := d.clocksOf(ids)
	var fx effects
	fx.submitted, fx.changes = make([]*attempt, 0, len(results)), make([]job.Change, 0, len(results))
	fx.expect(len(results))
	d.mu.Lock()
	for _, r := range results {
		d.result(s, r, clocks, &fx)
	}
	d.sendAcks(&fx)
	if s.pending > s.maxPending() {
		s.stop(job.ErrSlowWorker)
	}
	d.mu.Unlock()
	d.finish(&fx)
}

func (d *Dispatcher) result(s *Session, r job.Result, clocks map[int]int64, fx *effects) {
	a := d.mu.attempts[r.LeaseID]
	if a == nil {
		if a = d.foreign(s, r.LeaseID); a == nil {
			d.ack(s, r.LeaseID, job.AckStale, fx)
			return
		}
		a.started, a.startedMS = true, a.leasedMS()
	}
	if a.session != s {
		if a.session != nil && (a.session.key != s.key || !a.session.closed) {
			d.ack(s, r.LeaseID, job.AckStale, fx)
			return
		}
		d.bind(a, s)
	}
	d.free(a, fx)
	switch {
	case a.settled:
		d.ack(s, r.LeaseID, job.AckStale, fx)
		d.forget(a, fx)
	case a.byNode:
		a.reported = true
	case a.pending != nil:
		// A repetition; the answer is on its way.
	default:
		s.pace.note(fx.now())
		s.changed()
		d.began(a, r, clocks, fx)
		a.over = false
		a.until = time.Time{}
		d.settle(a, job.Settle{
			Token: a.token, Outcome: r.Outcome, Permanent: r.Permanent, Error: r.Error, Output: r.Output,
			RetryAfter: r.RetryAfter, StartedMS: a.startedMS, Worker: s.hello.WorkerID,
		}, fx)
	}
}

// foreign makes an attempt for what a worker says of a lease that this node does not know;
// nil if it cannot be one of this worker's.
func (d *Dispatcher) foreign(s *Session, id string) *attempt {
	record, token, ok := job.ParseLeaseID(id)
	a := &attempt{id: id, record: record, token: token, born: time.Now(), foreign: true}
	if !ok || a.key().Namespace != s.hello.Namespace {
		return nil
	}
	a.shard = d.o.Store.ShardOf(a.key())
	d.add(a, s)
	return a
}

// began supplies the start of an attempt whose handler was done before its start
// was reported.
func (d *Dispatcher) began(a *attempt, r job.Result, clocks map[int]int64, fx *effects) {
	if a.started {
		if a.startedMS == 0 {
			a.startedMS = a.leasedMS()
		}
		return
	}
	now := a.nowMS(clocks)
	a.started, a.startedMS = true, min(now, max(now-r.Duration.Milliseconds(), a.leasedMS()))
	fx.notices = d.appendStart(fx.notices, a)
}

// settle sends the worker's result to the ledger.
func (d *Dispatcher) settle(a *attempt, ev job.Event, fx *effects) {
	a.session.pending++
	a.session.changed()
	d.commit(a, ev, false, fx)
}

// leave sends an event of this node's own.
func (d *Dispatcher) leave(a *attempt, ev job.Event, fx *effects) {
	a.renewAt = time.Time{}
	d.commit(a, ev, true, fx)
}

func (d *Dispatcher) commit(a *attempt, ev job.Event, byNode bool, fx *effects) {
	a.pending, a.byNode, a.since, a.tries, a.retryAt = ev, byNode, fx.now(), 0, time.Time{}
	d.mu.pending++
	fx.submit(a)
	d.schedule(a)
}

// settled takes the ledger's answers. An answer that is not final makes the event
// wait and go again; it is never forgotten before.
func (d *Dispatcher) settled(attempts []*attempt, answers []job.Answered) {
	var fx effects
	d.mu.Lock()
	for i := range answers {
		a, r := attempts[answers[i].Nth], &answers[i]
		if r.Err != nil && !errors.Is(r.Err, job.ErrNotFound) && !errors.Is(r.Err, job.ErrCorrupt) {
			a.tries++
			a.retryAt = fx.now().Add(resubmitPause(a.tries))
			d.metrics.resubmitted.Inc()
			d.schedule(a)
			continue
		}
		if a.rec == nil && r.Definition != nil {
			a.rec = &job.Record{Definition: r.Definition}
		}
		d.answered(a, ackStatus(r), &fx)
	}
	d.sendAcks(&fx)
	d.mu.Unlock()
	d.finish(&fx)
}

// answered ends a pending event.
func (d *Dispatcher) answered(a *attempt, status job.AckStatus, fx *effects) {
	d.mu.pending--
	_, timedOut := a.pending.(job.Settle)
	if timedOut && (status == job.AckAccepted || status == job.AckDuplicate && a.tries > 0) {
		d.ended(a, a.pending, true, fx)
	} else {
		d.ended(a, nil, true, fx)
	}
	d.forgiven(a, status, fx)
	switch {
	case a.lost && a.byNode:
		d.forgive(a, fx)
		return
	case !a.byNode:
		if s := a.session; s != nil {
			full := s.free() == 0
			s.pending--
			s.changed()
			if full && s.free() > 0 {
				fx.freed(s, 1)
			}
		}
		d.metrics.settle.Observe(fx.now().Sub(a.since).Seconds())
		a.pending = nil
		if a.live() {
			d.ack(a.session, a.id, status, fx)
		}
	case a.live() && a.busy && timedOut:
		a.pending, a.byNode, a.over, a.settled = nil, false, true, true
		d.schedule(a)
		return
	case a.live() && a.reported:
		d.ack(a.session, a.id, job.AckStale, fx)
	}
	a.pending = nil
	d.forget(a, fx)
}

// ack acknowledges a result, together with those before it.
func (d *Dispatcher) ack(s *Session, id string, status job.AckStatus, fx *effects) {
	if fx.to != s {
		d.sendAcks(fx)
		fx.to = s
	}
	fx.acks = append(fx.acks, job.ResultAck{LeaseID: id, Status: status})
}

// sendAcks sends what ack has gathered, before the mutex is released.
func (d *Dispatcher) sendAcks(fx *effects) {
	acks := fx.acks
	if fx.acks = nil; len(acks) == 0 || !fx.to.send(acks) {
		return
	}
	for _, a := range acks {
		d.metrics.acks[min(a.Status, job.AckNotFound)].Inc()
	}
}

func ackStatus(r *job.Answered) job.AckStatus {
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
