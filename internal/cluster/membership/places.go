package membership

import (
	"container/list"
	"net/netip"
	"time"
)

// places are what streams that others have dialled take, by address. When all are taken, the address
// that has most streams of which no key has fitted loses its oldest one, so that those of one
// address, or of some, keep no node out that comes from elsewhere. Within one address, and
// between equals, a stream that has had its turn makes room.
type places struct {
	streams  int
	unproved int // bytes
	of       map[netip.Addr]*usage
}

// usage is what streams from one address take.
type usage struct {
	streams, unproved int
	waiting           list.List // of *stream whose key has not fitted, the oldest in front
}

// enter finds a place for a stream, unless there are too many. It may be that of another one, which
// is to be closed.
func (p *places) enter(s *stream, now time.Time) (evicted *stream, ok bool) {
	u := p.of[s.from]
	if u == nil {
		u = &usage{}
	}
	switch {
	case u.streams >= maxStreamsOfAddress:
		evicted = oldest(u)
	case p.streams >= maxStreams:
		evicted = p.oldestOfMost(func(u *usage) int { return u.waiting.Len() })
	}
	full := u.streams >= maxStreamsOfAddress || p.streams >= maxStreams
	if full && (evicted == nil || !p.yields(evicted, u.waiting.Len()+1, now)) {
		return nil, false
	}
	if evicted != nil {
		p.leave(evicted)
	}
	p.of[s.from] = u
	u.streams++
	p.streams++
	s.since, s.place = now, u.waiting.PushBack(s)
	s.entered = true
	return evicted, true
}

// yields reports whether a stream makes room for one of an address that has so many with it.
func (p *places) yields(s *stream, others int, now time.Time) bool {
	return p.of[s.from].waiting.Len() > others || now.Sub(s.since) >= proofTurn
}

// oldest is the stream that has waited longest for its proof; nil: none does.
func oldest(u *usage) *stream {
	if first := u.waiting.Front(); first != nil {
		return first.Value.(*stream)
	}
	return nil
}

// oldestOfMost is the oldest stream of the address that has most, and of equals the oldest of all.
func (p *places) oldestOfMost(amount func(*usage) int) (found *stream) {
	most := 0
	for _, u := range p.of {
		s := oldest(u)
		if s == nil || amount(u) < most {
			continue
		}
		if amount(u) > most || s.since.Before(found.since) {
			found, most = s, amount(u)
		}
	}
	return found
}

// keep counts so many more bytes of a stream whose key has not fitted, unless they are too many.
// They may be those of another one, which is to be closed.
func (p *places) keep(s *stream, n int) (evicted *stream, ok bool) {
	if !s.entered {
		return nil, false // it has lost its place
	}
	u := p.of[s.from]
	if u.unproved+n > maxUnprovedOfAddress {
		return nil, false
	}
	if p.unproved+n > maxUnproved {
		evicted = p.oldestOfMost(func(u *usage) int { return u.unproved })
		if evicted == nil || evicted.from == s.from || p.of[evicted.from].unproved <= u.unproved+n {
			return nil, false
		}
		p.leave(evicted)
		if p.unproved+n > maxUnproved {
			return evicted, false
		}
	}
	p.unproved += n
	u.unproved += n
	s.kept += n
	return evicted, true
}

// prove gives back what was counted for the proof.
func (p *places) prove(s *stream) {
	if !s.entered {
		return
	}
	u := p.of[s.from]
	p.unproved -= s.kept
	u.unproved -= s.kept
	s.kept = 0
	if s.place != nil {
		u.waiting.Remove(s.place)
		s.place = nil
	}
}

// leave gives a place back. It may be repeated.
func (p *places) leave(s *stream) {
	if !s.entered {
		return
	}
	p.prove(s)
	s.entered = false
	p.streams--
	u := p.of[s.from]
	if u.streams--; u.streams == 0 {
		delete(p.of, s.from)
	}
}
