// Package callturn has a call give back its turn on a node while it waits for what it shares with other calls.
//
// A node runs few calls of a kind at once, for all namespaces together. Calls may wait for each other: for a turn that
// the calls of a namespace share, for an answer that serves several of them, or for a place in a queue. A call that
// kept its turn on the node meanwhile would keep it from other namespaces although it does no work. Few callers of one
// namespace could so hold all the turns of a node. Who admits a call therefore puts its [Turn] into its context, and
// what makes it wait does so in [Wait], or [Aside.Wait].
package callturn

import (
	"cmp"
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
	aside   *Places

	// lock has an element while the fields below are in use, also while the turn is taken again: no part of the call
	// works then.
	lock     chan struct{}
	working  int // parts that work
	held     bool
	hasPlace bool  // among the calls aside
	failure  error // to take the turn again
}

// Places bound how many calls are aside at once: they keep what they have read. Calls beyond that keep their turns while
// they wait.
type Places struct {
	most  int64
	taken atomic.Int64
}

// NewPlaces returns so many places.
func NewPlaces(n int) *Places { return &Places{most: int64(n)} }

func (p *Places) tryTake() bool {
	if p.taken.Add(1) <= p.most {
		return true
	}
	p.give()
	return false
}

func (p *Places) give() { p.taken.Add(-1) }

// New returns the turn of a call that begins and has taken it. take waits for a turn until the context ends, and
// release gives it back. aside bounds the calls that have stepped aside; nil: nothing does.
func New(caller string, take func(context.Context) error, release func(), aside *Places) *Turn {
	return &Turn{caller: caller, take: take, release: release, aside: aside, lock: make(chan struct{}, 1), working: 1,
		held: true}
}

// End ends the turn with its call.
func (t *Turn) End() {
	t.leave()
	t.givePlace()
}

func (t *Turn) givePlace() {
	if t.hasPlace {
		t.hasPlace = false
		t.aside.give()
	}
}

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

// tryLeave is leave for a part that steps aside; false: there is no place for the call, and the part keeps its turn.
func (t *Turn) tryLeave() bool {
	t.lock <- struct{}{}
	defer func() { <-t.lock }()
	if t.working > 1 || !t.held {
		t.working--
		return true
	}
	if t.aside != nil && !t.hasPlace {
		t.hasPlace = t.aside.tryTake()
		if !t.hasPlace {
			return false
		}
	}
	t.working, t.held = 0, false
	t.release()
	return true
}

// rejoin continues the work of a part, in a turn of the call. It may fail as take does, and fails for all later parts
// then: they have nothing left to do than to answer.
func (t *Turn) rejoin(ctx context.Context) error {
	t.lock <- struct{}{}
	defer func() { <-t.lock }()
	t.working++
	if t.held || t.failure != nil {
		return t.failure
	}
	t.failure = t.take(ctx)
	t.held = t.failure == nil
	t.givePlace()
	return t.failure
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
// the call work. It fails if wait does, or if the call gets no turn again.
func Wait(ctx context.Context, wait func() error) error {
	t := fromContext(ctx)
	if t == nil {
		return wait()
	}
	t.leave()
	err := wait()
	return cmp.Or(err, t.rejoin(ctx))
}

// patience is how long a part that steps aside keeps the turn of its call while it waits.
const patience = 100 * time.Millisecond

// Aside is a part of a call that works in turns of another kind, one after the other. It keeps the turn of its call at
// first, because most waits are short. Once it has waited for long in all, it leaves that turn to others, if there is one
// of the [Places] for its call, and has none until it has done this work: a part that took its turn again after each wait would wait for others each time. It is for
// one goroutine.
type Aside struct {
	turn    *Turn // nil: the call has none
	waited  time.Duration
	left    bool
	failure error // to rejoin
}

// StepAside begins the work of a part in turns of another kind. Rejoin ends it.
func StepAside(ctx context.Context) *Aside { return &Aside{turn: fromContext(ctx)} }

// Wait waits for a turn of the other kind.
func (a *Aside) Wait(wait func() error) error {
	if a.turn == nil || a.left {
		return wait()
	}
	left := make(chan bool, 1)
	timer := time.AfterFunc(patience-a.waited, func() { left <- a.turn.tryLeave() })
	began := time.Now()
	err := wait()
	a.waited = min(a.waited+time.Since(began), patience)
	if !timer.Stop() {
		a.left = <-left
	}
	return err
}

// Rejoin continues in the turn of the call. It may wait for one again, and fail as [Wait] does. Nobody should wait for
// a part that rejoins: it has returned the turn of the other kind.
func (a *Aside) Rejoin(ctx context.Context) error {
	if a.left {
		a.left = false
		a.failure = a.turn.rejoin(ctx)
	}
	return a.failure
}

// Finish continues without a turn, if the part has none: it has nothing left to do than to answer.
func (a *Aside) Finish() {
	if a.left {
		a.left = false
		a.turn.addParts(1)
	}
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
