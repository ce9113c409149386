package admission

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// unit is a place at a lock or in a queue's concurrency.
type unit struct {
	name   string
	limit  int
	reason job.HoldReason
	key    string // as the held run's state has it
	queue  job.QueueKey
	// unsure: nobody has said yet that the attempt, taken over from another node,
	// has it.
	unsure bool
}

// unitsOf lists what a run has to hold, in the order in which it is taken.
func unitsOf(d *job.Definition, queue job.QueueKey, limits job.QueueSettings) []unit {
	var units []unit
	for _, l := range d.Locks {
		units = append(units, unit{
			name: job.LockName(d.Namespace, l.Key), limit: l.Limit, reason: job.HeldLock, key: l.Key,
		})
	}
	slices.SortFunc(units, func(a, b unit) int { return cmp.Compare(a.name, b.name) })
	units = slices.CompactFunc(units, func(a, b unit) bool { return a.name == b.name })
	if limits.MaxConcurrency > 0 {
		units = append(units, unit{
			name: job.QueueLimitName(queue), limit: limits.MaxConcurrency, reason: job.HeldQueue, key: queue.Queue, queue: queue,
		})
	}
	return units
}

// units takes the runs' units: one call for the first unit of each run, one for the
// second, and so on. A run that is denied one has those before it given back.
func (a *Admission) units(ctx context.Context, g *group) {
	need := make(map[*item][]unit, len(g.items))
	for _, it := range g.items {
		need[it] = unitsOf(it.Known.Definition, g.queue, g.limits)
	}
	for round := 0; ; round++ {
		var asks []job.UnitAsk
		for _, it := range g.items {
			if round < len(need[it]) {
				asks = append(asks, it.ask(need[it][round], a.o.LeaseTTL))
			}
		}
		if len(asks) == 0 {
			return
		}
		grants := a.o.Limits.AcquireUnits(ctx, asks)
		g.filter(func(it *item) bool {
			if round >= len(need[it]) {
				return true
			}
			grant, u := grants[0], need[it][round]
			grants = grants[1:]
			switch {
			case grant.Err != nil:
				// It may have been granted, so it is given back as well.
				it.have = append(it.have, u)
				a.broke(g, it, "units", grant.Err)
				return false
			case grant.Granted:
				a.worked()
				it.have = append(it.have, u)
				return true
			}
			a.hold(g, it, job.HoldBack{Reason: u.reason, Key: u.key, By: jobOf(grant.By), UntilMS: it.deniedUntil(u, grant)})
			return false
		})
	}
}

// deniedUntil is when a run comes back that was denied a unit. At a lock it has a
// place in line and is woken. At a queue's concurrency limit it is Take that makes
// runs wait, before they are leased and in their order, and what gets past it, more
// than there is room for, has to go back into that order soon: a line would have
// the queue's room reserved for runs that come after others in Redis.
//
// A holder that dies gives nothing back, and nobody is woken: the first in line come when its
// unit lapses.
func (it *item) deniedUntil(u unit, grant job.UnitGrant) int64 {
	if u.reason == job.HeldQueue {
		return it.nowMS + it.spread(restRoom)
	}
	until := it.pollMS(it.heldSince(u.reason, u.key), pollLock)
	if lapses := grant.FreeMS - grant.NowMS; grant.FreeMS > 0 {
		until = min(until, it.nowMS+max(0, lapses)+lapseSlack.Milliseconds())
	}
	return until
}

// lapseSlack is how long after a unit has lapsed a waiter comes for it, at least: the run's
// clock was read before the unit's.
const lapseSlack = 20 * time.Millisecond

// ask asks for a unit. Who has waited for a lock longest is woken first.
func (it *item) ask(u unit, ttl time.Duration) job.UnitAsk {
	ask := job.UnitAsk{Name: u.name, Limit: u.limit, Holder: it.holder, TTL: ttl}
	if u.reason == job.HeldLock {
		ask.Waiter, ask.Rank = it.Record, it.heldSince(u.reason, u.key)
	}
	return ask
}

// jobOf names the job whose run holds a unit, or has one reserved for it.
func jobOf(holder string) string {
	record, _, ok := job.ParseLeaseID(holder)
	if !ok {
		record = holder
	}
	key, _, _ := job.ParseRecord(record)
	return key.ID
}
