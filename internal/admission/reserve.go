package admission

import (
	"context"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// reservation has its leases pass the gates.
type reservation struct {
	a     *Admission
	inner Reservation
	queue job.QueueKey
}

// Reserve takes slots as [Slots] does. What is delivered to the reservation passes
// the gates first.
func (a *Admission) Reserve(namespace, queue string, n int) Reservation {
	return a.gated(a.o.Slots.Reserve(namespace, queue, n), namespace, queue)
}

// Prefetch takes places to wait for a slot; else it is like Reserve.
func (a *Admission) Prefetch(namespace, queue string, n int) Reservation {
	return a.gated(a.o.Slots.Prefetch(namespace, queue, n), namespace, queue)
}

// MayAdvance tells whether slots reserved now would be for leases that are not due yet.
func (a *Admission) MayAdvance(namespace, queue string) bool {
	return a.o.Slots.MayAdvance(namespace, queue)
}

func (a *Admission) gated(inner Reservation, namespace, queue string) Reservation {
	if inner == nil {
		return nil
	}
	return &reservation{a: a, inner: inner, queue: job.QueueKey{Namespace: namespace, Queue: queue}}
}

func (r *reservation) Count() int { return r.inner.Count() }

func (r *reservation) Advance() bool { return r.inner.Advance() }

func (r *reservation) Split(n int) Reservation {
	return &reservation{a: r.a, inner: r.inner.Split(n), queue: r.queue}
}

// Deliver hands on at once what has no gate to pass, and the rest when it has
// passed. It does not wait for that.
func (r *reservation) Deliver(leases []job.Leased) {
	limits := r.a.queue(r.queue)
	gated := 0
	for i := range leases {
		if limits.MaxConcurrency > 0 || r.a.gatesOf(&leases[i]) != 0 {
			gated++
		}
	}
	if gated == 0 {
		r.inner.Deliver(leases)
		return
	}
	inner := r.inner
	items := make([]*item, 0, gated)
	plain := make([]job.Leased, 0, len(leases)-gated)
	for i := range leases {
		gates := r.a.gatesOf(&leases[i])
		if limits.MaxConcurrency > 0 || gates != 0 {
			items = append(items, newItem(leases[i], gates))
			continue
		}
		plain = append(plain, leases[i])
	}
	if len(plain) > 0 || r.Count() > gated { // slots without a lease wait for no gate
		inner = r.inner.Split(gated)
		r.inner.Deliver(plain)
	}
	r.a.admit(inner, items, r.queue, limits)
}

// gatesOf tells what a leased run has to pass. Its token tells when it was leased.
func (a *Admission) gatesOf(l *job.Leased) job.Gates {
	child := ""
	if at := strings.IndexByte(l.Record, '#'); at >= 0 {
		child = l.Record[at+1:]
	}
	gates := job.GatesOf(l.Known.Definition, &l.Known.State, child, int64(l.Known.State.Token/1000))
	if a.strict() { // what is not sealed has to be refused
		gates |= job.GateSeal
	}
	return gates
}

// admit starts a batch on its way, as one group for each instant at which runs of it are
// due: gates decide by what is so when a run is due, and none waits for another.
func (a *Admission) admit(slots Reservation, items []*item, queue job.QueueKey, limits job.QueueSettings) {
	a.mu.Lock()
	closed := a.mu.closed
	var groups []*group
	for n := 0; !closed && len(items) > 0; n = 0 {
		for n < len(items) && items[n].StartAt.Equal(items[0].StartAt) {
			n++
		}
		g := &group{queue: queue, limits: limits, items: items[:n:n], slots: slots}
		if items = items[n:]; len(items) > 0 {
			g.slots = slots.Split(n)
		}
		groups = append(groups, g)
	}
	a.groups.Add(len(groups))
	a.mu.Unlock()
	if closed {
		slots.Deliver(nil)
		a.o.Slots.Return(leasesOf(items))
	}
	for _, g := range groups {
		go func() {
			defer a.groups.Done()
			if wait := time.Until(g.items[0].StartAt); wait > 0 {
				<-time.After(wait)
			}
			a.pass(g)
		}()
	}
}

// pass takes a group through the gates and delivers what has passed.
func (a *Admission) pass(g *group) {
	g.since = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), a.o.budget(g.mostUnits()))
	defer cancel()
	for _, gate := range []func(context.Context, *group){
		a.clocks, a.readParents, a.open, a.arrivals, a.pace, a.readTargets, a.units, a.targets, a.begin,
	} {
		if len(g.items) > 0 {
			gate(ctx, g)
		}
	}
	a.arrived(g.queue, g.limits, len(g.items))
	a.keep(g.items)
	g.slots.Deliver(leasesOf(g.items))
	a.metrics.admitted.Add(float64(len(g.items)))
	for range g.items {
		a.metrics.latency.Observe(time.Since(g.since).Seconds())
	}
	if g.circuits != nil {
		<-g.circuits.done // a call that is given up costs its connection
	}
	if len(g.broken) > 0 {
		rest := time.NewTimer(a.o.errorRest())
		defer rest.Stop()
		<-rest.C
		a.o.Slots.Return(leasesOf(g.broken))
	}
}
