package scheduler

import (
	"cmp"

	"github.com/fermata-io/fermata/internal/job"
)

// peer is what is known of another node's workers.
type peer struct {
	// free slots, and how much may wait for one, are what the peer stated, less what it
	// was permitted since or had not answered by then. Too much costs a permit that
	// comes back unused; too little would leave work undone, so doubts are settled
	// upwards.
	free, ahead map[queue]int
	// silent: it left its last permit unanswered. Others are asked first.
	silent bool
	// away: no permit could be sent to it. It is not asked before it speaks, or the
	// next rescan.
	away bool
}

// places are what a permit takes: free slots, or else places to wait for one.
func (p *peer) places(ahead bool) map[queue]int {
	if ahead {
		return p.ahead
	}
	return p.free
}

// PeerDemand replaces what a peer said of what its workers could take. An empty list
// forgets the peer.
func (s *Scheduler) PeerDemand(node string, demands []job.QueueDemand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &peer{free: make(map[queue]int, len(demands)), ahead: make(map[queue]int)}
	for _, d := range demands {
		if d.Free > 0 {
			p.free[queue{d.Namespace, d.Queue}] = d.Free
		}
		if d.Ahead > 0 {
			p.ahead[queue{d.Namespace, d.Queue}] = d.Ahead
		}
	}
	if len(p.free)+len(p.ahead) == 0 {
		delete(s.peers, node)
	} else {
		s.peers[node] = p
	}
	// Whether the peer knew of these permits when it spoke cannot be told. They
	// count against it until they are answered, and then not at all.
	for _, out := range s.permits.open {
		if out.node == node {
			out.restated = true
			p.places(out.ahead)[queueOf(out.Lane)] -= out.N
		}
	}
	waited := false
	for _, places := range []map[queue]int{p.free, p.ahead} {
		for q, n := range places {
			if n > 0 {
				waited = s.backlog.water(q) || waited
			}
		}
	}
	if waited {
		s.wake.Signal()
	}
}

func queueOf(l job.Lane) queue { return queue{l.Namespace, l.Queue} }

// neediest is the peer with the most places for a queue, and their number; that is 0 when
// there is none.
func (s *Scheduler) neediest(q queue, ahead bool) (node string, most int) {
	var best *peer
	for name, p := range s.peers {
		n := p.places(ahead)[q]
		if n <= 0 || p.away {
			continue
		}
		if best == nil || cmp.Or(compareBool(p.silent, best.silent), most-n, cmp.Compare(name, node)) < 0 {
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

// refund corrects a peer's places when a permit has come to its end.
func (s *Scheduler) refund(out *outstanding, used int) {
	p, known := s.peers[out.node]
	if !known {
		return
	}
	unused := out.N
	if !out.restated {
		unused -= used
	}
	q, places := queueOf(out.Lane), p.places(out.ahead)
	if places[q] += unused; places[q] > 0 {
		s.backlog.water(q)
	}
}

// exhausted notes that a peer has no places for a queue, unless it has said more
// since.
func (s *Scheduler) exhausted(out *outstanding) {
	if p, known := s.peers[out.node]; known && !out.restated {
		delete(p.places(out.ahead), queueOf(out.Lane))
	} else {
		s.refund(out, 0)
	}
}
