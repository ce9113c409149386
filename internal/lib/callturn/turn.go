// Package callturn has a call give back its turn on a node while it waits for what it shares with other calls.
//
// A node runs few calls of a kind at once, for all namespaces together. Calls may wait for each other: for a turn that
// the calls of a namespace share, for an answer that serves several of them, or for a place in a queue. A call that
// kept its turn on the node meanwhile would keep it from other namespaces although it does no work. Few callers of one
// namespace could so hold all the turns of a node. Who admits a call therefore puts its [Turn] into its context, and
// what makes it wait does so in [Wait].
package callturn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Turn is the turn of a call on its node. Parts of the call may work at the same time: the call has its turn while one
// of them works. It is safe for concurrent use.
type Turn struct {
	caller  string
	take    func(context.Context) error
	release func()

	// lock has an element while the fields below are in use, also while the turn is taken again: no part of the call
	// works then.
	lock    chan struct{}
	working int // parts that work
	held    bool
}

// New returns the turn of a call that begins and has taken it. take waits for a turn until the context ends, and
// release gives it back.
func New(caller string, take func(context.Context) error, release func()) *Turn {
	return &Turn{caller: caller, take: take, release: release, lock: make(chan struct{}, 1), working: 1, held: true}
}

// End ends the turn with its call.
func (t *Turn) End() { t.leave() }

func (t *Turn) addParts(n int) {
	t.lock <- struct{}{}
	defer func() { <-t.lock }()
	t.working += n
}

// leave ends or interrupts the work of a part.
func (t *Turn) leave() {
	t.lock <- struct{}{}
	defer func() { <-t.lock }()
	t.working--
	if t.working == 0 && t.held {
		t.held = false
		t.release()
	}
}

// rejoin continues the work of a part. If the context of the call ends before it has its turn again, the part goes on
// without one: it has nothing left to do than to answer.
func (t *Turn) rejoin(ctx context.Context) {
	t.lock <- struct{}{}
	defer func() { <-t.lock }()
	if t.working == 0 {
		t.held = t.take(ctx) == nil
	}
	t.working++
}

type contextKey struct{}

// NewContext returns a context of a call with its turn.
func NewContext(ctx context.Context, t *Turn) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

func fromContext(ctx context.Context) *Turn {
	t, _ := ctx.Value(contextKey{}).(*Turn)
	return t
}

// Caller returns who made the call of a context, or "" if it has no turn.
func Caller(ctx context.Context) string {
	if t := fromContext(ctx); t != nil {
		return t.caller
	}
	return ""
}

// Wait runs wait without the turn of the call, and takes the turn again. The turn remains taken while other parts of
// the call work.
func Wait(ctx context.Context, wait func() error) error {
	t := fromContext(ctx)
	if t == nil {
		return wait()
	}
	t.leave()
	defer t.rejoin(ctx)
	return wait()
}

// patience is how long [WaitAside] keeps the turn.
const patience = 100 * time.Millisecond

// WaitAside waits for a turn of another kind, which the call then has instead of its own. It keeps its own one at first:
// most waits are short, and to take it again would take longer. Call rejoin after the work in the other turn, when that
// is returned: nobody should wait for a call that waits for its own turn again.
func WaitAside(ctx context.Context, wait func() error) (rejoin func(), err error) {
	t := fromContext(ctx)
	if t == nil {
		return func() {}, wait()
	}
	left := make(chan struct{})
	timer := time.AfterFunc(patience, func() {
		t.leave()
		close(left)
	})
	err = wait()
	if timer.Stop() {
		return func() {}, err
	}
	<-left
	return func() { t.rejoin(ctx) }, err
}

// RunParts runs n parts of a call at the same time, and returns when all have ended.
func RunParts(ctx context.Context, n int, run func(part int)) {
	t := fromContext(ctx)
	if t != nil {
		t.addParts(n - 1) // the caller does not work meanwhile
	}
	var running atomic.Int64
	running.Store(int64(n))
	var parts sync.WaitGroup
	for i := range n {
		parts.Go(func() {
			run(i)
			if running.Add(-1) > 0 && t != nil { // the last one leaves its place to the caller
				t.leave()
			}
		})
	}
	parts.Wait()
}
