package worker

import (
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/lib/minheap"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

type phase uint8

const (
	phaseQueued  phase = iota // waits for a slot
	phaseEarly                // has a slot, is not due yet
	phaseReady                // has a slot, waits for a runner
	phaseRunning              // its handler runs
	phaseEnded                // its result is not acknowledged yet
	phaseGone                 // forgotten
)

// attempt is one lease with its state; see the package comment for the states. The fields below ctx are guarded
// by the worker's mutex.
type attempt struct {
	id         string
	handler    *handler                // nil: this worker does not have it
	trace      *fermatav1.TraceContext // nil: the run is not traced
	task       Task
	receivedAt time.Time
	ctx        taskContext

	startAfter time.Duration // it is due this long after receivedAt
	startAt    time.Time
	heapIndex  int // among early attempts

	phase      phase
	result     result // of an ended attempt
	voidResult bool   // the handler failed because the lease was lost
	// namedInHello: a Hello named the lease as live, so that the node counts the attempt as started.
	namedInHello bool
	// knownEpoch is the epoch of the latest session whose node knows that this worker has the lease, because it
	// granted it or read it in a Hello.
	knownEpoch int32
	// lost: the lease has ended. lostEpoch is the epoch of the session whose node reported that, or 0 if this
	// process's clock decided, at lostAt.
	lost      bool
	lostEpoch int32
	lostAt    time.Time
	// stopping is set if the handler ran when the lease was lost.
	stopping *stoppingHandlers
	// sentOn is the session on which the result was last sent, at sentAt.
	sentOn *session
	sentAt time.Time
}

// table is all state that the worker's mutex guards.
type table struct {
	attempts                   map[string]*attempt
	pendingReturns             []string     // returned leases that no session has taken yet
	pendingLosses              []string     // lost leases, not acknowledged yet; see lost.go
	waiting                    attemptQueue // queued attempts, and some that are gone
	early                      minheap.Heap[*attempt]
	lateTimerSet               bool      // the timer of returnLateAttempts runs
	pendingSince               time.Time // of the oldest start or result not sent; zero: none; see scheduleFlush
	latestStarted              *attempt  // the attempt that started last; times of the last two starts
	latestStart, previousStart time.Time
	flushDue                   time.Time // when flushTimer expires; zero: it does not run
	slotsTaken                 int       // attempts that have a slot

	ready          attemptQueue // have a slot and no runner yet
	idleRunners    int          // runners that have nothing to do
	runnerStarting bool         // a runner was woken or started and has not taken an attempt
	stopped        bool         // runners end

	draining    bool
	cutOffCount int           // attempts that ended because the worker stopped
	idle        chan struct{} // closed when draining and nothing is left to run or send
	isIdle      bool

	current          *session // nil: no stream
	epoch            int32    // of the last Hello
	helloEpoch       int32    // of the Hello that is not answered yet; 0: none
	welcomedSessions int      // streams that were welcomed
	leaseTTL         time.Duration
	linkErr          error         // why current is nil
	trustedUntil     time.Time     // until when handlers may rely on leases
	stopMargin       time.Duration // time that handlers have to return after trust has ended

	stopping *stoppingHandlers // nil: none
}

// acceptLeases adds leases. Those without a free slot wait in order.
func (w *Worker) acceptLeases(s *session, leases []*attempt) {
	now := time.Now()
	w.mu.Lock()
	urgent := false // what is in the outbox is to be sent now
	for _, a := range leases {
		id := a.id
		if have := w.table.attempts[id]; have != nil {
			// The node has sent the lease again, so the worker sends the result again.
			if have.phase == phaseEnded {
				w.deliverResult(have)
				urgent = true
			}
			continue
		}
		if w.table.draining || s.closedToLeases || s != w.table.current {
			s.returnLease(id)
			urgent = true
			continue
		}
		a.receivedAt, a.startAt, a.knownEpoch = now, now.Add(a.startAfter), s.epoch
		a.handler = w.handlers[a.task.Handler]
		a.ctx.base = w.baseContext
		if a.trace != nil {
			a.ctx.base = contextWithTrace(w.baseContext, a.trace)
		}
		w.table.attempts[id] = a
		if w.table.slotsTaken >= w.options.Slots {
			w.table.waiting.push(a)
			w.setLateTimer(w.maxSlotWait)
			urgent = true // the results that are gathered have slots, for the node
			continue
		}
		w.takeSlot(a)
	}
	w.ensureRunner()
	if urgent && !s.out.isEmpty() {
		s.wakeUp()
	}
	w.mu.Unlock()
}

// takeSlot gives an attempt a slot. The caller calls ensureRunner.
func (w *Worker) takeSlot(a *attempt) {
	w.table.slotsTaken++
	if a.startAfter > 0 && time.Now().Before(a.startAt) {
		w.holdUntilDue(a)
		return
	}
	w.makeReady(a)
}

// makeReady queues an attempt that has a slot for a runner.
func (w *Worker) makeReady(a *attempt) {
	a.phase = phaseReady
	w.table.ready.push(a)
}

// finishAttempt records the end of a handler and gives its slot to the first waiting attempt.
func (w *Worker) finishAttempt(a *attempt, e handlerEnd, r result) {
	w.table.slotsTaken--
	w.metrics.running.Dec()
	a.phase, a.result = phaseEnded, r
	if u := a.stopping; u != nil {
		u.remaining--
		if u.remaining == 0 {
			w.endStopping(u)
		}
	}
	if e.failure != nil && errors.Is(e.cause, ErrStopped) {
		w.table.cutOffCount++
		w.giveUpAttempt(a)
	} else {
		a.voidResult = e.failure != nil && errors.Is(e.cause, ErrLeaseLost)
		w.deliverResult(a)
	}
	w.startWaiting()
	w.scheduleFlush(e.at, a)
	w.checkIdle()
}

func (w *Worker) startWaiting() {
	for !w.table.waiting.isEmpty() {
		if a := w.table.waiting.pop(); a.phase == phaseQueued {
			w.takeSlot(a)
			return
		}
	}
}

// forgetAttempt drops an attempt.
func (w *Worker) forgetAttempt(a *attempt) {
	a.phase = phaseGone
	delete(w.table.attempts, a.id)
}

// returnWaiting returns waiting attempts that match when, on the session if its node knows them, else on the
// next session.
func (w *Worker) returnWaiting(s *session, when func(*attempt) bool) {
	q := &w.table.waiting
	kept := q.items[:0]
	for _, a := range q.items[q.head:] {
		switch {
		case a.phase != phaseQueued:
		case !when(a):
			kept = append(kept, a)
		default:
			w.forgetAttempt(a)
			w.reportReturned(a, s)
		}
	}
	clear(q.items[len(kept):])
	q.items, q.head = kept, 0
}

// returnReady returns attempts that have a slot and no runner yet.
func (w *Worker) returnReady(s *session) {
	q := &w.table.ready
	for !q.isEmpty() {
		a := q.pop()
		w.table.slotsTaken--
		w.forgetAttempt(a)
		w.reportReturned(a, s)
	}
}

func (w *Worker) reportReturned(a *attempt, s *session) {
	if s != nil && a.knownEpoch == s.epoch {
		s.returnLease(a.id)
		return
	}
	w.table.pendingReturns = append(w.table.pendingReturns, a.id)
}

func anyAttempt(*attempt) bool { return true }

// beginDrain stops taking attempts and returns how many run.
func (w *Worker) beginDrain() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.table.draining = true
	s := w.table.current
	w.returnWaiting(s, anyAttempt)
	w.returnEarly(s, func(a *attempt) bool { return !a.namedInHello })
	switch {
	case s == nil:
	case s.superseded:
		s.wakeUp() // another node is asked to take over its leases: one of the two is notified when that has answered
	default:
		s.announceStop()
	}
	w.checkIdle()
	return w.table.slotsTaken
}

