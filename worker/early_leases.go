package worker

import (
	"slices"
	"time"
)

// While slots are free, leases come some milliseconds before they are due. They take their
// slots at once and start when they are due, by the monotonic time since they came. Like
// running attempts they do not depend on the node or the stream.

// When many attempts are held, those that are due shortly after another start are started together with it, at
// most maxCoalesceDelay later. Their results are then sent and settled together, which costs a fraction. Each
// held attempt adds 10 us to the delay, up to fullCoalesceCount attempts.
const (
	maxCoalesceDelay  = 500 * time.Microsecond
	fullCoalesceCount = 50
)

// Before orders early attempts by start time.
func (a *attempt) Before(other *attempt) bool { return a.startAt.Before(other.startAt) }

// Place is the attempt's index in the heap of early attempts.
func (a *attempt) Place() *int { return &a.heapIndex }

// holdUntilDue keeps an attempt that has a slot until it is due.
func (w *Worker) holdUntilDue(a *attempt) {
	a.phase = phaseEarly
	w.table.early.Push(a)
	if w.table.early.Top() == a {
		w.startTimer.Set(a.startAt)
	}
}

// releaseUnstarted removes an attempt that has a slot and has not started, and frees the slot.
func (w *Worker) releaseUnstarted(a *attempt) {
	if a.phase == phaseEarly {
		w.table.early.Remove(a)
	} else {
		w.table.ready.remove(a)
	}
	w.table.slotsTaken--
	w.startWaiting()
	w.ensureRunner()
}

// startDue makes all due attempts ready.
func (w *Worker) startDue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := &w.table.early
	now := time.Now()
	for len(*held) > 0 && !(*held).Top().startAt.After(now) {
		a := (*held).Top()
		held.Remove(a)
		w.makeReady(a)
	}
	if len(*held) > 0 {
		w.startTimer.Set(coalescedStart((*held).Top().startAt, now, len(*held)))
	}
	w.ensureRunner()
}

// coalescedStart returns when to start the next due attempts, after others have started now and while held are
// held.
func coalescedStart(due, now time.Time, held int) time.Time {
	soonest := now.Add(min(maxCoalesceDelay, time.Duration(held)*maxCoalesceDelay/fullCoalesceCount))
	if due.Before(soonest) {
		return soonest
	}
	return due
}

// returnEarly returns attempts that are not due yet, like returnWaiting. Attempts named in a Hello count as
// started, and as failed if they are returned; the caller keeps those, and they start when due.
func (w *Worker) returnEarly(s *session, when func(*attempt) bool) {
	for _, a := range slices.Clone(w.table.early) {
		if !when(a) {
			continue
		}
		w.releaseUnstarted(a)
		w.forgetAttempt(a)
		w.reportReturned(a, s)
	}
}
