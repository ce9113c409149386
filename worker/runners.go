package worker

import "time"

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
			e := a.ending(errGoexit, start)
			result := w.report(a, e)
			w.mu.Lock()
			w.finish(a, e, result)
			w.summon()
			w.mu.Unlock()
		}
	}()
	w.mu.Lock()
	w.table.coming = false
	a = w.await()
	w.mu.Unlock()
	for a != nil {
		start = time.Now()
		a.ctx.begin(start, a.task.Timeout)
		err := w.call(a)
		e := a.ending(err, start)
		result := w.report(a, e)
		w.mu.Lock()
		w.finish(a, e, result)
		a = w.await()
		w.mu.Unlock()
	}
}

// await returns the attempt whose handler a runner is to call, nil when the worker
// has ended.
func (w *Worker) await() *attempt {
	t := &w.table
	for t.ready.empty() {
		if t.over {
			return nil
		}
		t.resting++
		w.more.Wait()
		t.resting--
		t.coming = false
	}
	a := t.ready.pop()
	w.summon()
	return a
}

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

func (q *fifo) push(a *attempt) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 {
		// There is room at the front.
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, a)
}

func (q *fifo) pop() *attempt {
	a := q.items[q.head]
	q.items[q.head] = nil
	if q.head++; q.empty() {
		q.items, q.head = q.items[:0], 0
	}
	return a
}
