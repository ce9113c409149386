package dispatch

import (
	"cmp"
	"slices"

	"github.com/fermata-io/fermata/internal/job"
)

// Demand returns the free slots for each queue that a worker serves, and the places where
// attempts may wait for one, sorted.
// A worker of several queues counts for each of them. A node that drains serves none.
func (d *Dispatcher) Demand() []job.QueueDemand {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.draining {
		return nil
	}
	// Whoever hears this does not hear of reserved slots, and waits for those of them
	// that come back unused.
	d.mu.short = d.mu.turns
	demand := make([]job.QueueDemand, 0, len(d.mu.crews))
	for _, c := range d.allCrews() {
		demand = append(demand, job.QueueDemand{Namespace: c.queue.namespace, Queue: c.queue.queue, Free: c.free, Ahead: c.wait})
	}
	return demand
}

// Loads returns what this node's workers do for each queue that they serve or
// have an attempt of, sorted. Running counts attempts; like free slots, a worker
// of several queues counts for each of them.
func (d *Dispatcher) Loads() []job.QueueLoad {
	d.mu.Lock()
	defer d.mu.Unlock()
	running := make(map[queueKey]int, len(d.mu.crews))
	for _, a := range d.mu.attempts {
		if a.rec != nil && a.busy && a.live() {
			running[queueKey{a.rec.State.Lane.Namespace, a.rec.State.Lane.Queue}]++
		}
	}
	loads := make([]job.QueueLoad, 0, len(d.mu.crews))
	for _, c := range d.allCrews() {
		k := c.queue
		loads = append(loads, job.QueueLoad{
			Namespace: k.namespace, Queue: k.queue,
			Running: running[k], Free: d.freeSlots(c), Workers: len(c.seats),
		})
		delete(running, k)
	}
	for k, n := range running {
		loads = append(loads, job.QueueLoad{Namespace: k.namespace, Queue: k.queue, Running: n})
	}
	slices.SortFunc(loads, func(a, b job.QueueLoad) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Queue, b.Queue))
	})
	return loads
}

// freeSlots are those of a crew that was looked at. A node that drains has none.
func (d *Dispatcher) freeSlots(c *crew) int {
	if d.mu.draining {
		return 0
	}
	return c.free
}

// Workers describes the connected workers, sorted by namespace, id and identity.
func (d *Dispatcher) Workers() []job.WorkerInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	workers := make([]job.WorkerInfo, 0, len(d.mu.workers))
	for _, s := range d.mu.workers {
		if s.closed {
			continue
		}
		workers = append(workers, job.WorkerInfo{
			ID: s.hello.WorkerID, Node: d.o.Node, Namespace: s.hello.Namespace, Queues: s.hello.Queues,
			Slots: s.hello.Slots, Running: min(s.busy, s.hello.Slots), Draining: s.draining, ConnectedAt: s.since,
			Version: s.hello.Version, Labels: s.hello.Labels, Identity: s.hello.Identity,
		})
	}
	slices.SortFunc(workers, func(a, b job.WorkerInfo) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Identity, b.Identity))
	})
	return workers
}

// Abandon ends the trust in an attempt that is at this node, as if its lease were
// lost: the worker is told to stop. A result that comes all the same counts if the
// lease still stands; without one the lease ends by itself. It returns false if
// the attempt is not at this node.
func (d *Dispatcher) Abandon(record string, token uint64) bool {
	var fx effects
	d.mu.Lock()
	a := d.mu.attempts[job.LeaseID(record, token)]
	known := a != nil && !a.over && a.pending == nil
	if known {
		d.metrics.lost.WithLabelValues("abandoned").Inc()
		d.lose(a, false, &fx)
		d.schedule(a)
	}
	d.mu.Unlock()
	d.finish(&fx)
	return known
}

// CancelAttempt asks the worker of an attempt to end it. It returns false if the
// attempt is not at this node.
func (d *Dispatcher) CancelAttempt(record string, token uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.mu.attempts[job.LeaseID(record, token)]
	if a == nil || !a.live() || a.over || a.pending != nil {
		return false
	}
	if !a.cancelled {
		a.session.cancel(a, job.CancelRequested)
	}
	return true
}