// hasDrained reports whether nothing was left to run or send after the worker was stopped.
func (w *Worker) hasDrained() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.table.isIdle
}

// checkIdle closes idle when draining is complete.
func (w *Worker) checkIdle() {
	t := &w.table
	if !t.draining || t.isIdle || len(t.attempts) > 0 {
		return
	}
	switch s := t.current; {
	case s == nil && len(t.pendingReturns) > 0, s != nil && (s.sending || !s.out.isEmpty()):
		return
	}
	t.isIdle = true
	close(t.idle)
}

// setLateTimer starts the timer of returnLateAttempts, unless it runs.
func (w *Worker) setLateTimer(in time.Duration) {
	if !w.table.lateTimerSet {
		w.table.lateTimerSet = true
		w.lateTimer.Reset(in)
	}
}

// returnLateAttempts returns attempts that have waited for a slot for maxSlotWait.
func (w *Worker) returnLateAttempts() {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.table
	t.lateTimerSet = false
	if t.current == nil {
		return // the next Hello returns what still waits
	}
	now := time.Now()
	w.returnWaiting(t.current, func(a *attempt) bool { return now.Sub(a.receivedAt) >= w.maxSlotWait })
	if !t.waiting.isEmpty() {
		w.setLateTimer(max(time.Millisecond, w.maxSlotWait-now.Sub(t.waiting.first().receivedAt)))
	}
	t.current.wakeUp()
	w.checkIdle()
}

// resendUnacknowledged sends results again that were not acknowledged within the lease TTL.
func (w *Worker) resendUnacknowledged(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.table.current
	if s == nil {
		return
	}
	for _, a := range w.table.attempts {
		if a.phase == phaseEnded && now.Sub(a.sentAt) > w.table.leaseTTL {
			w.deliverResult(a)
		}
	}
	s.wakeUp()
}
