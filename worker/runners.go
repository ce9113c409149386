package worker

import (
	"slices"
	"time"
)

// runner is a goroutine that calls handlers, one after the other, on a stack that
// has grown already. There are as many as there were handlers at once that kept
// one another waiting, at most one a slot.
//
// One runner at a time is summoned, and summons the next before it calls its own
// handler. So handlers that return at once are called in a row by few goroutines,
// while one that blocks makes way for the next within a switch of goroutines.
func (w *Worker) runner() {
	var a *attempt
	var start time.Time
	defer func() {
		if a != nil {
			// The handler called runtime.Goexit, so this goroutine cannot go on.
			e := a.ending(failureOf(errGoexit), start)
			result := w.report(a, e)
			w.mu.Lock()
			w.finish(a, e, result)
			w.summon()
			w.mu.Unlock()
		}
	}()
	w.mu.Lock()
	w.table.coming = false
	a, start = w.await(time.Now())
	w.mu.Unlock()
	for a != nil {
		a.ctx.begin(start, a.task.Timeout)
		if w.traces(a) {
			w.beginSpan(a, start)
		}
		e := a.ending(w.call(a), start)
		result := w.report(a, e)
		w.mu.Lock()
		w.finish(a, e, result)
		a, start = w.await(e.at)
		w.mu.Unlock()
	}
}

// await returns the attempt whose handler a runner is to call, and the time, of
// which it knows that it was now; nil when the worker has ended. No handler begins but by
// this, and none while the leases are not trusted.
func (w *Worker) await(now time.Time) (*attempt, time.Time) {
	t := &w.table
	for t.ready.empty() || !w.trusts(now) {
		if t.over {
			return nil, now
		}
		t.resting++
		w.more.Wait()
		t.resting--
		t.coming = false
		now = time.Now()
	}
	a := t.ready.pop()
	a.phase = running
	w.metrics.running.Inc()
	if t.current != nil {
		t.current.out.started = append(t.current.out.started, a)
		t.latest, t.began, t.beganBefore = a, now, t.began
		w.tell(now, nil)
	}
	w.summon()
	return a, now
}

// tell has starts and results sent, but lets those gather that come in a row, so that
// they go out in one message and what was leased together is settled together. A result
// goes at once when no other is at hand: nothing is ready, and what else runs has done
// so for a while. A start can wait: most often its result takes it along. Ended is the
// attempt that has a result, nil if there is only a start.
func (w *Worker) tell(now time.Time, ended *attempt) {
	t := &w.table
	s := t.current
	if s == nil {
		return
	}
	if t.untold.IsZero() {
		t.untold = now
	}
	switch {
	case len(s.out.results) >= enough || now.Sub(t.untold) >= soon || ended != nil && t.ready.empty() && t.alone(ended, now):
		s.wakeUp()
	case t.ready.empty() && !t.telling:
		t.telling = true
		w.gathered.Reset(pause)
	}
}

// alone tells whether no other result is likely to come at once after this one.
func (t *table) alone(ended *attempt, now time.Time) bool {
	began := t.began // of the other handler that began last
	if ended == t.latest {
		began = t.beganBefore
	}
	return t.running == len(t.early) || now.Sub(began) >= brief
}

// tellAll is the call of the timer that tell sets.
func (w *Worker) tellAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.table.telling = false; w.table.current != nil {
		w.table.current.wakeUp()
	}
}

// allTold is for when everything has been taken that there was to tell.
func (w *Worker) allTold() {
	t := &w.table
	t.untold = time.Time{}
	if t.telling {
		t.telling = false
		w.gathered.Stop()
	}
}

const (
	// enough results make a message that is worth sending.
	enough = 128
	// soon is how long starts and results may gather while others are at hand.
	soon = 500 * time.Microsecond
	// brief is how long a handler has run that is not expected to return at once.
	brief = 50 * time.Microsecond
	// pause is how long a start waits, or a result beside a handler that has just begun.
	pause = 200 * time.Microsecond
)

// summon sees to it that a runner comes for what is ready. The next attempt has a
// slot and no runner, so there are fewer runners than slots if none is idle.
func (w *Worker) summon() {
	t := &w.table
	if t.ready.empty() || t.coming {
		return
	}
	t.coming = true
	if t.resting > 0 {
		w.more.Signal()
		return
	}
	w.working.Go(w.runner)
}

// dismiss ends the runners that have nothing to do, and the others when they have
// returned from their handlers.
func (w *Worker) dismiss() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.table.over = true
	w.more.Broadcast()
}

// fifo is a queue of attempts.
type fifo struct {
	items []*attempt
	head  int
}

func (q *fifo) empty() bool { return q.head == len(q.items) }

func (q *fifo) first() *attempt { return q.items[q.head] }

func (q *fifo) push(a *attempt) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 {
		// There is room at the front.
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, a)
}

// remove takes an attempt out that is in the queue.
func (q *fifo) remove(a *attempt) {
	i := q.head + slices.Index(q.items[q.head:], a)
	copy(q.items[q.head+1:i+1], q.items[q.head:i])
	q.pop()
}

func (q *fifo) pop() *attempt {
	a := q.items[q.head]
	q.items[q.head] = nil
	if q.head++; q.empty() {
		q.items, q.head = q.items[:0], 0
	}
	return a
}
