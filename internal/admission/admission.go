package admission

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/fermata-io/fermata/internal/job"
)

// Admission takes leased runs through their gates. Make one with New, end it with
// Stop.
type Admission struct {
	o       Options
	metrics *metrics

	settings atomic.Pointer[settings]
	// living counts the attempts that hold something, so that the end of others
	// costs no lock.
	living atomic.Int64

	mu struct {
		sync.Mutex
		closed   bool
		live     map[attemptKey]*live
		errands  errands
		rests    map[job.QueueKey]restingQueue
		rooms    uint64                  // how often a queue may have got room
		roomOf   map[job.QueueKey]uint64 // the last time for each, by that count
		promises map[job.QueueKey]promise
		readings map[string]reading // circuits by the name of their cell
	}
	settingsWake, errandWake, keepWake chan struct{}

	ctx    context.Context // ends the loops
	cancel context.CancelFunc
	loops  sync.WaitGroup
	groups sync.WaitGroup // batches at their gates
	// trouble: the last call for the gates failed.
	trouble atomic.Bool
}

// New starts an admission. It fails on impossible options and on metrics that are
// already registered.
func New(o Options) (*Admission, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	a := &Admission{o: o, metrics: m, settingsWake: make(chan struct{}, 1), errandWake: make(chan struct{}, 1), keepWake: make(chan struct{}, 1)}
	a.mu.live = make(map[attemptKey]*live)
	a.mu.rests = make(map[job.QueueKey]restingQueue)
	a.mu.roomOf = make(map[job.QueueKey]uint64)
	a.mu.promises = make(map[job.QueueKey]promise)
	a.mu.readings = make(map[string]reading)
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.loops.Go(a.settingsLoop)
	a.loops.Go(a.keepLoop)
	a.loops.Go(a.errandLoop)
	return a, nil
}

// Stop waits for the batches at their gates, gives back what is to be given back,
// and ends; all of it within about 5 s if Redis does not answer. Gated runs that
// are delivered later go back. Units of attempts that are still here are left to
// whoever takes these over. It may be called more than once.
func (a *Admission) Stop() {
	a.mu.Lock()
	a.mu.closed = true
	a.mu.Unlock()
	a.groups.Wait()
	a.cancel()
	a.loops.Wait()
}

// do submits changes and waits for the answers. When ctx ends first the missing
// ones are errors; they may take effect all the same.
func (a *Admission) do(ctx context.Context, changes []job.Change) []job.ChangeResult {
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

// failed tells of the first failure of a series.
func (a *Admission) failed(what string, err error) {
	a.metrics.failures.Inc()
	if !a.trouble.Swap(true) {
		a.o.Logger.Warn("limits cannot be asked; runs that have any wait", "call", what, "error", err)
	}
}

// worked ends a series of failures.
func (a *Admission) worked() {
	if a.trouble.Load() && a.trouble.Swap(false) {
		a.o.Logger.Info("limits can be asked again")
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
