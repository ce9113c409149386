package admission

import (
	"context"
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// pollPayload is the time after which a run whose payload could not be opened tries again: the key may have been
// added meanwhile.
const pollPayload = 15 * time.Second

var errNoKeys = errors.New("this node has no payload keys")

// refusesUnsealed reports whether payloads that are not sealed are refused.
func (a *Admission) refusesUnsealed() bool { return a.o.Opener != nil && a.o.Opener.RequiresVersion2() }

// openPayloads opens sealed payloads in the definitions with which the runs are delivered. A run whose payload
// cannot be opened is held back: that is an operator's mistake or an attack, and no failure of the run. A run that
// was leased from a queue other than its job's is put back, sealed or not. The definitions are those that readParents
// has read, which may be newer than those of the leases.
func (a *Admission) openPayloads(_ context.Context, g *gateGroup) {
	g.keepPassed(func(it *gatedRun) bool {
		d := deliveredDefinition(&it.Leased)
		opened, err := a.openPayload(d)
		switch {
		case err != nil:
			a.holdUnopened(g, it, d.PayloadKey, err)
			return false
		case d.QueueKey() != g.queue:
			a.putBack(g, it)
			return false
		}
		it.Opened = opened
		return true
	})
}

// openPayload returns the payload of a definition as its worker gets it.
func (a *Admission) openPayload(d *job.Definition) ([]byte, error) {
	switch {
	case d.PayloadKey == "" && !a.refusesUnsealed():
		return d.Payload, nil
	case a.o.Opener == nil:
		return nil, errNoKeys
	}
	return a.o.Opener.Decrypt(d)
}

// deliveredDefinition is the definition of a run with the payload that its worker gets.
func deliveredDefinition(l *job.Leased) *job.Definition {
	if l.Own == nil {
		return l.Known.Definition
	}
	return l.Own.ApplyTo(l.Known.Definition)
}

// holdUnopened holds back a run whose payload cannot be opened.
func (a *Admission) holdUnopened(g *gateGroup, it *gatedRun, key string, err error) {
	if it.Known.State.Held.Reason != job.HeldPayload { // once for each run
		a.o.Logger.Error("run held back, failed to open its payload", "record", it.Record, "key", key, "error", err)
	}
	a.holdBack(g, it, job.HoldBack{
		Reason: job.HeldPayload, Key: key, UntilMS: it.nowMS + unixtime.Milli(it.spreadMS(pollPayload)),
	})
}

// putBack returns a run that was leased from a queue other than its job's, whose workers alone may have the
// payload. It is due at once, in the queue of its job, from which it is leased next. This happens to a waiting run
// with a record of its own when the job's queue was edited; otherwise another program has written to Redis.
func (a *Admission) putBack(g *gateGroup, it *gatedRun) {
	d := it.Known.Definition
	a.o.Logger.Warn("run put back, its job is in another queue", "record", it.Record,
		"leased_from", g.queue.Namespace+"/"+g.queue.Queue, "namespace", d.Namespace, "queue", d.Queue)
	a.metrics.held.WithLabelValues(job.HeldPayload.String()).Inc()
	a.releaseHeld(g, it)
	a.o.Slots.ReturnLeases([]job.Leased{it.Leased})
}
