package admission

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// keepLoop prolongs what live attempts hold.
func (a *Admission) keepLoop() {
	timer := time.NewTimer(a.o.keepEvery())
	defer timer.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.keepWake:
			a.keepUnits(func(u unit) bool { return u.unsure })
			continue
		case <-timer.C:
		}
		next := a.o.keepEvery()
		if !a.keepUnits(func(unit) bool { return true }) {
			next = a.o.errorRest()
		}
		if !a.keepProbes() {
			next = a.o.errorRest()
		}
		timer.Reset(next)
	}
}

// kept is one unit that is to be prolonged.
type kept struct {
	key attemptKey
	l   *live
	u   unit
}

// maxKept bounds one call.
const maxKept = 1000

// keepUnits prolongs units of live attempts; false when some were not reached.
func (a *Admission) keepUnits(which func(unit) bool) bool {
	var list []kept
	a.mu.Lock()
	for key, l := range a.mu.live {
		for _, u := range l.units {
			if which(u) {
				list = append(list, kept{key, l, u})
			}
		}
	}
	a.mu.Unlock()
	all := true
	for len(list) > 0 && a.ctx.Err() == nil {
		n := min(len(list), maxKept)
		all = a.keepSome(list[:n]) && all
		list = list[n:]
	}
	return all
}

// keepSome makes one call.
func (a *Admission) keepSome(list []kept) bool {
	ctx, cancel := context.WithTimeout(a.ctx, a.o.callTimeout())
	defer cancel()
	keeps := make([]job.UnitKeep, len(list))
	places := make(map[job.UnitKeep]kept, len(list))
	for i, k := range list {
		keeps[i] = job.UnitKeep{Name: k.u.name, Holder: k.l.holder, TTL: a.o.LeaseTTL}
		places[keeps[i]] = k
	}
	gone, err := a.o.Limits.KeepUnits(ctx, keeps)
	lost := make([]kept, len(gone))
	for i, k := range gone {
		lost[i] = places[k]
		delete(places, k)
	}
	if err != nil {
		a.failed("keep units", err)
	} else {
		a.worked()
		a.sure(places)
	}
	return a.lost(ctx, lost) && err == nil
}

// sure notes of units that they were held when they were kept.
func (a *Admission) sure(units map[job.UnitKeep]kept) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range units {
		if k.l.ended {
			continue
		}
		for i := range k.l.units {
			if u := &k.l.units[i]; u.name == k.u.name {
				u.unsure = false
			}
		}
	}
}

// lost deals with units that have lapsed under live attempts: they are taken again
// if they are still free.
func (a *Admission) lost(ctx context.Context, list []kept) bool {
	var asks []job.UnitAsk
	var live []kept
	a.mu.Lock()
	for _, k := range list {
		switch {
		case k.l == nil || k.l.ended:
		case k.u.unsure:
			// The limit came into force after the attempt began.
			k.l.without(k.u.name)
		default:
			live = append(live, k)
			asks = append(asks, job.UnitAsk{Name: k.u.name, Limit: k.u.limit, Holder: k.l.holder, TTL: a.o.LeaseTTL})
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
			a.again(live[i])
		case grant.Err != nil:
			a.failed("units", grant.Err)
			all = false
		default:
			a.giveUp(live[i], grant)
		}
	}
	return all
}

// again notes that a unit that had lapsed was free; if its attempt has ended
// meanwhile it goes back.
func (a *Admission) again(k kept) {
	a.mu.Lock()
	back := k.l.ended && k.l.over
	a.mu.Unlock()
	if back {
		a.send(errands{releases: []release{{unit: k.u, holder: k.l.holder}}})
	}
}

// giveUp deals with a unit that somebody else has now.
func (a *Admission) giveUp(k kept, grant job.UnitGrant) {
	a.mu.Lock()
	ended := k.l.ended
	if !ended {
		k.l.without(k.u.name)
	}
	a.mu.Unlock()
	if ended {
		return
	}
	a.metrics.lost.WithLabelValues(k.u.reason.String()).Inc()
	a.o.Logger.Warn("live attempt has lost what it held", "record", k.key.record, "reason", k.u.reason.String(),
		"key", k.u.key, "held_by", grant.By, "abandoned", k.u.reason == job.HeldLock)
	if k.u.reason == job.HeldLock {
		a.o.Slots.Abandon(k.key.record, k.key.token)
	}
}

// without forgets a unit. The caller holds the mutex.
func (l *live) without(name string) {
	var rest []unit
	for _, u := range l.units {
		if u.name != name {
			rest = append(rest, u)
		}
	}
	l.units = rest
}
