package membership

import (
	"container/list"
	"net/netip"
	"time"
)

// streamSlots are the slots of incoming streams, by address. When all are taken, the address with most
// unauthenticated streams loses its oldest one: the streams of a few addresses cannot exclude a node at another
// address. Within one address, and between addresses with as many, only a stream older than minAuthTime is
// evicted.
type streamSlots struct {
	streams         int
	unauthenticated int // bytes of unauthenticated streams
	byAddress       map[netip.Addr]*addressUsage
}

// addressUsage is the usage of the streams from one address.
type addressUsage struct {
	streams, unauthenticated int
	pending                  list.List // of *stream whose message is not complete, the oldest in front
}

// acquire takes a slot for a stream, unless too many are taken. The slot may be that of an evicted stream, which
// the caller closes.
func (p *streamSlots) acquire(s *stream, now time.Time) (evicted *stream, ok bool) {
	u := p.byAddress[s.from]
	if u == nil {
		u = &addressUsage{}
	}
	switch {
	case u.streams >= maxStreamsOfAddress:
		evicted = oldestPending(u)
	case p.streams >= maxStreams:
		evicted = p.oldestOfBusiest(func(u *addressUsage) int { return u.pending.Len() })
	}
	full := u.streams >= maxStreamsOfAddress || p.streams >= maxStreams
	if full && (evicted == nil || !p.canEvict(evicted, u.pending.Len()+1, now)) {
		return nil, false
	}
	if evicted != nil {
		p.release(evicted)
	}
	p.byAddress[s.from] = u
	u.streams++
	p.streams++
	s.acquiredAt, s.pendingElement = now, u.pending.PushBack(s)
	s.hasSlot = true
	return evicted, true
}

// canEvict reports whether a stream may be evicted for one of an address that has others pending streams with
// it.
func (p *streamSlots) canEvict(s *stream, others int, now time.Time) bool {
	return p.byAddress[s.from].pending.Len() > others || now.Sub(s.acquiredAt) >= minAuthTime
}

// oldestPending is the oldest unauthenticated stream; nil: there is none.
func oldestPending(u *addressUsage) *stream {
	if first := u.pending.Front(); first != nil {
		return first.Value.(*stream)
	}
	return nil
}

// oldestOfBusiest is the oldest stream of the address with the greatest amount; of several such, the oldest of
// all.
func (p *streamSlots) oldestOfBusiest(amount func(*addressUsage) int) (found *stream) {
	most := 0
	for _, u := range p.byAddress {
		s := oldestPending(u)
		if s == nil || amount(u) < most {
			continue
		}
		if found == nil || amount(u) > most || s.acquiredAt.Before(found.acquiredAt) {
			found, most = s, amount(u)
		}
	}
	return found
}

// reserveBytes counts n more bytes of an unauthenticated stream, unless they are too many. They may be those of
// an evicted stream, which the caller closes.
func (p *streamSlots) reserveBytes(s *stream, n int) (evicted *stream, ok bool) {
	if !s.hasSlot {
		return nil, false // it was evicted
	}
	u := p.byAddress[s.from]
	if u.unauthenticated+n > maxUnauthenticatedBytesOfAddress {
		return nil, false
	}
	if p.unauthenticated+n > maxUnauthenticatedBytes {
		evicted = p.oldestOfBusiest(func(u *addressUsage) int { return u.unauthenticated })
		if evicted == nil || evicted.from == s.from ||
			p.byAddress[evicted.from].unauthenticated <= u.unauthenticated+n {
			return nil, false
		}
		p.release(evicted)
		if p.unauthenticated+n > maxUnauthenticatedBytes {
			return evicted, false
		}
	}
	p.unauthenticated += n
	u.unauthenticated += n
	s.reservedBytes += n
	return evicted, true
}

// markComplete records that a stream does not wait for its sender any more: it cannot be evicted.
func (p *streamSlots) markComplete(s *stream) {
	if s.pendingElement != nil {
		p.byAddress[s.from].pending.Remove(s.pendingElement)
		s.pendingElement = nil
	}
}

// releaseBytes releases the bytes that were reserved for a stream.
func (p *streamSlots) releaseBytes(s *stream) {
	p.unauthenticated -= s.reservedBytes
	p.byAddress[s.from].unauthenticated -= s.reservedBytes
	s.reservedBytes = 0
}

// release returns a slot. It may be repeated.
func (p *streamSlots) release(s *stream) {
	if !s.hasSlot {
		return
	}
	p.markComplete(s)
	p.releaseBytes(s)
	s.hasSlot = false
	p.streams--
	u := p.byAddress[s.from]
	u.streams--
	if u.streams == 0 {
		delete(p.byAddress, s.from)
	}
}
