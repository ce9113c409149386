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

// Serves reports whether the group serves a queue.
func (f *WorkerGroup) Serves(namespace, queue string) bool {
	_, serves := slices.BinarySearch(f.Queues, queue)
	return serves && f.Namespace == namespace
}

// ServedQueues returns the queues that the group serves, sorted.
func (f *WorkerGroup) ServedQueues() (namespace string, queues []string) {
	return f.Namespace, f.Queues
}

// FreedSlots are slots that came free.
type FreedSlots struct {
	Group *WorkerGroup
	N     int
}

// joinGroup adds the session to its group. The caller holds the mutex.
func (d *Dispatcher) joinGroup(s *Session) {
	queues := slices.Sorted(slices.Values(s.hello.Queues))
	key := s.hello.Namespace + "/" + strings.Join(queues, "/") // no name has a slash
	f := d.mu.workerGroups[key]
	if f == nil {
		f = &WorkerGroup{Namespace: s.hello.Namespace, Queues: queues, key: key}
		d.mu.workerGroups[key] = f
	}
	f.sessions++
	s.group = f
}

// leaveGroup removes a session from its group. The caller holds the mutex.
func (d *Dispatcher) leaveGroup(s *Session) {
	s.group.sessions--
	if s.group.sessions == 0 {
		delete(d.mu.workerGroups, s.group.key)
	}
}

// addFreed notes that slots of a session came free.
func (fx *pendingEffects) addFreed(s *Session, n int) {
	i := slices.IndexFunc(fx.slots, func(x FreedSlots) bool { return x.Group == s.group })
	if i < 0 {
		i, fx.slots = len(fx.slots), append(fx.slots, FreedSlots{Group: s.group})
	}
	fx.slots[i].N += n
}
