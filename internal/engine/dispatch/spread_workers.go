package dispatch

import (
	"maps"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// askAgainAfter is how long a worker is left alone that was asked to move to a node without workers. One that cannot
// reach such nodes is asked rarely, and one that comes back because its node has stopped can move again.
const askAgainAfter = time.Hour

// SpreadWorker asks one worker of this node to move to one of the nodes at these addresses, which have no workers. Its
// session goes on until it has moved. The worker is one of the group that has the most workers here, two at least, so
// that its queues are still served here; of these it is the one with the least load. Each worker is asked
// once in askAgainAfter. It returns false if no worker was asked.
func (d *Dispatcher) SpreadWorker(addresses []string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(d.mu.spread, func(_ workerKey, at time.Time) bool { return now.Sub(at) >= askAgainAfter })
	if len(addresses) == 0 || d.mu.draining || len(d.mu.relocation.addresses) > 0 || len(d.mu.spread) >= maxRelocated {
		return false
	}
	s := d.workerToSpread()
	if s == nil {
		return false
	}
	d.mu.spread[s.key] = now
	d.o.Logger.Info("asking worker to move to a node without workers", "worker", s.hello.WorkerID, "namespace",
		s.hello.Namespace, "addresses", addresses)
	return s.sendMessage(job.Relocation{Addresses: addresses})
}

// workerToSpread returns the session of the worker to ask; nil: there is none.
func (d *Dispatcher) workerToSpread() *Session {
	sessions := make(map[*WorkerGroup]int)
	for _, s := range d.mu.workers {
		if s.acceptsLeases() {
			sessions[s.group]++
		}
	}
	var best *Session
	for _, s := range d.mu.workers {
		_, was := d.mu.spread[s.key]
		if was || !s.acceptsLeases() || sessions[s.group] < 2 {
			continue
		}
		if best == nil || sessions[s.group] > sessions[best.group] ||
			sessions[s.group] == sessions[best.group] && s.loadRatio() < best.loadRatio() {
			best = s
		}
	}
	return best
}
