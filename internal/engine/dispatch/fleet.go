package dispatch

import (
	"slices"
	"strings"
)

// WorkerGroup are the workers of this node that serve the same queues: a slot of one is as good as
// one of another. There is one value for each set of queues, for as long as it has workers.
type WorkerGroup struct {
	Namespace string
	Queues    []string // sorted
	key       string
	sessions  int // guarded by the dispatcher's mutex
}

// Serves reports whether the fleet serves a queue.
func (f *WorkerGroup) Serves(namespace, queue string) bool {
	_, serves := slices.BinarySearch(f.Queues, queue)
	return serves && f.Namespace == namespace
}

// ServedQueues returns the queues that the fleet serves, sorted.
func (f *WorkerGroup) ServedQueues() (namespace string, queues []string) {
	return f.Namespace, f.Queues
}

// FreedSlots are slots that came free.
type FreedSlots struct {
	Group *WorkerGroup
	N     int
}

// joinFleet adds the session to its fleet. The caller holds the mutex.
func (d *Dispatcher) joinFleet(s *Session) {
	queues := slices.Sorted(slices.Values(s.hello.Queues))
	key := s.hello.Namespace + "/" + strings.Join(queues, "/") // no name has a slash
	f := d.mu.fleets[key]
	if f == nil {
		f = &WorkerGroup{Namespace: s.hello.Namespace, Queues: queues, key: key}
		d.mu.fleets[key] = f
	}
	f.sessions++
	s.fleet = f
}

// leaveFleet removes a session from its fleet. The caller holds the mutex.
func (d *Dispatcher) leaveFleet(s *Session) {
	s.fleet.sessions--
	if s.fleet.sessions == 0 {
		delete(d.mu.fleets, s.fleet.key)
	}
}

// addFreed notes that slots of a session came free.
func (fx *pendingEffects) addFreed(s *Session, n int) {
	i := slices.IndexFunc(fx.slots, func(x FreedSlots) bool { return x.Group == s.fleet })
	if i < 0 {
		i, fx.slots = len(fx.slots), append(fx.slots, FreedSlots{Group: s.fleet})
	}
	fx.slots[i].N += n
}
