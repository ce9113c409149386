package faultyworker

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// maxWait is how long a lease may wait for a slot, repeatPeriod how long returned leases are returned again.
const (
	maxWait      = 50 * time.Millisecond
	repeatPeriod = 15 * time.Second
)

// attempt is one lease until its result is acknowledged.
type attempt struct {
	id      string
	lease   *fermatav1.Lease
	ctx     context.Context
	cancel  context.CancelCauseFunc
	slot    bool
	running bool
	gone    bool // forgotten
	lost    bool
	result  *fermatav1.Result
	sent    int // times that the result was sent
	lostOn  *stream
}

type returnedLease struct {
	id string
	at time.Time
}

// accept takes leases, under the mutex.
func (w *worker) accept(s *stream, leases []*fermatav1.Lease) {
	for _, l := range leases {
		id := l.GetLeaseId()
		have := w.attempts[id]
		switch {
		case have != nil && !w.has("runs-twice"):
			if have.result != nil {
				w.sendResult(have)
			}
			continue
		case (w.draining && !w.has("starts-while-draining")) || s != w.stream || s.superseded:
			w.returnLeases(s, id)
			continue
		}
		a := &attempt{id: id, lease: l}
		a.ctx, a.cancel = context.WithCancelCause(context.Background())
		w.attempts[id] = a
		if w.slotsTaken < w.places || w.has("ignores-slots") {
			w.takeSlot(a)
			continue
		}
		w.waiting = append(w.waiting, a)
		if !w.has("keeps-waiting-leases") && !w.has("one-at-a-time") {
			time.AfterFunc(maxWait, func() { w.returnLate(a) })
		}
	}
}

func (w *worker) takeSlot(a *attempt) {
	a.slot = true
	w.slotsTaken++
	after := a.lease.GetStartAfter().AsDuration()
	if w.has("starts-early") {
		after /= 2
	}
	if after <= 0 {
		w.begin(a)
		return
	}
	time.AfterFunc(after, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.begin(a)
	})
}

// begin starts the handler of an attempt that has a slot, unless its lease is not trusted any more.
func (w *worker) begin(a *attempt) {
	if a.gone || a.lost {
		return
	}
	if !time.Now().Before(w.trustedUntil) && !w.has("starts-without-trust") && !w.has("keeps-stream") {
		w.freeSlot(a)
		w.forget(a)
		w.pendingReturns = append(w.pendingReturns, a.id)
		return
	}
	a.running = true
	if w.stream != nil && !w.has("no-started") {
		w.stream.send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Started{
			Started: &fermatav1.Started{LeaseIds: []string{a.id}},
		}})
	}
	timeout := a.lease.GetTimeout().AsDuration()
	if w.has("early-timeout") {
		timeout = timeout * 3 / 4
	}
	var timer *time.Timer
	if (timeout > 0 || w.has("zero-timeout")) && !w.has("no-timeout") {
		timer = time.AfterFunc(timeout, func() { a.cancel(errTimeout) })
	}
	if w.has("result-before-end") {
		a.result = w.newResult(a.id, []byte("slept"), nil, nil)
		w.sendResult(a)
	}
	go func() {
		output, err := w.call(a.ctx, a.lease)
		if timer != nil {
			timer.Stop()
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.finish(a, output, err)
	}()
}

// finish records the end of a handler.
func (w *worker) finish(a *attempt, output []byte, err error) {
	a.running = false
	w.freeSlot(a)
	defer w.startWaiting()
	cause := context.Cause(a.ctx)
	switch {
	case err != nil && a.lost:
		w.forget(a)
		if a.lostOn != nil && a.lostOn == w.stream {
			w.stream.send(returnedMessage(a.id))
		}
		w.reportLost(a.id)
	case err != nil && errors.Is(cause, errStopped) && !w.has("counts-stopped"):
		w.cutOff = true
		w.forget(a)
		w.reportLost(a.id)
	case a.lease.GetHandler() == "check.missing" && w.has("ignores-missing-handler"),
		errors.Is(cause, errCancelled) && w.has("no-result-after-cancel"):
		w.forget(a)
	case w.stream == nil && w.has("drops-results-without-stream"):
		w.forget(a)
	default:
		a.result = w.newResult(a.id, output, err, cause)
		w.sendResult(a)
	}
}

func (w *worker) freeSlot(a *attempt) {
	if a.slot {
		a.slot = false
		w.slotsTaken--
	}
}

func (w *worker) startWaiting() {
	for len(w.waiting) > 0 && w.slotsTaken < w.places {
		i := 0
		if w.has("newest-first") {
			i = len(w.waiting) - 1
		}
		a := w.waiting[i]
		w.waiting = slices.Delete(w.waiting, i, i+1)
		w.takeSlot(a)
	}
}

