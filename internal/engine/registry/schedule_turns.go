package registry

import (
	"context"
	"runtime"
	"sync"
)

// scheduleTurns bounds how many expensive schedules are checked at once: one of each namespace, and as many as half
// of the processors. A check of one may take tens of milliseconds, so that calls of one namespace could keep all
// processors busy.
type scheduleTurns struct {
	all         chan struct{} // has an element for each check
	mu          sync.Mutex
	byNamespace map[string]*namespaceTurn // of namespaces with checks
}

// namespaceTurn is the turn that the checks of a namespace share.
type namespaceTurn struct {
	taken chan struct{} // has an element during a check
	calls int           // that check, or wait
}

func newScheduleTurns() *scheduleTurns {
	return &scheduleTurns{
		all:         make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		byNamespace: map[string]*namespaceTurn{},
	}
}

// begin waits for a turn, and returns a function to call at its end; ok is false if ctx ended meanwhile.
func (t *scheduleTurns) begin(ctx context.Context, namespace string) (end func(), ok bool) {
	own := t.join(namespace)
	if !takeTurn(ctx, own.taken) {
		t.leave(namespace, own)
		return nil, false
	}
	leave := func() {
		<-own.taken
		t.leave(namespace, own)
	}
	if !takeTurn(ctx, t.all) {
		leave()
		return nil, false
	}
	return func() {
		<-t.all
		leave()
	}, true
}

func takeTurn(ctx context.Context, turn chan<- struct{}) bool {
	select {
	case turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *scheduleTurns) join(namespace string) *namespaceTurn {
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

func (t *scheduleTurns) leave(namespace string, n *namespaceTurn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.calls--
	if n.calls == 0 {
		delete(t.byNamespace, namespace)
	}
}
