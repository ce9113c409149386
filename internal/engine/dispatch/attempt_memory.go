package dispatch

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// A node keeps the record of an attempt, with its payload, until the attempt has ended, and until then twice where the
// worker does not read it. So the attempts of an identity have a bound of memory: sessions of an identity that is over
// it get no leases until some of its attempts have ended.
const (
	// The attempts of a node take a third of the memory that the process is to keep to.
	maxAttemptMemory = 1 << 30
	minAttemptMemory = 64 << 20
	// littleAttemptShare is the part of the memory that an identity may have in any case.
	littleAttemptShare = 128
	// An attempt takes attemptBaseBytes in addition to its payload and labels, a label bytesPerLabel in addition to its
	// text.
	attemptBaseBytes = 1 << 10
	bytesPerLabel    = 64
	// attemptCheckInterval is how often the sessions of an identity that is over its bound ask again.
	attemptCheckInterval = 100 * time.Millisecond
)

// attemptMemory is the memory that attempts take. Of three quarters an identity may take more while it has
// less than what is left; the last quarter is for those that have little. That is the rule of package memorybudget, without
// its lock and its wakeups for each attempt: it is guarded by the dispatcher's mutex.
type attemptMemory struct {
	most, used int
	identities map[string]*identityMemory
}

// identityMemory is what the attempts of one identity take.
type identityMemory struct {
	bytes          int
	full           bool // its sessions get no leases
	foreignResults int  // pending results of leases that this node does not know
	sessions       map[*Session]struct{}
}

// maxForeignResults bounds the foreign results of an identity. Each takes some KiB, and any number of them may arrive
// while the ledger is slow. Further results are ignored; their workers repeat them.
const maxForeignResults = 1 << 14

// addForeignResult makes an attempt for a result of a lease that this node does not know; nil if the lease cannot be
// of this worker. ok is false if the identity has too many.
func (d *Dispatcher) addForeignResult(s *Session, id string) (a *attempt, ok bool) {
	if s.memory.foreignResults >= maxForeignResults {
		return nil, false
	}
	a = d.newForeignAttempt(s, id)
	if a != nil {
		a.foreignOf = s.memory
		s.memory.foreignResults++
	}
	return a, true
}

// forgetForeignResult is for an attempt that ends.
func (a *attempt) forgetForeignResult() {
	if a.foreignOf != nil {
		a.foreignOf.foreignResults--
		a.foreignOf = nil
	}
}

func newAttemptMemory(memory int64) attemptMemory {
	return attemptMemory{
		most: int(min(maxAttemptMemory, max(minAttemptMemory, memory/3))), identities: map[string]*identityMemory{},
	}
}

// exceeds reports whether an identity has more than it may have.
func (m *attemptMemory) exceeds(i *identityMemory) bool {
	return i.bytes > m.most/littleAttemptShare && i.bytes > m.most/4*3-m.used
}

// memoryOf estimates the memory of an attempt with this record, in bytes.
func memoryOf(r *job.Record) int {
	n := attemptBaseBytes
	if r == nil || r.Definition == nil {
		return n
	}
	n += len(r.Definition.Payload)
	if own := r.State.OwnPayload; own != nil {
		n += own.Size // until the worker has read it
	}
	for k, v := range r.Definition.Labels {
		n += len(k) + len(v) + bytesPerLabel
	}
	return n
}

// joinIdentity adds a session to its identity.
func (d *Dispatcher) joinIdentity(s *Session) {
	i := d.mu.memory.identities[s.key.identity]
	if i == nil {
		i = &identityMemory{sessions: map[*Session]struct{}{}}
		d.mu.memory.identities[s.key.identity] = i
	}
	i.sessions[s], s.memory = struct{}{}, i
}

// leaveIdentity is for a session that has closed. Its attempts may go on.
func (d *Dispatcher) leaveIdentity(s *Session) {
	delete(s.memory.sessions, s)
	d.forgetIdentity(s)
}

func (d *Dispatcher) forgetIdentity(s *Session) {
	if i := s.memory; i.bytes == 0 && len(i.sessions) == 0 && d.mu.memory.identities[s.key.identity] == i {
		delete(d.mu.memory.identities, s.key.identity)
	}
}

// countMemory updates the counted memory of an attempt of the session; over means that the attempt leaves the session.
func (s *Session) countMemory(a *attempt, over bool) {
	n := 0
	if !over {
		n = memoryOf(a.known)
	}
	if n == a.memoryBytes {
		return
	}
	d, i := s.d, s.memory
	i.bytes += n - a.memoryBytes
	d.mu.memory.used += n - a.memoryBytes
	a.memoryBytes = n
	switch {
	case i.bytes == 0:
		d.forgetIdentity(s)
	case !i.full && d.mu.memory.exceeds(i):
		i.full = true
		i.markOutdated()
		d.metrics.fullMemory.Inc()
		time.AfterFunc(attemptCheckInterval, func() { d.endFull(i) })
	}
}

func (i *identityMemory) markOutdated() {
	for s := range i.sessions {
		s.markOutdated()
	}
}

// endFull gives the sessions of an identity their slots back once the identity is within its bound.
func (d *Dispatcher) endFull(i *identityMemory) {
	var fx pendingEffects
	d.mu.Lock()
	if d.mu.memory.exceeds(i) {
		d.mu.Unlock()
		time.AfterFunc(attemptCheckInterval, func() { d.endFull(i) })
		return
	}
	i.full = false
	i.markOutdated()
	for s := range i.sessions {
		if n := s.freeSlots(); n > 0 {
			fx.addFreed(s, n)
		}
	}
	d.mu.Unlock()
	d.runEffects(&fx)
}
