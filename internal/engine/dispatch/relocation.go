package dispatch

import "github.com/fermata-io/fermata/internal/core/job"

// maxRelocated bounds the workers that are remembered while a relocation lasts. Further ones are not asked.
const maxRelocated = 10_000

// relocation asks workers to move to other nodes. The zero value asks nobody.
type relocation struct {
	addresses []string // of those nodes
	// asked are the workers that were asked, so that one that comes back stays: it reaches no other node.
	asked map[workerKey]struct{}
}

// RelocateWorkers asks the workers of this node, and those that connect later, to move to one of these nodes, each
// worker once. Their sessions go on until they have moved. Without addresses no further worker is asked.
func (d *Dispatcher) RelocateWorkers(addresses []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(addresses) == 0 {
		d.mu.relocation = relocation{}
		return
	}
	r := &d.mu.relocation
	r.addresses = addresses
	if r.asked == nil {
		r.asked = make(map[workerKey]struct{})
	}
	for _, s := range d.mu.workers {
		d.relocateWorker(s)
	}
}

// relocateWorker asks the worker of a session to move, if there is a relocation and it was not asked before.
func (d *Dispatcher) relocateWorker(s *Session) {
	r := &d.mu.relocation
	if len(r.addresses) == 0 || !s.acceptsLeases() || len(r.asked) >= maxRelocated {
		return
	}
	if _, was := r.asked[s.key]; was {
		return
	}
	r.asked[s.key] = struct{}{}
	s.sendMessage(job.Relocation{Addresses: r.addresses})
}
