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
	identities map[string]*identityPayloads
}

// identityPayloads are the payloads of the attempts of one identity.
type identityPayloads struct {
	bytes    int
	full     bool // its sessions get no leases
	sessions map[*Session]struct{}
}

func newPayloadMemory(memory int64) payloadMemory {
	return payloadMemory{
		most: int(min(maxPayloadMemory, max(minPayloadMemory, memory/3))), identities: map[string]*identityPayloads{},
	}
}

// exceeds reports whether an identity has more than it may have.
func (m *payloadMemory) exceeds(i *identityPayloads) bool {
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

// joinPayloads adds a session to its identity.
func (d *Dispatcher) joinPayloads(s *Session) {
	i := d.mu.payloads.identities[s.key.identity]
	if i == nil {
		i = &identityPayloads{sessions: map[*Session]struct{}{}}
		d.mu.payloads.identities[s.key.identity] = i
	}
	i.sessions[s], s.payloads = struct{}{}, i
}

// leavePayloads is for a session that has closed. Its attempts may go on.
func (d *Dispatcher) leavePayloads(s *Session) {
	delete(s.payloads.sessions, s)
	d.forgetIdentity(s)
}

func (d *Dispatcher) forgetIdentity(s *Session) {
	if i := s.payloads; i.bytes == 0 && len(i.sessions) == 0 && d.mu.payloads.identities[s.key.identity] == i {
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
	d, i := s.d, s.payloads
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

func (i *identityPayloads) markOutdated() {
	for s := range i.sessions {
		s.markOutdated()
	}
}

// endFull gives the sessions of an identity their slots back once it has no more than it may have.
func (d *Dispatcher) endFull(i *identityPayloads) {
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
