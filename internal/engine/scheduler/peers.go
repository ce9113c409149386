package scheduler

import (
	"cmp"

	"github.com/fermata-io/fermata/internal/core/job"
)

// peerSlots is what is known of another node's workers.
type peerSlots struct {
	// free slots, and places to wait for one, as the peer stated them, less the permits that it was sent since
	// or had not answered by then. Too many cost a permit that comes back unused; too few would leave work
	// undone, so estimates err high.
	free, ahead map[queueKey]int
	// inAdvance has the queues in which free slots take runs that are not due yet, with the number of those slots that
	// the peer stated.
	inAdvance map[queueKey]int
	// unanswered: the peer did not answer its last permit. Others are asked first.
	unanswered bool
	// unreachable: the last permit could not be sent to the peer. It is not asked before its next demand, or the
	// next rescan.
	unreachable bool
}

// freePlaces returns what a permit takes: free slots, or places to wait for one.
func (p *peerSlots) freePlaces(ahead bool) map[queueKey]int {
	if ahead {
		return p.ahead
	}
	return p.free
}

// SetPeerDemand replaces a peer's demand. An empty list removes the peer.
func (s *Scheduler) SetPeerDemand(node string, demands []job.QueueDemand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &peerSlots{free: make(map[queueKey]int, len(demands)), ahead: make(map[queueKey]int),
		inAdvance: make(map[queueKey]int)}
	s.peerQueues[node] = demands
	if len(demands) == 0 {
		delete(s.peerQueues, node)
	}
	for _, d := range demands {
		if d.Free > 0 {
			p.free[queueKey{d.Namespace, d.Queue}] = d.Free
			if d.InAdvance {
				p.inAdvance[queueKey{d.Namespace, d.Queue}] = d.Free
			}
		}
		if d.Ahead > 0 {
			p.ahead[queueKey{d.Namespace, d.Queue}] = d.Ahead
		}
	}
	if len(p.free)+len(p.ahead) == 0 {
		delete(s.peers, node)
	} else {
		s.peers[node] = p
	}
	// It is unknown whether the new demand accounts for these permits. They count against it until they are
	// answered, and then not at all.
	for _, out := range s.permits.byID {
		if out.node == node {
			out.demandRestated = true
			p.freePlaces(out.toWait)[queueKeyOf(out.Lane)] -= out.N
		}
	}
	waited := false
	for _, places := range []map[queueKey]int{p.free, p.ahead} {
		for q, n := range places {
			if n > 0 {
				waited = s.backlog.slotsAvailable(q) || waited
			}
		}
	}
	if waited {
		s.wake.Signal()
	}
}

func queueKeyOf(l job.Lane) queueKey { return queueKey{l.Namespace, l.Queue} }

// permitKind is what a permit is for.
type permitKind struct {
	toWait bool // leases that wait for a slot
	soon   bool // leases that are not due yet
}

// placesFor returns the peer's places for a queue and such a permit.
func (p *peerSlots) placesFor(q queueKey, kind permitKind) int {
	if p.unreachable || kind.soon && !p.mayAdvance(q) {
		return 0
	}
	return p.freePlaces(kind.toWait)[q]
}

// mayAdvance reports whether the peer's free slots take runs of a queue that are not due yet.
func (p *peerSlots) mayAdvance(q queueKey) bool {
	return p.inAdvance[q] > 0
}

// peersMayAdvance reports whether a peer has free slots for runs of a queue that are not due yet.
func (s *Scheduler) peersMayAdvance(q queueKey) bool {
	for _, p := range s.peers {
		if p.placesFor(q, permitKind{soon: true}) > 0 {
			return true
		}
	}
	return false
}

// peerWithMostPlaces returns the peer with the most places for a queue, and their number; 0 if there is none.
func (s *Scheduler) peerWithMostPlaces(q queueKey, kind permitKind) (node string, most int) {
	var best *peerSlots
	for name, p := range s.peers {
		n := p.placesFor(q, kind)
		if n <= 0 {
			continue
		}
		if best == nil || cmp.Or(compareBool(p.unanswered, best.unanswered), most-n, cmp.Compare(name, node)) < 0 {
			node, most, best = name, n, p
		}
	}
	return node, most
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// correctPlaces corrects a peer's places when a permit has ended.
func (s *Scheduler) correctPlaces(out *openPermit, used int) {
	p, known := s.peers[out.node]
	if !known {
		return
	}
	unused := out.N
	if !out.demandRestated {
		unused -= used
	}
	q, places := queueKeyOf(out.Lane), p.freePlaces(out.toWait)
	places[q] += unused
	if places[q] > 0 {
		s.backlog.slotsAvailable(q)
	}
}

// clearPlaces notes that a peer has no places for a queue, unless it has stated demand since.
func (s *Scheduler) clearPlaces(out *openPermit) {
	if p, known := s.peers[out.node]; known && !out.demandRestated {
		delete(p.freePlaces(out.toWait), queueKeyOf(out.Lane))
	} else {
		s.correctPlaces(out, 0)
	}
}
