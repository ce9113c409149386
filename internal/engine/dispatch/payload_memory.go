package dispatch

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// A node keeps the payload of an attempt until the attempt has ended, and until then twice where the worker does not
// read it. So the payloads of all attempts of an identity have a bound: sessions of an identity that is over it get no
// leases until some of its attempts have ended.
const (
	// smallPayload is the size up to which a payload is not counted: the number of slots bounds those.
	smallPayload = 4 << 10
	// The payloads of a node take a third of the memory that the process is to keep to.
	maxPayloadMemory = 1 << 30
	minPayloadMemory = 64 << 20
	// littlePayloadShare is the part of the memory that an identity may have in any case.
	littlePayloadShare = 128
	// payloadCheckInterval is how often the sessions of an identity that is over its bound ask again.
	payloadCheckInterval = 100 * time.Millisecond
)

// payloadMemory is the memory that payloads of attempts take. Of three quarters an identity may take more while it has
// less than what is left; the last quarter is for those that have little. It is guarded by the dispatcher's mutex.
type payloadMemory struct {
	most, used int
	identities map[string]*identityMemory
}

// identityMemory is what the attempts of one identity take.
type identityMemory struct {
	bytes          int  // of payloads
	full           bool // its sessions get no leases
	foreignResults int  // results of leases that this node did not know, which the ledger has not answered
	sessions       map[*Session]struct{}
}

// maxForeignResults bounds those of an identity. They take some KiB each, and any number of them may come while the
// ledger is slow; the worker repeats what is beyond.
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

func newPayloadMemory(memory int64) payloadMemory {
	return payloadMemory{
		most: int(min(maxPayloadMemory, max(minPayloadMemory, memory/3))), identities: map[string]*identityMemory{},
	}
}

// exceeds reports whether an identity has more than it may have.
func (m *payloadMemory) exceeds(i *identityMemory) bool {
	return i.bytes > m.most/littlePayloadShare && i.bytes > m.most/4*3-m.used
}

// payloadBytes is what is counted for a record.
func payloadBytes(r *job.Record) int {
	if r == nil || r.Definition == nil {
		return 0
	}
	n := len(r.Definition.Payload)
	if own := r.State.OwnPayload; own != nil {
		n += own.Size // until the worker has read it
	}
	if n <= smallPayload {
		return 0
	}
	return n
}

// joinIdentity adds a session to its identity.
func (d *Dispatcher) joinIdentity(s *Session) {
	i := d.mu.payloads.identities[s.key.identity]
	if i == nil {
		i = &identityMemory{sessions: map[*Session]struct{}{}}
		d.mu.payloads.identities[s.key.identity] = i
	}
	i.sessions[s], s.memory = struct{}{}, i
}

// leaveIdentity is for a session that has closed. Its attempts may go on.
func (d *Dispatcher) leaveIdentity(s *Session) {
	delete(s.memory.sessions, s)
	d.forgetIdentity(s)
}

func (d *Dispatcher) forgetIdentity(s *Session) {
	if i := s.memory; i.bytes == 0 && len(i.sessions) == 0 && d.mu.payloads.identities[s.key.identity] == i {
		delete(d.mu.payloads.identities, s.key.identity)
	}
}

// countPayload counts the payload of an attempt of the session, as it is known now; over: the attempt leaves.
func (s *Session) countPayload(a *attempt, over bool) {
	n := 0
	if !over {
		n = payloadBytes(a.known)
	}
	if n == a.payloadBytes {
		return
	}
	d, i := s.d, s.memory
	i.bytes += n - a.payloadBytes
	d.mu.payloads.used += n - a.payloadBytes
	a.payloadBytes = n
	switch {
	case i.bytes == 0:
		d.forgetIdentity(s)
	case !i.full && d.mu.payloads.exceeds(i):
		i.full = true
		i.markOutdated()
		d.metrics.fullPayloads.Inc()
		time.AfterFunc(payloadCheckInterval, func() { d.endFull(i) })
	}
}

func (i *identityMemory) markOutdated() {
	for s := range i.sessions {
		s.markOutdated()
	}
}

// endFull gives the sessions of an identity their slots back once it has no more than it may have.
func (d *Dispatcher) endFull(i *identityMemory) {
	var fx pendingEffects
	d.mu.Lock()
	if d.mu.payloads.exceeds(i) {
		d.mu.Unlock()
		time.AfterFunc(payloadCheckInterval, func() { d.endFull(i) })
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
