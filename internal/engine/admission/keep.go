package admission

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// keepLoop renews the units of live attempts.
func (a *Admission) keepLoop() {
	timer := time.NewTimer(a.o.renewPeriod())
	defer timer.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.keepWake:
			a.renewUnits(func(u heldUnit) bool { return u.unconfirmed })
			continue
		case <-timer.C:
		}
		next := a.o.renewPeriod()
		if !a.renewUnits(func(heldUnit) bool { return true }) {
			next = a.o.retryPause()
		}
		if !a.keepProbes() {
			next = a.o.retryPause()
		}
		timer.Reset(next)
	}
}

// keptUnit is one unit to be renewed.
type keptUnit struct {
	key attemptKey
	l   *heldByAttempt
	u   heldUnit
}

// maxKeptUnits bounds one call.
const maxKeptUnits = 1000

// renewUnits renews units of live attempts; false if some were not reached.
func (a *Admission) renewUnits(which func(heldUnit) bool) bool {
	var list []keptUnit
	a.mu.Lock()
	for key, l := range a.mu.attempts {
		for _, u := range l.units {
			if which(u) {
				list = append(list, keptUnit{key, l, u})
			}
		}
	}
	a.mu.Unlock()
	all := true
	for len(list) > 0 && a.ctx.Err() == nil {
		n := min(len(list), maxKeptUnits)
		all = a.renewBatch(list[:n]) && all
		list = list[n:]
	}
	return all
}

// renewBatch makes one call.
func (a *Admission) renewBatch(list []keptUnit) bool {
	ctx, cancel := context.WithTimeout(a.ctx, a.o.callTimeout())
	defer cancel()
	keeps := make([]job.UnitRenewal, len(list))
	places := make(map[job.UnitRenewal]keptUnit, len(list))
	for i, k := range list {
		keeps[i] = job.UnitRenewal{Name: k.u.name, Holder: k.l.holder, TTL: a.o.LeaseTTL}
		places[keeps[i]] = k
	}
	gone, err := a.o.Limits.RenewUnits(ctx, keeps)
	lost := make([]keptUnit, len(gone))
	for i, k := range gone {
		lost[i] = places[k]
		delete(places, k)
	}
	if err != nil {
		a.logFailure("keep units", err)
	} else {
		a.logRecovery()
		a.confirmUnits(places)
	}
	return a.retakeLapsed(ctx, lost) && err == nil
}

// confirmUnits notes that units were held when they were renewed.
func (a *Admission) confirmUnits(units map[job.UnitRenewal]keptUnit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range units {
		if k.l.ended {
			continue
		}
		for i := range k.l.units {
			if u := &k.l.units[i]; u.name == k.u.name {
				u.unconfirmed = false
			}
		}
	}
}

// retakeLapsed handles units that have expired under live attempts: they are taken again if they are still free.
func (a *Admission) retakeLapsed(ctx context.Context, list []keptUnit) bool {
	var asks []job.UnitRequest
	var live []keptUnit
	a.mu.Lock()
	for _, k := range list {
		switch {
		case k.l == nil || k.l.ended:
		case k.u.unconfirmed:
			// The limit was set after the attempt started.
			k.l.removeUnit(k.u.name)
		default:
			live = append(live, k)
			asks = append(asks, job.UnitRequest{Name: k.u.name, Limit: k.u.limit, Holder: k.l.holder, TTL: a.o.LeaseTTL})
		}
	}
	a.mu.Unlock()
	if len(asks) == 0 {
		return true
	}
	all := true
	for i, grant := range a.o.Limits.AcquireUnits(ctx, asks) {
		switch {
		case grant.Granted:
			a.confirmRetaken(live[i])
		case grant.Err != nil:
			a.logFailure("units", grant.Err)
			all = false
		default:
			a.loseUnit(live[i], grant)
		}
	}
	return all
}

// confirmRetaken notes that an expired unit was free and taken again; if its attempt has ended meanwhile it is
// released.
func (a *Admission) confirmRetaken(k keptUnit) {
	a.mu.Lock()
	back := k.l.ended && k.l.leaseEnded
	a.mu.Unlock()
	if back {
		a.deferCalls(deferredCalls{releases: []unitRelease{{heldUnit: k.u, holder: k.l.holder}}})
	}
}

// loseUnit handles a unit that another run has now.
func (a *Admission) loseUnit(k keptUnit, grant job.UnitGrant) {
	a.mu.Lock()
	ended := k.l.ended
	if !ended {
		k.l.removeUnit(k.u.name)
	}
	a.mu.Unlock()
	if ended {
		return
	}
	a.metrics.lost.WithLabelValues(k.u.reason.String()).Inc()
	a.o.Logger.Warn("live attempt lost its unit", "record", k.key.record, "reason", k.u.reason.String(),
		"key", k.u.key, "held_by", grant.By, "abandoned", k.u.reason == job.HeldLock)
	if k.u.reason == job.HeldLock {
		a.o.Slots.AbandonAttempt(k.key.record, k.key.token)
	}
}

// removeUnit removes a unit. The caller holds the mutex.
func (l *heldByAttempt) removeUnit(name string) {
	var rest []heldUnit
	for _, u := range l.units {
		if u.name != name {
			rest = append(rest, u)
		}
	}
	l.units = rest
}
