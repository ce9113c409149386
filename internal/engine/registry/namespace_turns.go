package registry

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/callturn"
)

const (
	// maxTurnWait bounds how long a call waits for turns of its namespace in all.
	maxTurnWait = 5 * time.Second
	// maxLookups bounds the look-ups of existing jobs at a time.
	maxLookups = 4
)

// namespaceTurns bounds how often something is done at once: once for each namespace, and so many times on this node.
// The callers of a namespace get equal parts of the time, however many calls each of them makes. A call gives its own
// turn on the node back while it waits for its namespace (see callturn), and is refused if it waits too long.
type namespaceTurns struct {
	work        string        // in refusals
	all         chan struct{} // has an element for each turn
	mu          sync.Mutex
	byNamespace map[string]*namespaceQueue // of namespaces whose turn is taken
}

// namespaceQueue are the callers of a namespace whose turn is taken. The caller that has used the turn for the least
// time is next (start-time fair queueing, Goyal, Vin and Cheng, 1996): one with short turns waits for few of the others.
type namespaceQueue struct {
	callers map[string]*turnCaller
	now     time.Duration // what the caller with the turn had used before it; a new caller begins with as much
}

// turnCaller is a caller with calls that wait, or that has used more than a new caller would begin with.
type turnCaller struct {
	used    time.Duration
	waiting []chan struct{} // closed when the call has the turn
}

// newScheduleTurns returns the turns of checks of expensive schedules: as many as half of the processors. One check may
// take tens of milliseconds, so that calls of one namespace could keep all processors busy.
func newScheduleTurns() *namespaceTurns {
	return newNamespaceTurns("schedules", max(1, runtime.GOMAXPROCS(0)/2))
}

// newLookupTurns returns the turns of look-ups of several existing jobs: those which are subtracted from the demand of
// a quota, and those which a batch registers again. Such a call names up to MaxBatch jobs in a small request.
func newLookupTurns() *namespaceTurns { return newNamespaceTurns("lookups", maxLookups) }

// lookupsForCall returns a function that takes a turn of look-ups for a call.
func (r *Registry) lookupsForCall(ctx context.Context, namespace string) func() (end func(), err error) {
	until := sync.OnceValue(func() time.Time { return time.Now().Add(maxTurnWait) })
	return func() (func(), error) { return r.lookups.begin(ctx, namespace, until()) }
}

func newNamespaceTurns(work string, atOnce int) *namespaceTurns {
	return &namespaceTurns{work: work, all: make(chan struct{}, atOnce), byNamespace: map[string]*namespaceQueue{}}
}

// begin waits for a turn, and returns a function to call at its end. It fails with a [job.TurnError] if there is no
// turn until that time, and with the cause of ctx if that ends.
func (t *namespaceTurns) begin(ctx context.Context, namespace string, until time.Time) (end func(), err error) {
	caller := callturn.Caller(ctx)
	bounded, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if turn := t.takeOrQueue(namespace, caller); turn != nil {
		err := callturn.Wait(ctx, func() error { return t.wait(bounded, namespace, caller, turn) })
		if err != nil {
			return nil, t.refusal(ctx, namespace)
		}
	}
	select { // a turn that is free is taken at any time
	case t.all <- struct{}{}:
	default:
		select {
		case t.all <- struct{}{}:
		case <-bounded.Done():
			t.pass(namespace, caller, 0)
			return nil, t.refusal(ctx, "")
		}
	}
	began := time.Now()
	return func() {
		<-t.all
		t.pass(namespace, caller, time.Since(began))
	}, nil
}

// refusal is the error of a call that had no turn; namespace is empty if there was none on this node.
func (t *namespaceTurns) refusal(ctx context.Context, namespace string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &job.TurnError{Work: t.work, Namespace: namespace}
}

// takeOrQueue takes the turn of a namespace if it is free. Otherwise it queues the call, and returns what is closed when
// the call has the turn.
func (t *namespaceTurns) takeOrQueue(namespace, caller string) (turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.byNamespace[namespace]
	if q == nil {
		t.byNamespace[namespace] = &namespaceQueue{callers: map[string]*turnCaller{}}
		return nil
	}
	c := q.caller(caller)
	turn = make(chan struct{})
	c.waiting = append(c.waiting, turn)
	return turn
}

// wait waits until a queued call has the turn.
func (t *namespaceTurns) wait(ctx context.Context, namespace, caller string, turn chan struct{}) error {
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-turn: // just then
		return nil
	default:
	}
	c := t.byNamespace[namespace].callers[caller]
	i := slices.Index(c.waiting, turn)
	c.waiting = slices.Delete(c.waiting, i, i+1)
	return ctx.Err()
}

// pass passes the turn of a namespace on, which a caller has used for some time, or frees it.
func (t *namespaceTurns) pass(namespace, caller string, used time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.byNamespace[namespace]
	q.caller(caller).used += used
	if !q.passOn() {
		delete(t.byNamespace, namespace)
	}
}

// caller returns a caller by its name, which may be new.
func (q *namespaceQueue) caller(name string) *turnCaller {
	c := q.callers[name]
	if c == nil {
		c = new(turnCaller)
		q.callers[name] = c
	}
	c.used = max(c.used, q.now)
	return c
}

// passOn gives the turn to the first call of the next caller. False: nobody waits.
func (q *namespaceQueue) passOn() bool {
	var next *turnCaller
	for name, c := range q.callers {
		switch {
		case len(c.waiting) == 0:
			if c.used <= q.now {
				delete(q.callers, name)
			}
		case next == nil || c.used < next.used:
			next = c
		}
	}
	if next == nil {
		return false
	}
	q.now = max(q.now, next.used)
	close(next.waiting[0])
	next.waiting = slices.Delete(next.waiting, 0, 1)
	return true
}
