package worker

import (
	"log/slog"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// deliver puts the result of an ended attempt into the outbox of the stream there
// is. Without one, or while another node is asked to take over, it waits for the
// next.
func (w *Worker) deliver(a *attempt) {
	s := w.table.current
	if s == nil || s.superseded {
		if a.void && a.known != w.table.opening {
			w.giveUp(a)
		}
		return
	}
	if a.void {
		w.disclaim(a, s)
		return
	}
	a.sentOn, a.sentAt = s, time.Now()
	s.out.results = append(s.out.results, a)
}

// disclaim forgets an attempt that failed because its lease was lost. A node hears of it that
// waits for word, to free the slot, or that has taken the lease over just before this worker
// gave it up: it is no failure of the handler.
func (w *Worker) disclaim(a *attempt, s *session) {
	if a.lostOn == s.epoch || a.known == s.epoch {
		s.out.returned = append(s.out.returned, a.id)
	}
	w.giveUp(a)
}

// acknowledge ends the repetition of results. Once another node was asked to take
// the leases over, only its word counts: it has to hear of every lease named to it.
func (w *Worker) acknowledge(s *session, acks []ack) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s != w.table.current || s.superseded {
		return
	}
	for _, ack := range acks {
		a := w.table.attempts[ack.id]
		if a == nil {
			w.lossAcknowledged(ack.id)
		}
		if a == nil || a.phase != ended {
			continue
		}
		w.forget(a)
		if ack.status == fermatav1.ResultAck_STATUS_STALE {
			w.reportLost(a.id)
			w.log(slog.LevelInfo, "result came after the lease had ended: no effect", a)
		}
	}
	w.checkIdle()
}

// cancelLeases ends handlers at a node's word.
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
			w.loseOne(s, a)
		case c.GetReason() == fermatav1.Cancel_REASON_TIMED_OUT:
			w.timeOut(a)
		default:
			w.cancelOne(s, a)
		}
	}
	s.wakeUp()
}

// loseOne takes a node's word that a lease is lost. A node that the lease was
// taken away from, by a later Hello, says so of a lease that lives elsewhere.
func (w *Worker) loseOne(s *session, a *attempt) {
	if a.known > s.epoch {
		return
	}
	a.lost, a.lostOn = true, s.epoch
	switch a.phase {
	case early, ready:
		w.release(a)
		fallthrough
	case queued:
		w.forget(a)
		s.out.returned = append(s.out.returned, a.id)
	case running:
		a.ctx.end(ErrLeaseLost, time.Now())
	}
}

// cancelOne cancels a handler, or gives back what has not started: a result would count as
// a start. The run is marked as cancelled and ends with that.
func (w *Worker) cancelOne(s *session, a *attempt) {
	switch a.phase {
	case running:
		a.ctx.end(ErrCancelled, time.Now())
	case early, ready:
		w.release(a)
		fallthrough
	case queued:
		w.forget(a)
		s.sendBack(a.id)
	}
}

// timeOut ends a handler, or reports for one that has not started.
func (w *Worker) timeOut(a *attempt) {
	switch a.phase {
	case running:
		a.ctx.end(ErrTimeout, time.Now())
	case early, ready:
		w.release(a)
		fallthrough
	case queued:
		a.phase = ended
		a.result = result{outcome: fermatav1.Result_OUTCOME_TIMED_OUT, text: ErrTimeout.Error() + " before it started"}
		w.deliver(a)
	}
}

// loseAll gives up all leases: they are not trusted any more. What has not started goes back
// with the next session, at no cost if its lease still stands.
func (w *Worker) loseAll() {
	t := &w.table
	var lost int
	var stopping []*attempt
	w.giveBack(nil, always)
	w.giveBackEarly(nil, always)
	w.giveBackReady(nil)
	w.reportLost(t.owed...)
	for _, a := range t.attempts {
		if a.lost {
			continue
		}
		lost++
		a.lost, a.lostOn, a.lostAt, a.sentOn = true, 0, time.Now(), nil
		switch a.phase {
		case running:
			a.ctx.end(ErrLeaseLost, time.Now())
			stopping = append(stopping, a)
		case ended:
			w.deliver(a)
		}
	}
	if len(stopping) > 0 {
		u := w.unwind(len(stopping))
		for _, a := range stopping {
			a.unwinding = u
		}
	}
	w.checkIdle()
	if lost > 0 {
		w.o.Logger.Warn("leases could not be confirmed in time and are lost", "attempts", lost)
	}
}
