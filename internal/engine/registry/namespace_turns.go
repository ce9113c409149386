package registry

import (
	"context"
	"runtime"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/callturn"
	"github.com/fermata-io/fermata/internal/lib/fairturn"
)

const (
	// maxTurnWait bounds how long a part of a call waits for turns of its namespace in all.
	maxTurnWait = 5 * time.Second
	// maxLookups bounds the look-ups of existing jobs at a time.
	maxLookups = 4
)

// namespaceTurns bounds how often something is done at once: once for each namespace, and so many times on this node.
// Namespaces and identities get equal parts of the time, however many calls they make. A part of a call that waits for
// long leaves the turn of the call on its node to others (see callturn), and is refused if it waits too long.
type namespaceTurns struct {
	*fairturn.Turns
	work string // in refusals
}

// newScheduleTurns returns the turns of checks of expensive schedules: as many as half of the processors. One check may
// take tens of milliseconds, so that calls of one namespace could keep all processors busy.
func newScheduleTurns() *namespaceTurns {
	return newNamespaceTurns("schedules", max(1, runtime.GOMAXPROCS(0)/2))
}

// newLookupTurns returns the turns of look-ups of several existing jobs: those which are subtracted from the demand of
// a quota, and those which a batch registers again. Such a call names up to MaxBatch jobs in a small request.
func newLookupTurns() *namespaceTurns { return newNamespaceTurns("lookups", maxLookups) }

func newNamespaceTurns(work string, atOnce int) *namespaceTurns {
	return &namespaceTurns{fairturn.New(atOnce, 1), work}
}

// turnsOfPart are the turns that a part of a call takes beside that on its node. It is for one goroutine.
type turnsOfPart struct {
	aside *callturn.Aside
	left  time.Duration // how long it may still wait for them
}

// takeTurnsAside returns the turns of a part of a call. Call rejoin, or finish, after the work in them.
func takeTurnsAside(ctx context.Context) *turnsOfPart {
	return &turnsOfPart{callturn.StepAside(ctx), maxTurnWait}
}

// wait runs a wait for as long as the part may still wait, and counts it.
func (p *turnsOfPart) wait(ctx context.Context, wait func(context.Context) error) error {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, p.left)
	defer cancel()
	err := p.aside.Wait(func() error { return wait(bounded) })
	p.left -= time.Since(began)
	return err
}

// rejoin continues in the turn of the call on its node, and fails if it gets none.
func (p *turnsOfPart) rejoin(ctx context.Context) error { return p.aside.Rejoin(ctx) }

// finish continues without a turn on the node: nothing is left to do than to answer.
func (p *turnsOfPart) finish() { p.aside.Finish() }

// begin waits for a turn, and returns a function to call at its end. It fails with a [job.TurnError] if there is no
// turn within the time that the part may wait, and with the cause of ctx if that ends.
func (t *namespaceTurns) begin(ctx context.Context, namespace string, part *turnsOfPart) (end func(), err error) {
	h := fairturn.Holder{Namespace: namespace, Identity: callturn.Caller(ctx)}
	if !t.TryTake(h) {
		err = part.wait(ctx, func(ctx context.Context) error { return t.Take(ctx, h) })
	}
	if err != nil {
		return nil, t.refusal(ctx, namespace)
	}
	began := time.Now()
	return func() { t.Release(h, time.Since(began)) }, nil
}

// refusal is the error of a call that had no turn. It names the namespace if that has its turn, or else the node.
func (t *namespaceTurns) refusal(ctx context.Context, namespace string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !t.IsAtLimit(namespace) {
		namespace = ""
	}
	return &job.TurnError{Work: t.work, Namespace: namespace}
}
