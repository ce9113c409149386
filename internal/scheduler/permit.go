package scheduler

import (
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// permitLife is how long a permit is waited for: its validity, and as much again
// for the way there and back. What was leased under one whose answer comes later,
// or never, is found in the lane's next answer.
func permitLife(validity time.Duration) time.Duration { return 2 * validity }

// permitValidity is how long the next permit is valid. Limits of its queue are asked for
// within that, and the lease within as much again: two answers each.
func (s *Scheduler) permitValidity() time.Duration {
	return max(job.PermitValidity, min(2*s.o.Latency(), job.MostPermitValidity))
}

// outstanding is a permit without answer.
type outstanding struct {
	job.Permit
	node    string
	lane    *lane
	expires time.Time
	ahead   bool // the peer is to have the leases wait for a slot
	// restated: the peer has stated its demand since.
	restated bool
}

// permits are the outstanding ones. They run out in the order in which they were made: one that
// lives for less long than those before it, because Redis has become faster, as they do.
type permits struct {
	last  int64
	open  map[int64]*outstanding
	order []*outstanding // answered ones stay here until they are first
}

func (p *permits) add(out *outstanding) {
	p.open[out.ID] = out
	p.order = append(p.order, out)
}

// take removes an outstanding permit; nil when there is none.
func (p *permits) take(id int64, node string) *outstanding {
	out, known := p.open[id]
	if !known || out.node != node {
		return nil
	}
	delete(p.open, id)
	return out
}

// first is the permit that runs out first; nil when there is none.
func (p *permits) first() *outstanding {
	for len(p.order) > 0 {
		out := p.order[0]
		if p.open[out.ID] == out {
			return out
		}
		p.order[0] = nil
		p.order = p.order[1:]
	}
	return nil
}

// nextExpiry is when the next permit runs out; zero is never.
func (p *permits) nextExpiry() time.Time {
	if out := p.first(); out != nil {
		return out.expires
	}
	return time.Time{}
}

// permit asks the peer with the most free slots, or with the most places ahead of slots,
// to lease from a due lane and returns how many leases that may be; 0 when no peer has
// any. The caller holds mu.
func (s *Scheduler) permit(l *lane, lockValue string, now time.Time, ahead bool) int {
	q := queueOf(l.key)
	for {
		node, most := s.neediest(q, ahead)
		if most == 0 {
			return 0
		}
		s.permits.last++
		validity := s.permitValidity()
		out := &outstanding{
			Permit: job.Permit{
				ID: s.permits.last, Shard: l.shard.id, Lane: l.key, N: min(l.want, most),
				LockValue: lockValue, ValidFor: validity,
			},
			node: node, lane: l, expires: now.Add(permitLife(validity)), ahead: ahead,
		}
		if !s.o.Peers.SendPermit(node, out.Permit) {
			s.peers[node].away = true
			continue
		}
		s.peers[node].places(ahead)[q] -= out.N
		s.permits.add(out)
		l.permit = out
		s.metrics.permitsSent.Inc()
		return out.N
	}
}

// dropExpired ends the permits that nobody answered. Their lanes are as due as
// they were.
func (s *Scheduler) dropExpired(now time.Time) {
	for out := s.permits.first(); out != nil && !now.Before(out.expires); out = s.permits.first() {
		s.permits.take(out.ID, out.node)
		s.metrics.permitsExpired.Inc()
		s.backlog.charge(out.Lane, -out.N)
		s.refund(out, 0)
		if p, known := s.peers[out.node]; known && !out.restated {
			p.silent = true
		}
		out.lane.permit = nil
		s.settlePermit(out, out.lane.due)
	}
}

// PermitResult says what a peer did with a permit. An answer without lease and
// without due time means that the peer had no slots.
func (s *Scheduler) PermitResult(node string, r job.PermitResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.permits.take(r.ID, node)
	if out == nil {
		return
	}
	used := min(max(r.Leased, 0), out.N)
	if used == 0 {
		s.metrics.permitsUnused.Inc()
	}
	if p, known := s.peers[node]; known {
		p.silent = false
	}
	s.backlog.charge(out.Lane, used-out.N)
	l := out.lane
	l.permit = nil
	due := l.due
	if used == 0 && r.DueMS <= 0 {
		s.exhausted(out)
	} else {
		s.refund(out, used)
		if r.DueMS > 0 {
			due = r.DueMS
		}
		l.learn(out.N, used, due, l.shard.clock.show(time.Now())/1000)
	}
	s.settlePermit(out, due)
	s.putOffFurther(l, used == 0 && r.DueMS > 0)
	s.wake.Signal()
}

// putOffFurther has a lane rest of which a peer found nothing due, in vain, and that this
// node takes for due. What it believes of the shard's clock is ahead then, and an answer to
// a permit does not put that right as one of the shard does: without a rest permits would
// go to and fro as fast as they can. It is longer each time, from 1 to 16 ms.
func (s *Scheduler) putOffFurther(l *lane, vain bool) {
	now := l.shard.clock.show(time.Now()) / 1000
	if !vain || l.pos == 0 || l.flow != nil || l.at > now {
		l.vain = 0
		return
	}
	l.at = now + 1<<l.vain
	l.vain = min(l.vain+1, 4)
	l.shard.later.Fix(l)
}

// settlePermit settles the lane of a permit, if its shard is still held.
func (s *Scheduler) settlePermit(out *outstanding, due int64) {
	if s.shards[out.Shard] == out.lane.shard {
		s.settle(out.lane, due)
	}
}
