package worker

import (
	"slices"
	"time"
)

// runHandlers is the goroutine of one runner. It calls handlers, one after the other, on the same stack, which
// has grown to what handlers need. One runner at a time is started or woken, and it does the same for the next
// runner before it calls its own handler. So few goroutines call many short handlers in a row, and a handler
// that blocks delays the next one by one goroutine switch.
func (w *Worker) runHandlers() {
	var a *attempt
	var start time.Time
	defer func() {
		if a != nil {
			// The handler called runtime.Goexit, so this goroutine cannot continue.
			e := a.endHandler(newFailure(errGoexit), start)
			result := w.buildResult(a, e)
			w.mu.Lock()
			w.finishAttempt(a, e, result)
			w.ensureRunner()
			w.mu.Unlock()
		}
	}()
	w.mu.Lock()
	w.table.runnerStarting = false
	a, start = w.awaitAttempt(time.Now())
	w.mu.Unlock()
	for a != nil {
		a.ctx.startTimeout(start, a.task.Timeout)
		if w.isTraced(a) {
			w.beginSpan(a, start)
		}
		e := a.endHandler(w.callHandler(a), start)
		result := w.buildResult(a, e)
		w.mu.Lock()
		w.finishAttempt(a, e, result)
		a, start = w.awaitAttempt(e.at)
		w.mu.Unlock()
	}
}

// awaitAttempt returns the attempt whose handler the runner calls next, and the current time. It returns nil
// when the worker has stopped. All handlers start here, and none while the leases are not trusted.
func (w *Worker) awaitAttempt(now time.Time) (*attempt, time.Time) {
	t := &w.table
	for t.ready.isEmpty() || !w.trustsLeases(now) {
		if t.stopped {
			return nil, now
		}
		t.idleRunners++
		w.runnerWake.Wait()
		t.idleRunners--
		t.runnerStarting = false
		now = time.Now()
	}
	a := t.ready.pop()
	a.phase = phaseRunning
	w.metrics.running.Inc()
	if t.current != nil {
		t.current.out.started = append(t.current.out.started, a)
		t.latestStarted, t.latestStart, t.previousStart = a, now, t.latestStart
		w.scheduleFlush(now, nil)
	}
	w.ensureRunner()
	return a, now
}

// scheduleFlush schedules sending starts and results. Those that come in a row are coalesced into one message,
// so that attempts leased together are settled together. A result is sent at once if no other is expected: no
// attempt is ready, and the other handlers have run for a while. A start can wait, because it is most often sent
// with its result. ended is the attempt that has a result, or nil if there is only a start. While results are
// frequent all of this waits longer: see gather.go.
func (w *Worker) scheduleFlush(now time.Time, ended *attempt) {
	t := &w.table
	s := t.current
	if s == nil {
		return
	}
	if t.pendingSince.IsZero() {
		t.pendingSince = now
	}
	if ended != nil {
		s.resultRate.Count(1, now)
	}
	gathers := w.mayGather(s, ended)
	longest := maxFlushDelay
	if gathers {
		longest = gatherTime
	}
	switch {
	case len(s.out.results) >= fullFlushResults || now.Sub(t.pendingSince) >= longest:
		s.wakeUp()
	case gathers:
		w.flushAt(t.pendingSince.Add(gatherTime), now)
	case ended != nil && t.ready.isEmpty() && t.noResultExpected(ended, now):
		s.wakeUp()
	case t.ready.isEmpty():
		w.flushAt(now.Add(flushDelay), now)
	}
}

// flushAt sets flushTimer, unless it expires earlier.
func (w *Worker) flushAt(at, now time.Time) {
	t := &w.table
	if t.flushDue.IsZero() || at.Before(t.flushDue) {
		t.flushDue = at
		w.flushTimer.Reset(at.Sub(now))
	}
}

// noResultExpected reports whether no other result is likely to follow this one at once.
func (t *table) noResultExpected(ended *attempt, now time.Time) bool {
	began := t.latestStart // of the other handler that started last
	if ended == t.latestStarted {
		began = t.previousStart
	}
	return t.slotsTaken == len(t.early) || now.Sub(began) >= shortHandler
}

// flushNow is the callback of flushTimer.
func (w *Worker) flushNow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.table.flushDue = time.Time{}
	if w.table.current != nil {
		w.table.current.wakeUp()
	}
}

// clearPendingFlush resets the coalescing after everything was taken from the outbox.
func (w *Worker) clearPendingFlush() {
	t := &w.table
	t.pendingSince = time.Time{}
	if !t.flushDue.IsZero() {
		t.flushDue = time.Time{}
		w.flushTimer.Stop()
	}
}

const (
	// fullFlushResults is the number of results at which a message is sent at once.
	fullFlushResults = 128
	// maxFlushDelay is how long starts and results may be coalesced while others follow.
	maxFlushDelay = 500 * time.Microsecond
	// shortHandler is the run time after which a handler is not expected to return at once.
	shortHandler = 50 * time.Microsecond
	// flushDelay is how long a start waits, or a result while another handler has just started.
	flushDelay = 200 * time.Microsecond
)

// ensureRunner wakes or starts a runner if an attempt is ready. The attempt has a slot and no runner, so there
// are fewer runners than slots if none is idle.
func (w *Worker) ensureRunner() {
	t := &w.table
	if t.ready.isEmpty() || t.runnerStarting {
		return
	}
	t.runnerStarting = true
	if t.idleRunners > 0 {
		w.runnerWake.Signal()
		return
	}
	w.runners.Go(w.runHandlers)
}

// stopRunners ends idle runners, and the others when their handlers have returned.
func (w *Worker) stopRunners() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.table.stopped = true
	w.runnerWake.Broadcast()
}

// attemptQueue is a FIFO queue of attempts.
type attemptQueue struct {
	items []*attempt
	head  int
}

func (q *attemptQueue) isEmpty() bool { return q.head == len(q.items) }

func (q *attemptQueue) first() *attempt { return q.items[q.head] }

func (q *attemptQueue) push(a *attempt) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 {
		// Use the free space at the front.
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, a)
}

// remove removes an attempt that is in the queue.
func (q *attemptQueue) remove(a *attempt) {
	i := q.head + slices.Index(q.items[q.head:], a)
	copy(q.items[q.head+1:i+1], q.items[q.head:i])
	q.pop()
}

func (q *attemptQueue) pop() *attempt {
	a := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	if q.isEmpty() {
		q.items, q.head = q.items[:0], 0
	}
	return a
}
