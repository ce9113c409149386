package scheduler

import (
	"cmp"

	"github.com/fermata-io/fermata/internal/job"
)

// peer is what is known of another node's workers.
type peer struct {
	// free is what the peer stated, less what it was permitted since or had not
	// answered by then. Too much costs a permit that comes back unused; too little
	// would leave work undone, so doubts are settled upwards.
	free map[queue]int
	// silent: it left its last permit unanswered. Others are asked first.
	silent bool
	// away: no permit could be sent to it. It is not asked before it speaks, or the
	// next rescan.
	away bool
}

// PeerDemand replaces what a peer said of its workers' free slots. An empty list
// forgets the peer.
func (s *Scheduler) PeerDemand(node string, demands []job.QueueDemand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &peer{free: make(map[queue]int, len(demands))}
	for _, d := range demands {
		if d.Free > 0 {
			p.free[queue{d.Namespace, d.Queue}] = d.Free
		}
	}
	if len(p.free) == 0 {
		delete(s.peers, node)
	} else {
		s.peers[node] = p
	}
	// Whether the peer knew of these permits when it spoke cannot be told. They
	// count against it until they are answered, and then not at all.
	for _, out := range s.permits.open {
		if out.node == node {
			out.restated = true
			p.free[queueOf(out.Lane)] -= out.N
		}
	}
	waited := false
	for q, free := range p.free {
		if free > 0 {
			waited = s.backlog.water(q) || waited
		}
	}
	if waited {
		s.wake.Signal()
	}
}

func queueOf(l job.Lane) queue { return queue{l.Namespace, l.Queue} }

// neediest is the peer with the most free slots for a queue; free is 0 when there
// is none.
func (s *Scheduler) neediest(q queue) (node string, free int) {
	var best *peer
	for n, p := range s.peers {
		f := p.free[q]
		if f <= 0 || p.away {
			continue
		}
		if best == nil || cmp.Or(compareBool(p.silent, best.silent), free-f, cmp.Compare(n, node)) < 0 {
			node, free, best = n, f, p
		}
	}
	return node, free
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

// refund corrects a peer's free slots when a permit has come to its end.
func (s *Scheduler) refund(out *outstanding, used int) {
	p, known := s.peers[out.node]
	if !known {
		return
	}
	unused := out.N
	if !out.restated {
		unused -= used
	}
	q := queueOf(out.Lane)
	if p.free[q] += unused; p.free[q] > 0 {
		s.backlog.water(q)
	}
}

// exhausted notes that a peer has no slots for a queue, unless it has said more
// since.
func (s *Scheduler) exhausted(out *outstanding) {
	if p, known := s.peers[out.node]; known && !out.restated {
		delete(p.free, queueOf(out.Lane))
	} else {
		s.refund(out, 0)
	}
}
