package worker

import (
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/lib/minheap"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

type phase uint8

const (
	queued  phase = iota // waits for a slot
	early                // has one and is not due yet
	ready                // has one, and no runner yet
	running              // its handler runs
	ended                // its result is not acknowledged
	gone                 // forgotten
)

// attempt is one lease and what became of it. The fields below ctx are guarded
// by the worker's mutex.
type attempt struct {
	id      string
	handler *handler                // nil: none has the name
	trace   *fermatav1.TraceContext // nil: the run is not traced
	task    Task
	came    time.Time
	ctx     taskContext

	startAfter time.Duration // it is due so long after it came
	startAt    time.Time
	place      int // among those that are early

	phase  phase
	result result // of an ended attempt
	void   bool   // the result is a failure that comes from losing the lease
	// named: a Hello had it among what is live, so that a node takes it for started.
	named bool
	// known is the epoch of the latest session whose node knows that the lease
	// is here, because it gave it or read it in a Hello.
	known int32
	// lost: the lease has ended. lostOn is the epoch of the session whose node
	// said so, 0 if it was this process's clock, at lostAt.
	lost   bool
	lostOn int32
	lostAt time.Time
	// unwinding: it was running then.
	unwinding *unwinding
	// sentOn is the session that took the result last, at sentAt.
	sentOn *session
	sentAt time.Time
}

// table is everything that the mutex of a worker guards.
type table struct {
	attempts           map[string]*attempt
	owed               []string // given back, and no stream has taken it yet
	lost               []string // given up, and no node has acknowledged it yet; see lost.go
	waiting            fifo     // queued ones, and some that are gone
	early              minheap.Heap[*attempt]
	watched            bool      // the timer of returnLate runs
	untold             time.Time // since when starts and results gather, zero: there are none; see tell
	latest             *attempt  // whose handler began last, and when; and when that before it did
	began, beganBefore time.Time
	telling            bool // the timer of tellAll runs
	running            int  // attempts that have a slot

	ready   fifo // have a slot and no runner yet
	resting int  // runners that have nothing to do
	coming  bool // a runner was summoned and is on its way
	over    bool // runners leave

	draining bool
	cutOff   int           // attempts that ended because the worker stopped
	idle     chan struct{} // closed when draining and nothing is left to do or say
	isIdle   bool

	current  *session // nil: no stream
	epoch    int32    // of the last Hello
	opening  int32    // epoch of the Hello that is not welcomed yet, 0: none
	sessions int      // streams that were welcomed
	ttl      time.Duration
	linkErr  error         // why current is nil
	trusted  time.Time     // until when leases may be relied on
	margin   time.Duration // what handlers have to end in when they are not any more

	unwinding *unwinding // nil: none
}

// accept takes leases: those that find no slot wait in order.
func (w *Worker) accept(s *session, leases []*attempt) {
	now := time.Now()
	w.mu.Lock()
	for _, a := range leases {
		id := a.id
		if have := w.table.attempts[id]; have != nil {
			// The node repeats itself: so does the worker.
			if have.phase == ended {
				w.deliver(have)
			}
			continue
		}
		if w.table.draining || s.leaving || s != w.table.current {
			s.sendBack(id)
			continue
		}
		a.came, a.startAt, a.known = now, now.Add(a.startAfter), s.epoch
		a.handler = w.handlers[a.task.Handler]
		a.ctx.base = w.base
		if a.trace != nil {
			a.ctx.base = traced(w.base, a.trace)
		}
		w.table.attempts[id] = a
		if w.table.running >= w.o.Slots {
			w.table.waiting.push(a)
			w.watch(w.maxWait)
			continue
		}
		w.start(a)
	}
	w.summon()
	if !s.out.empty() {
		s.wakeUp()
	}
	w.mu.Unlock()
}

// start gives an attempt a slot. The caller summons a runner.
func (w *Worker) start(a *attempt) {
	w.table.running++
	if a.startAfter > 0 && time.Now().Before(a.startAt) {
		w.hold(a)
		return
	}
	w.begin(a)
}

// begin has an attempt that has a slot run.
func (w *Worker) begin(a *attempt) {
	a.phase = ready
	w.table.ready.push(a)
}

// finish takes the end of a handler and gives its slot to the first of those that
// wait.
func (w *Worker) finish(a *attempt, e ending, r result) {
	w.table.running--
	w.metrics.running.Dec()
	a.phase, a.result = ended, r
	if u := a.unwinding; u != nil {
		if u.left--; u.left == 0 {
			w.unwound(u)
		}
	}
	if e.failure != nil && errors.Is(e.cause, ErrStopped) {
		w.table.cutOff++
		w.giveUp(a)
	} else {
		a.void = e.failure != nil && errors.Is(e.cause, ErrLeaseLost)
		w.deliver(a)
	}
	w.startNext()
	w.tell(e.at, a)
	w.checkIdle()
}

func (w *Worker) startNext() {
	for !w.table.waiting.empty() {
		if a := w.table.waiting.pop(); a.phase == queued {
			w.start(a)
			return
		}
	}
}

// forget drops an attempt.
func (w *Worker) forget(a *attempt) {
	a.phase = gone
	delete(w.table.attempts, a.id)
}

// giveBack returns attempts that have not started, on the session if it knows them, else on
// the next one.
func (w *Worker) giveBack(s *session, when func(*attempt) bool) {
	q := &w.table.waiting
	kept := q.items[:0]
	for _, a := range q.items[q.head:] {
		switch {
		case a.phase != queued:
		case !when(a):
			kept = append(kept, a)
		default:
			w.forget(a)
			w.sayReturned(a, s)
		}
	}
	clear(q.items[len(kept):])
	q.items, q.head = kept, 0
}

// giveBackReady returns attempts that have a slot and no runner yet.
func (w *Worker) giveBackReady(s *session) {
	q := &w.table.ready
	for !q.empty() {
		a := q.pop()
		w.table.running--
		w.forget(a)
		w.sayReturned(a, s)
	}
}

func (w *Worker) sayReturned(a *attempt, s *session) {
	if s != nil && a.known == s.epoch {
		s.sendBack(a.id)
		return
	}
	w.table.owed = append(w.table.owed, a.id)
}

func always(*attempt) bool { return true }

// beginDrain stops taking attempts and returns how many run.
func (w *Worker) beginDrain() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.table.draining = true
	s := w.table.current
	w.giveBack(s, always)
	w.giveBackEarly(s, func(a *attempt) bool { return !a.named })
	if s != nil {
		s.out.draining = true
		s.wakeUp()
	}
	w.checkIdle()
	return w.table.running
}

