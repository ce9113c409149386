package dispatch

import (
	"cmp"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Demand returns the free slots for each queue that a worker serves, and the places where attempts may wait for
// one, sorted. A worker of several queues counts for each of them. A draining node serves none.
func (d *Dispatcher) Demand() []job.QueueDemand {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.draining {
		return nil
	}
	// The result leaves out reserved slots, so the caller is notified of those that come back unused.
	d.mu.lastShortGrant = d.mu.grants
	demand := make([]job.QueueDemand, 0, len(d.mu.queues))
	for _, c := range d.sessionsByQueue() {
		demand = append(demand, job.QueueDemand{Namespace: c.queue.namespace, Queue: c.queue.queue, Free: c.freeSlots,
			Ahead: c.waitPlaces, InAdvance: len(c.bySlots) > 0 && c.bySlots.Top().s.hasRoomAhead()})
	}
	return demand
}

// Queues returns the queues that this node's workers serve. A draining node serves none.
func (d *Dispatcher) Queues() []job.QueueKey {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.draining {
		return nil
	}
	queues := make([]job.QueueKey, 0, len(d.mu.queues))
	for k := range d.mu.queues {
		queues = append(queues, job.QueueKey{Namespace: k.namespace, Queue: k.queue})
	}
	return queues
}

// QueueLoads returns the load of each queue that this node's workers serve or have an attempt of, sorted. Running
// counts attempts; as with free slots, a worker of several queues counts for each of them.
func (d *Dispatcher) QueueLoads() []job.QueueLoad {
	d.mu.Lock()
	defer d.mu.Unlock()
	running := make(map[queueKey]int, len(d.mu.queues))
	for _, a := range d.mu.attempts {
		if a.known != nil && a.takesSlot && a.streamOpen() {
			running[queueKey{a.known.State.Lane.Namespace, a.known.State.Lane.Queue}]++
		}
	}
	loads := make([]job.QueueLoad, 0, len(d.mu.queues))
	for _, c := range d.sessionsByQueue() {
		k := c.queue
		loads = append(loads, job.QueueLoad{
			Namespace: k.namespace, Queue: k.queue,
			Running: running[k], Free: d.freeSlots(c), Workers: len(c.entries),
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

// freeSlots returns the free slots of a queue whose sessions are up to date. A draining node has none.
func (d *Dispatcher) freeSlots(c *queueSessions) int {
	if d.mu.draining {
		return 0
	}
	return c.freeSlots
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
			Slots: s.hello.Slots, Running: min(s.busySlots, s.hello.Slots), Draining: s.draining,
			ConnectedAt: s.connectedAt,
			Version:     s.hello.Version, Labels: s.hello.Labels, Identity: s.hello.Identity,
		})
	}
	slices.SortFunc(workers, func(a, b job.WorkerInfo) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Identity, b.Identity))
	})
	return workers
}

// AbandonAttempt ends the trust in an attempt that is at this node, as if its lease were lost: the worker is asked to
// stop. A later result counts if the lease is still valid; without one the lease expires. It returns false if
// the attempt is not at this node.
func (d *Dispatcher) AbandonAttempt(record job.RecordID, token uint64) bool {
	var fx pendingEffects
	d.mu.Lock()
	a := d.mu.attempts[job.LeaseID(record, token)]
	known := a != nil && !a.over && a.pendingEvent == nil
	if known {
		d.metrics.lost.WithLabelValues("abandoned").Inc()
		d.loseLease(a, false, &fx)
		d.scheduleAttempt(a)
	}
	d.mu.Unlock()
	d.runEffects(&fx)
	return known
}

// WorkerOf returns the id of the worker that runs an attempt, or "" if no worker that is connected to this node does.
func (d *Dispatcher) WorkerOf(record job.RecordID, token uint64) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.mu.attempts[job.LeaseID(record, token)]
	if a == nil || !a.streamOpen() || a.over || a.adopting {
		return ""
	}
	return a.session.hello.WorkerID
}

// CancelAttempt asks the worker of an attempt to end it. It returns false if the
// attempt is not at this node.
func (d *Dispatcher) CancelAttempt(record job.RecordID, token uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.mu.attempts[job.LeaseID(record, token)]
	if a == nil || !a.streamOpen() || a.over || a.pendingEvent != nil {
		return false
	}
	if !a.cancelled {
		a.session.cancelAttempt(a, job.CancelRequested)
	}
	return true
}
