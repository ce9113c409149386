package admission

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Admission takes leased runs through their gates. Call New, and Stop at the end.
type Admission struct {
	o       Options
	metrics *metrics

	settings atomic.Pointer[queueSettings]
	// holdingAttempts counts the attempts that hold something, so that the end of others needs no lock.
	holdingAttempts atomic.Int64

	mu struct {
		sync.Mutex
		closed         bool
		attempts       map[attemptKey]*heldByAttempt
		deferred       deferredCalls
		restingQueues  map[job.QueueKey]restingQueue
		roomChanges    uint64                  // number of times that a queue may have got room
		lastRoomChange map[job.QueueKey]uint64 // the value of roomChanges at the last time for each queue
		promises       map[job.QueueKey]roomPromise
		closedCircuits map[string]closedSight // circuits by the name of their cell
	}
	settingsWake, deferredWake, keepWake chan struct{}

	ctx            context.Context // ends the loops
	cancel         context.CancelFunc
	loops          sync.WaitGroup
	groupsInFlight sync.WaitGroup // batches at their gates
	// limitsFailing: the last call for the gates failed.
	limitsFailing atomic.Bool
}

// New starts an admission. It returns an error for impossible options and for metrics that are already
// registered.
func New(o Options) (*Admission, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	a := &Admission{o: o, metrics: m, settingsWake: make(chan struct{}, 1), deferredWake: make(chan struct{}, 1),
		keepWake: make(chan struct{}, 1)}
	a.mu.attempts = make(map[attemptKey]*heldByAttempt)
	a.mu.restingQueues = make(map[job.QueueKey]restingQueue)
	a.mu.lastRoomChange = make(map[job.QueueKey]uint64)
	a.mu.promises = make(map[job.QueueKey]roomPromise)
	a.mu.closedCircuits = make(map[string]closedSight)
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.loops.Go(a.settingsLoop)
	a.loops.Go(a.keepLoop)
	a.loops.Go(a.deferredLoop)
	return a, nil
}

// Stop waits for the groups at their gates, makes the deferred calls, and ends; all of it within about 5 s if
// Redis does not answer. Runs with gates that are delivered later are returned. Units of attempts that are still
// here are left to the node that adopts them. Stop may be called more than once.
func (a *Admission) Stop() {
	a.mu.Lock()
	a.mu.closed = true
	a.mu.Unlock()
	a.groupsInFlight.Wait()
	a.cancel()
	a.loops.Wait()
}

// submitAndWait submits changes and waits for the answers. If ctx ends first, the missing ones are errors; the
// changes may take effect all the same.
func (a *Admission) submitAndWait(ctx context.Context, changes []job.Change) []job.ChangeResult {
	type indexed struct {
		i int
		r job.ChangeResult
	}
	answers := make(chan indexed, len(changes))
	results := make([]job.ChangeResult, len(changes))
	for i, c := range changes {
		results[i].Err = job.ErrUnavailable
		a.o.Ledger.Submit(c, func(r job.ChangeResult) { answers <- indexed{i, r} })
	}
	for range changes {
		select {
		case answer := <-answers:
			results[answer.i] = answer.r
		case <-ctx.Done():
			return results
		}
	}
	return results
}

// logFailure logs the first failure of a series.
func (a *Admission) logFailure(what string, err error) {
	a.metrics.failures.Inc()
	if !a.limitsFailing.Swap(true) {
		a.o.Logger.Warn("failed to ask for limits, runs with limits wait", "call", what, "error", err)
	}
}

// logRecovery ends a series of failures.
func (a *Admission) logRecovery() {
	if a.limitsFailing.Load() && a.limitsFailing.Swap(false) {
		a.o.Logger.Info("asking for limits succeeds again")
	}
}

func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
