package admission

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// heldUnit is a place at a lock or in a queue's concurrency.
type heldUnit struct {
	name   string
	limit  int
	reason job.HoldReason
	key    string // as the held run's state has it
	queue  job.QueueKey
	// unconfirmed: the attempt was adopted from another node, and it is not confirmed yet that it holds the
	// unit.
	unconfirmed bool
}

// unitsOf lists what a run has to hold, in the order in which it is taken.
func unitsOf(d *job.Definition, queue job.QueueKey, limits job.QueueSettings) []heldUnit {
	var units []heldUnit
	for _, l := range d.Locks {
		units = append(units, heldUnit{
			name: job.LockName(d.Namespace, l.Key), limit: l.Limit, reason: job.HeldLock, key: l.Key,
		})
	}
	slices.SortFunc(units, func(a, b heldUnit) int { return cmp.Compare(a.name, b.name) })
	units = slices.CompactFunc(units, func(a, b heldUnit) bool { return a.name == b.name })
	if limits.MaxConcurrency > 0 {
		units = append(units, heldUnit{
			name: job.QueueLimitName(queue), limit: limits.MaxConcurrency, reason: job.HeldQueue, key: queue.Queue,
			queue: queue,
		})
	}
	return units
}

// takeUnits takes the runs' units: one call for the first unit of each run, one for the second, and so on. If a
// run is denied one, its earlier ones are released.
func (a *Admission) takeUnits(ctx context.Context, g *gateGroup) {
	need := make(map[*gatedRun][]heldUnit, len(g.items))
	for _, it := range g.items {
		need[it] = unitsOf(it.Known.Definition, g.queue, g.limits)
	}
	for round := 0; ; round++ {
		var asks []job.UnitRequest
		for _, it := range g.items {
			if round < len(need[it]) {
				asks = append(asks, it.unitAsk(need[it][round], a.o.LeaseTTL))
			}
		}
		if len(asks) == 0 {
			return
		}
		grants := a.o.Limits.AcquireUnits(ctx, asks)
		g.keepPassed(func(it *gatedRun) bool {
			if round >= len(need[it]) {
				return true
			}
			grant, u := grants[0], need[it][round]
			grants = grants[1:]
			switch {
			case grant.Err != nil:
				// It may have been granted, so it is released as well.
				it.heldUnits = append(it.heldUnits, u)
				a.removeFailed(g, it, "units", grant.Err)
				return false
			case grant.Granted:
				a.logRecovery()
				it.heldUnits = append(it.heldUnits, u)
				return true
			}
			a.holdBack(g, it, job.HoldBack{Reason: u.reason, Key: u.key, By: jobIDOf(grant.By),
				UntilMS: it.deniedUntil(u, grant)})
			return false
		})
	}
}

// deniedUntil is when a run comes back that was denied a unit. At a lock it has a place in line
// and is woken. At a queue's concurrency limit Take makes runs wait, before they are leased and in
// their order. Runs beyond the room that were leased all the same have to go back into that order
// soon: a line would reserve the queue's room for runs that come after others in Redis.
//
// A holder that dies gives nothing back and wakes none: the first in line come when its unit
// expires.
func (it *gatedRun) deniedUntil(u heldUnit, grant job.UnitGrant) unixtime.Milli {
	if u.reason == job.HeldQueue {
		return it.nowMS + unixtime.Milli(it.spreadMS(roomPause))
	}
	until := it.nextPollMS(it.heldSince(u.reason, u.key), pollLock)
	if lapses := int64(grant.FreeMS - grant.NowMS); grant.FreeMS > 0 {
		until = min(until, (it.nowMS + unixtime.Milli(max(0, lapses))).Add(lapseSlack))
	}
	return until
}

// lapseSlack is the minimum time after the expiry of a unit at which a waiter comes for it: the run's clock was
// read before the unit's.
const lapseSlack = 20 * time.Millisecond

// unitAsk is the ask for a unit. The run that has waited longest for a lock is woken first.
func (it *gatedRun) unitAsk(u heldUnit, ttl time.Duration) job.UnitRequest {
	ask := job.UnitRequest{Name: u.name, Limit: u.limit, Holder: it.holder, TTL: ttl}
	if u.reason == job.HeldLock {
		ask.Waiter, ask.Rank = it.Record, int64(it.heldSince(u.reason, u.key))
	}
	return ask
}

// jobIDOf returns the job whose run holds a unit, or has one reserved.
func jobIDOf(holder string) string {
	record, _, ok := job.ParseLeaseID(holder)
	if !ok {
		record, _ = job.ParseRecordID(holder)
	}
	return record.Key().ID
}
