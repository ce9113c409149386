package admission

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/backoff"
	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/lease"
)

// group is what is on its way through the gates together: items are those that have
// passed so far, broken those for which a gate could not be asked.
type group struct {
	queue  job.QueueKey
	limits job.QueueSettings
	slots  Reservation
	since  time.Time
	items  []*item
	broken []*item
	// circuits of the runs' targets, if they were read ahead.
	circuits *circuits
}

// item is one leased run.
type item struct {
	job.Leased
	key    job.Key
	child  string // "" on the job's own record
	gates  job.Gates
	holder string
	parent *job.State // of a child
	nowMS  int64      // shard clock
	latest lease.Latest
	// arrive: the start has to be stored before delivery.
	arrive bool
	paced  bool // it had its turn in the recovery budget
	have   []unit
	target string // name of the cell; "" is none
	// probe: the run may be the one that finds out about the target.
	probe bool
}

func newItem(l job.Leased, gates job.Gates) *item {
	it := &item{Leased: l, gates: gates}
	it.key, it.child, _ = job.ParseRecord(l.Record)
	it.holder = job.LeaseID(it.key.Record(), l.Known.State.Token)
	if gates&job.GateTarget != 0 {
		it.target = job.TargetName(it.key.Namespace, l.Known.Definition.Target)
	}
	return it
}

// became takes over what is stored of the run by now. Others may know what was before.
func (it *item) became(s job.State) {
	it.Known = &job.Record{Definition: it.Known.Definition, State: s, IndexMS: it.Known.IndexMS}
}

// mostUnits is how many units the run of the group needs that needs most.
func (g *group) mostUnits() (most int) {
	for _, it := range g.items {
		most = max(most, len(it.Known.Definition.Locks))
	}
	if g.limits.MaxConcurrency > 0 {
		most++
	}
	return most
}

func leasesOf(items []*item) []job.Leased {
	leases := make([]job.Leased, len(items))
	for i, it := range items {
		leases[i] = it.Leased
	}
	return leases
}

// filter keeps the items that f says passed.
func (g *group) filter(f func(*item) bool) {
	kept := g.items[:0]
	for _, it := range g.items {
		if f(it) {
			kept = append(kept, it)
		}
	}
	clear(g.items[len(kept):])
	g.items = kept
}

// clocks reads the clocks that the gates go by.
func (a *Admission) clocks(ctx context.Context, g *group) {
	g.filter(func(it *item) bool {
		now, err := a.o.Store.Now(ctx, it.Shard)
		if err != nil {
			a.broke(g, it, "clock", err)
			return false
		}
		it.nowMS, it.latest = it.Known.State.AtLeastDue(now), a.o.Store.Latest(it.Shard)
		it.latest.MS = max(it.latest.MS, it.nowMS)
		return true
	})
}

// broke takes out a run for which a gate could not be asked.
func (a *Admission) broke(g *group, it *item, what string, err error) {
	a.failed(what, err)
	a.drop(g, it)
	g.broken = append(g.broken, it)
}

// hold takes out a run that a gate holds back.
func (a *Admission) hold(g *group, it *item, h job.HoldBack) {
	a.metrics.held.WithLabelValues(h.Reason.String()).Inc()
	a.drop(g, it)
	h.Token, h.Paced = it.Known.State.Token, h.Paced || it.paced
	lease := it.Leased
	a.o.Ledger.Submit(job.Change{Record: it.Record, Event: h, Known: it.Known}, func(r job.ChangeResult) {
		if r.Err != nil {
			a.o.Slots.Return([]job.Leased{lease})
		}
	})
}

// drop gives back what a run got that does not start.
func (a *Admission) drop(g *group, it *item) {
	var e errands
	for _, u := range it.have {
		e.releases = append(e.releases, release{unit: u, holder: it.holder})
	}
	if it.probe {
		e.reports = append(e.reports, report{target: it.target, holder: it.holder, dropped: true})
	}
	if g.limits.Rate > 0 {
		e.unused = append(e.unused, job.QueueAsk{Queue: g.queue, N: 1})
	}
	a.arrived(g.queue, g.limits, 1)
	it.have, it.probe = nil, false
	a.send(e)
}

// Bounds of the pause after which a held run looks again unless it is woken: half
// of what it has waited so far, and up to half as much again, so that runs spread.
// Of a long line each looks rarely. A lock wakes those who wait for it; that a
// target's probe is done they have to find out.
const (
	pollLock   = 2 * time.Second
	pollTarget = 500 * time.Millisecond
	pollMost   = 10 * time.Second
)

// pollMS is when a run looks again that a gate has held back since then.
func (it *item) pollMS(sinceMS int64, least time.Duration) int64 {
	pause := max(least, min(time.Duration(it.nowMS-sinceMS)*time.Millisecond/2, pollMost))
	return it.nowMS + it.spread(pause)
}

// spread is a pause of the run's own, from d to one and a half of it, in
// milliseconds.
func (it *item) spread(d time.Duration) int64 {
	seed := backoff.Seed(it.Record, int64(it.Known.State.Token), 0)
	return d.Milliseconds() + int64(seed%uint64(d.Milliseconds()/2+1))
}

// heldSince is since when a gate has held the run back; now if it has not.
func (it *item) heldSince(reason job.HoldReason, key string) int64 {
	if h := it.Known.State.Held; h.Reason == reason && h.Key == key && h.SinceMS > 0 {
		return h.SinceMS
	}
	return it.nowMS
}
