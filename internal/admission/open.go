package admission

import (
	"context"
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// pollPayload is after how long a run whose payload could not be opened looks again:
// the key may have come meanwhile.
const pollPayload = 15 * time.Second

var errNoKeys = errors.New("this node has no payload keys")

// strict reports whether payloads that are not sealed are refused.
func (a *Admission) strict() bool { return a.o.Opener != nil && a.o.Opener.Strict() }

// open opens payloads that are stored sealed, of the definitions with which the runs are
// delivered. A run whose payload cannot be opened is held back: that is an operator's
// mistake or an attack, and no failure of the run.
func (a *Admission) open(_ context.Context, g *group) {
	g.filter(func(it *item) bool {
		d, err := it.Known.Definition, errNoKeys
		switch {
		case d.PayloadKey == "" && !a.strict():
			return true
		case a.o.Opener != nil:
			it.Opened, err = a.o.Opener.Open(d)
		}
		switch {
		case err != nil:
			a.unopened(g, it, err)
			return false
		case d.SealVersion() != job.SealOfJob && g.queue != (job.QueueKey{Namespace: d.Namespace, Queue: d.Queue}):
			a.misplaced(g, it)
			return false
		}
		return true
	})
}

// unopened holds a run back whose payload cannot be opened.
func (a *Admission) unopened(g *group, it *item, err error) {
	key := it.Known.Definition.PayloadKey
	if it.Known.State.Held.Reason != job.HeldPayload { // once for each run
		a.o.Logger.Error("run is held back: its payload cannot be opened", "record", it.Record, "key", key, "error", err)
	}
	a.hold(g, it, job.HoldBack{Reason: job.HeldPayload, Key: key, UntilMS: it.nowMS + it.spread(pollPayload)})
}

// misplaced puts a run back that was leased from another queue than that of its job, whose
// workers alone may have the payload. It is due at once, in the queue of its job. A waiting
// run of its own is so when the job's queue was edited; else somebody has written to Redis.
func (a *Admission) misplaced(g *group, it *item) {
	d := it.Known.Definition
	a.o.Logger.Warn("run is put back: its payload is for workers of another queue", "record", it.Record,
		"leased_from", g.queue.Namespace+"/"+g.queue.Queue, "namespace", d.Namespace, "queue", d.Queue)
	a.metrics.held.WithLabelValues(job.HeldPayload.String()).Inc()
	a.drop(g, it)
	a.o.Slots.Return([]job.Leased{it.Leased})
}
