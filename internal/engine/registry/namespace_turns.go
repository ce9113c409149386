package registry

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// maxTurnWait bounds how long a call waits for turns of one kind in all.
	maxTurnWait = 5 * time.Second
	// maxLookups bounds the look-ups of existing jobs at a time.
	maxLookups = 4
)

// namespaceTurns bounds how often something is done at once: once for each namespace, and so many times on this node.
// A call that waits too long is refused: it may hold a turn of all calls of its kind meanwhile.
type namespaceTurns struct {
	work        string        // in refusals
	all         chan struct{} // has an element for each turn
	mu          sync.Mutex
	byNamespace map[string]*namespaceTurn // of namespaces with calls
}

// namespaceTurn is the turn that the calls of a namespace share.
type namespaceTurn struct {
	taken chan struct{} // has an element during a turn
	calls int           // that have their turn, or wait
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
	return &namespaceTurns{work: work, all: make(chan struct{}, atOnce), byNamespace: map[string]*namespaceTurn{}}
}

// begin waits for a turn, and returns a function to call at its end. It fails with a [job.TurnError] if there is no
// turn until that time, and with the cause of ctx if that ends.
func (t *namespaceTurns) begin(ctx context.Context, namespace string, until time.Time) (end func(), err error) {
	own := t.join(namespace)
	if err := t.wait(ctx, own.taken, namespace, until); err != nil {
		t.leave(namespace, own)
		return nil, err
	}
	leave := func() {
		<-own.taken
		t.leave(namespace, own)
	}
	if err := t.wait(ctx, t.all, "", until); err != nil {
		leave()
		return nil, err
	}
	return func() {
		<-t.all
		leave()
	}, nil
}

// wait takes a turn of a namespace, or of the node if namespace is empty. A turn that is free is taken at any time.
func (t *namespaceTurns) wait(ctx context.Context, turn chan<- struct{}, namespace string, until time.Time) error {
	select {
	case turn <- struct{}{}:
		return nil
	default:
	}
	bounded, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case turn <- struct{}{}:
		return nil
	case <-bounded.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &job.TurnError{Work: t.work, Namespace: namespace}
}

func (t *namespaceTurns) join(namespace string) *namespaceTurn {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byNamespace[namespace]
	if n == nil {
		n = &namespaceTurn{taken: make(chan struct{}, 1)}
		t.byNamespace[namespace] = n
	}
	n.calls++
	return n
}

func (t *namespaceTurns) leave(namespace string, n *namespaceTurn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.calls--
	if n.calls == 0 {
		delete(t.byNamespace, namespace)
	}
}
