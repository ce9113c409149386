package registry

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/callturn"
	"github.com/fermata-io/fermata/internal/lib/fairturn"
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
	byNamespace map[string]*namespaceTurn // of namespaces with calls
}

// namespaceTurn is the turn that the callers of a namespace share.
type namespaceTurn struct {
	*fairturn.Turns
	calls int // that have the turn, or wait
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
	bounded, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	caller, own := callturn.Caller(ctx), t.join(namespace)
	if refused := t.takeOfNamespace(ctx, bounded, own, namespace); refused != nil {
		t.leave(namespace, own)
		return nil, refused
	}
	leave := func(used time.Duration) {
		own.Release(caller, used)
		t.leave(namespace, own)
	}
	if !t.takeOfNode(bounded) {
		leave(0)
		return nil, t.refusal(ctx, "")
	}
	began := time.Now()
	return func() {
		<-t.all
		leave(time.Since(began))
	}, nil
}

// takeOfNamespace waits for the turn of a namespace, and then for that of the call on the node, until the context
// bounded ends. A call that does not get the latter leaves the former to others.
func (t *namespaceTurns) takeOfNamespace(ctx, bounded context.Context, own *namespaceTurn,
	namespace string) (refused error) {
	caller := callturn.Caller(ctx)
	if own.TryTake(caller) {
		return nil
	}
	err := callturn.Take(ctx, bounded, func() error {
		err := own.Take(bounded, caller)
		if err != nil {
			refused = t.refusal(ctx, namespace)
		}
		return err
	}, func() { own.Release(caller, 0) })
	if err != nil && refused == nil {
		refused = t.refusal(ctx, "")
	}
	return refused
}

// takeOfNode waits for one of the turns of the node until the context ends. A turn that is free is taken at any time.
func (t *namespaceTurns) takeOfNode(ctx context.Context) bool {
	select {
	case t.all <- struct{}{}:
		return true
	default:
	}
	select {
	case t.all <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// refusal is the error of a call that had no turn; namespace is empty if there was none on this node.
func (t *namespaceTurns) refusal(ctx context.Context, namespace string) error {
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
		n = &namespaceTurn{Turns: fairturn.New(1, 1)}
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