// returnLate returns an attempt that has waited too long.
func (w *worker) returnLate(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.waiting, a); i >= 0 {
		w.waiting = slices.Delete(w.waiting, i, i+1)
		w.forget(a)
		if w.stream == nil {
			w.pendingReturns = append(w.pendingReturns, a.id)
			return
		}
		w.returnLeases(w.stream, a.id)
	}
}

// returnWaiting returns all that has not begun.
func (w *worker) returnWaiting() {
	for _, a := range w.waiting {
		w.forget(a)
		if w.stream != nil {
			w.returnLeases(w.stream, a.id)
		} else {
			w.pendingReturns = append(w.pendingReturns, a.id)
		}
	}
	w.waiting = nil
}

func (w *worker) forget(a *attempt) {
	a.gone = true
	if w.attempts[a.id] == a {
		delete(w.attempts, a.id)
	}
}

// sendResult sends a result if there is a stream.
func (w *worker) sendResult(a *attempt) {
	if w.stream == nil || w.stream.superseded || a.sent > 1 && w.has("sends-results-twice") {
		return
	}
	r := a.result
	if a.sent > 0 && w.has("forgets-outputs") {
		r = &fermatav1.Result{LeaseId: r.GetLeaseId(), Outcome: r.GetOutcome()}
	}
	a.sent++
	w.stream.send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Results{
		Results: &fermatav1.Results{Results: []*fermatav1.Result{r}},
	}})
	if w.has("forgets-results") {
		w.forget(a)
	}
}

// handleAcks forgets what is acknowledged.
func (w *worker) handleAcks(s *stream, acks []*fermatav1.ResultAck) {
	if s != w.stream || s.superseded {
		return
	}
	for _, ack := range acks {
		a := w.attempts[ack.GetLeaseId()]
		if a == nil {
			if !w.has("repeats-lost") {
				w.lost = slices.DeleteFunc(w.lost, func(id string) bool { return id == ack.GetLeaseId() })
			}
			continue
		}
		if a.result == nil || w.has("keeps-results") ||
			ack.GetStatus() != fermatav1.ResultAck_STATUS_ACCEPTED && w.has("keeps-refused-results") {
			continue
		}
		w.forget(a)
		if ack.GetStatus() == fermatav1.ResultAck_STATUS_STALE && !w.has("no-lost-after-stale") {
			w.reportLost(a.id)
		}
	}
}

// handleCancel ends handlers.
func (w *worker) handleCancel(s *stream, c *fermatav1.Cancel) {
	lost := c.GetReason() == fermatav1.Cancel_REASON_LEASE_LOST
	if w.has("no-cancel") || lost && w.has("no-cancel-of-lost") {
		return
	}
	cause := errCancelled
	if c.GetReason() == fermatav1.Cancel_REASON_TIMED_OUT {
		cause = errTimeout
	}
	for id, a := range w.attempts {
		if !slices.Contains(c.GetLeaseIds(), id) && !w.has("cancels-all") {
			continue
		}
		if lost {
			a.lost, a.lostOn, cause = true, s, errLost
		}
		if a.slot && !a.running && !w.has("starts-cancelled-leases") { // early
			w.freeSlot(a)
			w.forget(a)
			w.returnLeases(s, id)
		}
		a.cancel(cause)
	}
	if slices.ContainsFunc(c.GetLeaseIds(), func(id string) bool { return w.attempts[id] == nil }) &&
		w.has("dies-of-unknown-cancel") {
		os.Exit(3)
	}
}

func returnedMessage(ids ...string) *fermatav1.WorkRequest {
	return &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Returned{Returned: &fermatav1.Returned{LeaseIds: ids}}}
}

// returnLeases returns leases and remembers that.
func (w *worker) returnLeases(s *stream, ids ...string) {
	if len(ids) == 0 {
		return
	}
	s.send(returnedMessage(ids...))
	for _, id := range ids {
		w.returned = append(w.returned, returnedLease{id, time.Now()})
	}
}

// reportLost reports a lease as lost until that is acknowledged.
func (w *worker) reportLost(id string) {
	if w.has("no-lost") {
		return
	}
	w.lost = append(w.lost, id)
	if w.stream != nil {
		w.stream.send(lostMessage(id))
	}
}

func lostMessage(ids ...string) *fermatav1.WorkRequest {
	return &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Lost{Lost: &fermatav1.Lost{LeaseIds: ids}}}
}

// loseAll gives up all leases: they are not trusted any more.
func (w *worker) loseAll() {
	for _, a := range w.waiting {
		w.forget(a)
		w.pendingReturns = append(w.pendingReturns, a.id)
	}
	w.waiting = nil
	for _, a := range w.attempts {
		switch {
		case a.lost || a.result != nil:
		case a.running:
			a.lost = true
			a.cancel(errLost)
		default: // early
			w.freeSlot(a)
			w.forget(a)
			w.pendingReturns = append(w.pendingReturns, a.id)
		}
	}
}
