package registry

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/callturn"
	"github.com/fermata-io/fermata/internal/lib/fairturn"
)

const (
	// maxTurnWait bounds how long a call, or each part of it, waits for turns of its namespace in all.
	maxTurnWait = 5 * time.Second
	// maxLookups bounds the look-ups of existing jobs at a time.
	maxLookups = 4
)

// namespaceTurns bounds how often something is done at once: once for each namespace, and so many times on this node.
// Namespaces and identities get equal parts of the time, however many calls they make. A call that waits for long gives
// its own turn on the node back (see callturn), and is refused if it waits too long.
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

// turnWait is how long a call may still wait. It is safe for concurrent use.
type turnWait struct{ left atomic.Int64 }

// newTurnWait returns the waits of a call with some parts, which wait at the same time.
func newTurnWait(parts int) *turnWait {
	w := new(turnWait)
	w.left.Store(int64(parts) * int64(maxTurnWait))
	return w
}

// run runs a wait for as long as the call may still wait, and counts it.
func (w *turnWait) run(ctx context.Context, wait func(context.Context) error) error {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, min(maxTurnWait, time.Duration(w.left.Load())))
	defer cancel()
	err := wait(bounded)
	w.left.Add(-int64(time.Since(began)))
	return err
}

// begin waits for a turn, and returns a function to call at its end. It fails with a [job.TurnError] if there is no
// turn within the time that the call may wait, and with the cause of ctx if that ends.
func (t *namespaceTurns) begin(ctx context.Context, namespace string, waits *turnWait) (end func(), err error) {
	h := fairturn.Holder{Namespace: namespace, Identity: callturn.Caller(ctx)}
	rejoin := func() {}
	if !t.TryTake(h) {
		rejoin, err = callturn.WaitAside(ctx, func() error {
			return waits.run(ctx, func(ctx context.Context) error { return t.Take(ctx, h) })
		})
	}
	if err != nil {
		rejoin()
		return nil, t.refusal(ctx, namespace)
	}
	began := time.Now()
	return func() {
		t.Release(h, time.Since(began))
		rejoin()
	}, nil
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
