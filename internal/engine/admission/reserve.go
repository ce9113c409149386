package admission

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// gatedReservation takes its leases through the gates.
type gatedReservation struct {
	a     *Admission
	inner slots.Reservation
	queue job.QueueKey
}

// Reserve reserves slots as [Slots] does. Leases delivered to the reservation pass the gates first.
func (a *Admission) Reserve(namespace, queue string, n int) slots.Reservation {
	return a.throughGates(a.o.Slots.Reserve(namespace, queue, n), namespace, queue)
}

// Prefetch reserves places to wait for a slot; otherwise it is like Reserve.
func (a *Admission) Prefetch(namespace, queue string, n int) slots.Reservation {
	return a.throughGates(a.o.Slots.ReserveWaiting(namespace, queue, n), namespace, queue)
}

// MayAdvance reports whether slots reserved now may take leases that are not due yet.
func (a *Admission) MayAdvance(namespace, queue string) bool {
	return a.o.Slots.MayAdvance(namespace, queue)
}

func (a *Admission) throughGates(inner slots.Reservation, namespace, queue string) slots.Reservation {
	if inner == nil {
		return nil
	}
	return &gatedReservation{a: a, inner: inner, queue: job.QueueKey{Namespace: namespace, Queue: queue}}
}

func (r *gatedReservation) Count() int { return r.inner.Count() }

func (r *gatedReservation) Advance() bool { return r.inner.Advance() }

func (r *gatedReservation) Split(n int) slots.Reservation {
	return &gatedReservation{a: r.a, inner: r.inner.Split(n), queue: r.queue}
}

// Deliver delivers runs without gates at once, and the others when they have passed. It does not wait for that.
func (r *gatedReservation) Deliver(leases []job.Leased) {
	limits := r.a.settingsOf(r.queue)
	gated := 0
	for i := range leases {
		if limits.MaxConcurrency > 0 || r.gatesOf(&leases[i]) != 0 {
			gated++
		}
	}
	if gated == 0 {
		r.inner.Deliver(leases)
		return
	}
	inner := r.inner
	items := make([]*gatedRun, 0, gated)
	plain := make([]job.Leased, 0, len(leases)-gated)
	for i := range leases {
		gates := r.gatesOf(&leases[i])
		if limits.MaxConcurrency > 0 || gates != 0 {
			items = append(items, newGatedRun(leases[i], gates))
			continue
		}
		plain = append(plain, leases[i])
	}
	if len(plain) > 0 || r.Count() > gated { // slots without a lease wait for no gate
		inner = r.inner.Split(gated)
		r.inner.Deliver(plain)
	}
	r.a.startGroups(inner, items, r.queue, limits)
}

// gatesOf returns the gates of a leased run. Its token has the time at which it was leased.
func (r *gatedReservation) gatesOf(l *job.Leased) job.Gates {
	s := &l.Known.State
	gates := job.GatesOf(l.Known.Definition, s, l.Record, r.queue, unixtime.Milli(s.Token/1000))
	if r.a.refusesUnsealed() { // payloads that are not sealed have to be refused
		gates |= job.GateSeal
	}
	return gates
}

// startGroups starts a group for each instant at which some of the runs are due: gates decide by the state at
// the time when a run is due, and no group waits for another.
func (a *Admission) startGroups(reserved slots.Reservation, items []*gatedRun,
	queue job.QueueKey, limits job.QueueSettings) {
	a.mu.Lock()
	closed := a.mu.closed
	var groups []*gateGroup
	for n := 0; !closed && len(items) > 0; n = 0 {
		for n < len(items) && items[n].StartAt.Equal(items[0].StartAt) {
			n++
		}
		g := &gateGroup{queue: queue, limits: limits, items: items[:n:n], reservation: reserved}
		items = items[n:]
		if len(items) > 0 {
			g.reservation = reserved.Split(n)
		}
		groups = append(groups, g)
	}
	a.groupsInFlight.Add(len(groups))
	a.mu.Unlock()
	if closed {
		reserved.Deliver(nil)
		a.o.Slots.ReturnLeases(leasesOf(items))
	}
	for _, g := range groups {
		go func() {
			defer a.groupsInFlight.Done()
			if wait := time.Until(g.items[0].StartAt); wait > 0 {
				<-time.After(wait)
			}
			a.passGates(g)
		}()
	}
}

// passGates takes a group through the gates and delivers the runs that have passed.
func (a *Admission) passGates(g *gateGroup) {
	g.since = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), a.o.gateBudget(g.maxUnits()))
	defer cancel()
	for _, gate := range []func(context.Context, *gateGroup){
		a.readClocks, a.readParents, a.openPayloads, a.decideArrivals, a.applyPace, a.readTargets, a.takeUnits,
		a.askTargets, a.storeStarts,
	} {
		if len(g.items) > 0 {
			gate(ctx, g)
		}
	}
	a.settlePromise(g.queue, g.limits, len(g.items))
	a.storeHeld(g.items)
	g.reservation.Deliver(leasesOf(g.items))
	a.metrics.admitted.Add(float64(len(g.items)))
	for range g.items {
		a.metrics.latency.Observe(time.Since(g.since).Seconds())
	}
	if g.circuits != nil {
		<-g.circuits.done // a cancelled call costs its connection
	}
	if len(g.gateErrors) > 0 {
		rest := time.NewTimer(a.o.retryPause())
		defer rest.Stop()
		<-rest.C
		a.o.Slots.ReturnLeases(leasesOf(g.gateErrors))
	}
}
