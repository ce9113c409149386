package admission

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/slots"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// gateGroup is a group of runs on its way through the gates: items are those that have passed so far, gateErrors
// those for which a gate failed.
type gateGroup struct {
	queue       job.QueueKey
	limits      job.QueueSettings
	reservation slots.Reservation
	since       time.Time
	items       []*gatedRun
	gateErrors  []*gatedRun
	// circuits of the runs' targets, if they were read ahead.
	circuits *targetCircuits
}

// gatedRun is one leased run.
type gatedRun struct {
	job.Leased
	key    job.Key
	gates  job.Gates
	holder string
	parent *job.State     // of a child
	nowMS  unixtime.Milli // shard clock
	latest lease.ClockBound
	// storesStart: the start has to be stored before delivery.
	storesStart bool
	paced       bool // it had its turn in the recovery budget
	heldUnits   []heldUnit
	target      string // name of the cell; "" is none
	// mayProbe: the run may be the probe of its target.
	mayProbe bool
}

func newGatedRun(l job.Leased, gates job.Gates) *gatedRun {
	it := &gatedRun{Leased: l, gates: gates}
	it.key = l.Record.Key()
	it.holder = job.LeaseID(l.Record.Job(), l.Known.State.Token)
	if gates&job.GateTarget != 0 {
		it.target = job.TargetName(it.key.Namespace, l.Known.Definition.Target)
	}
	return it
}

// setState sets the run's state as it is stored by now. Others may have the previous record.
func (it *gatedRun) setState(s job.State) {
	it.Known = &job.Record{Definition: it.Known.Definition, State: s, IndexMS: it.Known.IndexMS}
}

// maxUnits is the largest number of units that a run of the group needs.
func (g *gateGroup) maxUnits() (most int) {
	for _, it := range g.items {
		most = max(most, len(it.Known.Definition.Locks))
	}
	if g.limits.MaxConcurrency > 0 {
		most++
	}
	return most
}

func leasesOf(items []*gatedRun) []job.Leased {
	leases := make([]job.Leased, len(items))
	for i, it := range items {
		leases[i] = it.Leased
	}
	return leases
}

// keepPassed keeps the runs for which f is true.
func (g *gateGroup) keepPassed(f func(*gatedRun) bool) {
	kept := g.items[:0]
	for _, it := range g.items {
		if f(it) {
			kept = append(kept, it)
		}
	}
	clear(g.items[len(kept):])
	g.items = kept
}

// readClocks reads the shard clocks that the gates use.
func (a *Admission) readClocks(ctx context.Context, g *gateGroup) {
	g.keepPassed(func(it *gatedRun) bool {
		now, err := a.o.Store.Now(ctx, it.Shard)
		if err != nil {
			a.removeFailed(g, it, "clock", err)
			return false
		}
		it.nowMS, it.latest = it.Known.State.AtLeastDue(now), a.o.Store.Latest(it.Shard)
		it.latest.MS = max(it.latest.MS, it.nowMS)
		return true
	})
}

// removeFailed removes a run for which a gate failed.
func (a *Admission) removeFailed(g *gateGroup, it *gatedRun, what string, err error) {
	a.logFailure(what, err)
	a.releaseHeld(g, it)
	g.gateErrors = append(g.gateErrors, it)
}

// holdBack removes a run that a gate holds back.
func (a *Admission) holdBack(g *gateGroup, it *gatedRun, h job.HoldBack) {
	a.metrics.held.WithLabelValues(h.Reason.String()).Inc()
	a.releaseHeld(g, it)
	h.Token, h.Paced = it.Known.State.Token, h.Paced || it.paced
	lease := it.Leased
	a.o.Ledger.Submit(job.Change{Record: it.Record, Input: h, Known: it.Known}, func(r job.ChangeResult) {
		if r.Err != nil {
			a.o.Slots.ReturnLeases([]job.Leased{lease})
		}
	})
}

// releaseHeld gives back what a run got that does not start.
func (a *Admission) releaseHeld(g *gateGroup, it *gatedRun) {
	var e deferredCalls
	for _, u := range it.heldUnits {
		e.releases = append(e.releases, unitRelease{heldUnit: u, holder: it.holder})
	}
	if it.mayProbe {
		e.reports = append(e.reports, targetReport{target: it.target, holder: it.holder, noVerdict: true})
	}
	if g.limits.Rate > 0 {
		e.unused = append(e.unused, job.QueueRequest{Queue: g.queue, N: 1})
	}
	a.settlePromise(g.queue, g.limits, 1)
	it.heldUnits, it.mayProbe = nil, false
	a.deferCalls(e)
}

// Bounds of the pause after which a held run tries again unless it is woken: half of what it has waited so far,
// and up to half as much again, so that runs spread. In a long line each tries rarely. A lock wakes its waiters;
// the end of a target's probe wakes none.
const (
	pollLock   = 2 * time.Second
	pollTarget = 500 * time.Millisecond
	pollMost   = 10 * time.Second
)

// nextPollMS is when a run tries again that a gate has held back since then.
func (it *gatedRun) nextPollMS(sinceMS unixtime.Milli, least time.Duration) unixtime.Milli {
	pause := max(least, min(it.nowMS.Sub(sinceMS)/2, pollMost))
	return it.nowMS + unixtime.Milli(it.spreadMS(pause))
}

// spreadMS is a pause of the run's own, from d to one and a half of it, in milliseconds.
func (it *gatedRun) spreadMS(d time.Duration) int64 {
	seed := backoff.Seed(string(it.Record), int64(it.Known.State.Token), 0)
	return d.Milliseconds() + int64(seed%uint64(d.Milliseconds()/2+1))
}

// heldSince is since when a gate has held the run back; now if it has not.
func (it *gatedRun) heldSince(reason job.HoldReason, key string) unixtime.Milli {
	if h := it.Known.State.Held; h.Reason == reason && h.Key == key && h.SinceMS > 0 {
		return h.SinceMS
	}
	return it.nowMS
}