// checkIdle notices the end of draining.
func (w *Worker) checkIdle() {
	t := &w.table
	if !t.draining || t.isIdle || len(t.attempts) > 0 {
		return
	}
	switch s := t.current; {
	case s == nil && len(t.owed) > 0, s != nil && (s.sending || !s.out.empty()):
		return
	}
	t.isIdle = true
	close(t.idle)
}

// watch has returnLate called before long.
func (w *Worker) watch(in time.Duration) {
	if !w.table.watched {
		w.table.watched = true
		w.late.Reset(in)
	}
}

// returnLate gives back what waits behind slow handlers.
func (w *Worker) returnLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.table
	t.watched = false
	if t.current == nil {
		return // what still waits at the next Hello is dropped there
	}
	now := time.Now()
	w.giveBack(t.current, func(a *attempt) bool { return now.Sub(a.came) >= w.maxWait })
	if !t.waiting.empty() {
		w.watch(max(time.Millisecond, w.maxWait-now.Sub(t.waiting.first().came)))
	}
	t.current.wakeUp()
	w.checkIdle()
}

// tidy repeats results that nobody has acknowledged for the life of a lease.
func (w *Worker) tidy(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.table.current
	if s == nil {
		return
	}
	for _, a := range w.table.attempts {
		if a.phase == ended && now.Sub(a.sentAt) > w.table.ttl {
			w.deliver(a)
		}
	}
	s.wakeUp()
}
