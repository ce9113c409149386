package scheduler

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// permitLife is how long an answer to a permit is awaited: its validity, and as much again for the round trip.
// Leases of a permit whose answer comes later, or never, are found in the lane's next answer.
func permitLife(validity time.Duration) time.Duration { return 2 * validity }

// permitValidity is how long the next permit is valid. Limits of its queue are asked for
// within that, and the lease within as much again: two answers each.
func (s *Scheduler) permitValidity() time.Duration {
	return max(job.PermitValidity, min(2*s.o.Latency(), job.MaxPermitValidity))
}

// openPermit is a permit without an answer.
type openPermit struct {
	job.Permit
	node    string
	lane    *lane
	expires time.Time
	toWait  bool // the peer is to queue the leases for a slot
	// demandRestated: the peer has stated its demand since.
	demandRestated bool
}

// permitTable has the open permits. They expire in the order in which they were made: one with a shorter life
// than those before it, because Redis has become faster, expires with them.
type permitTable struct {
	last     int64
	byID     map[int64]*openPermit
	byExpiry []*openPermit // answered ones stay here until they are first
}

func (p *permitTable) addPermit(out *openPermit) {
	p.byID[out.ID] = out
	p.byExpiry = append(p.byExpiry, out)
}

// removePermit removes an open permit and returns it; nil if there is none.
func (p *permitTable) removePermit(id int64, node string) *openPermit {
	out, known := p.byID[id]
	if !known || out.node != node {
		return nil
	}
	delete(p.byID, id)
	return out
}

// firstToExpire returns the permit that expires first; nil if there is none.
func (p *permitTable) firstToExpire() *openPermit {
	for len(p.byExpiry) > 0 {
		out := p.byExpiry[0]
		if p.byID[out.ID] == out {
			return out
		}
		p.byExpiry[0] = nil
		p.byExpiry = p.byExpiry[1:]
	}
	return nil
}

// nextExpiry is when the next permit runs out; zero is never.
func (p *permitTable) nextExpiry() time.Time {
	if out := p.firstToExpire(); out != nil {
		return out.expires
	}
	return time.Time{}
}

// addPermit adds a permit to the round: it asks the peer with the most free slots, or with the most places to wait for
// one, to lease from a lane. It returns the number of leases that the permit allows; 0 if no peer has any. The caller
// holds mu.
func (s *Scheduler) addPermit(l *lane, lockValue string, r *pickRound, kind permitKind) int {
	q := queueKeyOf(l.key)
	node, most := s.peerWithMostPlaces(q, kind)
	if most == 0 {
		return 0
	}
	s.permits.last++
	validity := s.permitValidity()
	p := s.peers[node]
	l.mayAdvance = !kind.toWait && p.mayAdvance(q) && !s.hasLimits(l.key)
	out := &openPermit{
		Permit: job.Permit{
			ID: s.permits.last, Shard: l.shard.id, Lane: l.key, N: min(l.wantedLeases, most),
			LockValue: lockValue, ValidFor: validity,
		},
		node: node, lane: l, expires: r.now.Add(permitLife(validity)), toWait: kind.toWait,
	}
	if l.mayAdvance {
		out.Advance = s.outlook.horizon()
	}
	p.freePlaces(kind.toWait)[q] -= out.N
	s.permits.addPermit(out)
	l.permit = out
	if r.permits == nil {
		r.permits = make(map[string][]*openPermit)
	}
	r.permits[node] = append(r.permits[node], out)
	return out.N
}

// sendPermits sends the permits of a round: those for a peer in as few messages as the bounds of one pipeline allow. It
// returns false if some could not be sent; their lanes are to be picked again. The caller holds mu.
func (s *Scheduler) sendPermits(r *pickRound) (allSent bool) {
	allSent = true
	for node, list := range r.permits {
		for len(list) > 0 {
			n := messageLength(list)
			permits := make([]job.Permit, n)
			for i, out := range list[:n] {
				permits[i] = out.Permit
			}
			sent := s.o.Peers.SendPermits(node, permits)
			s.metrics.permitsSent.Add(float64(sent))
			list = list[sent:]
			if sent < n {
				allSent = false
				s.withdrawPermits(node, list)
				break
			}
		}
	}
	return allSent
}

// messageLength returns how many of the permits are sent and leased together. There must be at least one permit.
func messageLength(list []*openPermit) int {
	leases := 0
	for i, out := range list {
		leases += out.N
		if i == job.MaxPermitsPerMessage || i > 0 && leases > maxRoundSlots {
			return i
		}
	}
	return len(list)
}

// withdrawPermits ends permits that could not be sent, as if they had not been made. The peer is not asked again before
// its next demand, or the next rescan.
func (s *Scheduler) withdrawPermits(node string, list []*openPermit) {
	if p, known := s.peers[node]; known {
		p.unreachable = true
	}
	for _, out := range list {
		s.permits.removePermit(out.ID, node)
		s.backlog.chargeFlow(out.Lane, -out.N)
		s.correctPlaces(out, 0)
		out.lane.permit = nil
		s.settlePermit(out, out.lane.due)
	}
}

// dropExpired ends the permits that were not answered. Their lanes stay as due as they were.
func (s *Scheduler) dropExpired(now time.Time) {
	for out := s.permits.firstToExpire(); out != nil && !now.Before(out.expires); out = s.permits.firstToExpire() {
		s.permits.removePermit(out.ID, out.node)
		s.metrics.permitsExpired.Inc()
		s.backlog.chargeFlow(out.Lane, -out.N)
		s.correctPlaces(out, 0)
		if p, known := s.peers[out.node]; known && !out.demandRestated {
			p.unanswered = true
		}
		out.lane.permit = nil
		s.settlePermit(out, out.lane.due)
	}
}

// HandlePermitResults applies a peer's answers to permits. An answer without leases and without a due time means that
// the peer had no slots.
func (s *Scheduler) HandlePermitResults(node string, results []job.PermitResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, r := range results {
		s.handlePermitResult(node, r, now)
	}
	s.wake.Signal()
}

func (s *Scheduler) handlePermitResult(node string, r job.PermitResult, now time.Time) {
	out := s.permits.removePermit(r.ID, node)
	if out == nil {
		return
	}
	used := min(max(r.Leased, 0), out.N)
	if used == 0 {
		s.metrics.permitsUnused.Inc()
	}
	if p, known := s.peers[node]; known {
		p.unanswered = false
	}
	s.permitRate.Count(used, now)
	s.backlog.chargeFlow(out.Lane, used-out.N)
	l := out.lane
	l.permit = nil
	due := l.due
	if used == 0 {
		l.mayAdvance = false // it came too soon: the next time it waits until something is due
	}
	if used == 0 && r.DueMS <= 0 {
		s.clearPlaces(out)
	} else {
		s.correctPlaces(out, used)
		if r.DueMS > 0 {
			due = r.DueMS
		}
		l.adaptWanted(out.N, used, due, l.shard.clock.estimateUS(now).Milli())
	}
	s.settlePermit(out, due)
	s.backOffLane(l, used == 0 && r.DueMS > 0)
}

// backOffLane delays a lane in which a peer found nothing due although this node takes it for due. Then the
// estimate of the shard's clock is ahead, and an answer to a permit does not correct it as one of the shard
// does: without a delay permits would be exchanged without pause. The delay doubles from 1 to 16 ms.
func (s *Scheduler) backOffLane(l *lane, foundNothing bool) {
	now := l.shard.clock.estimateUS(time.Now()).Milli()
	if !foundNothing || l.pos == 0 || l.flow != nil || l.lookAt > now {
		l.unusedPermits = 0
		return
	}
	l.lookAt = now + 1<<l.unusedPermits
	l.unusedPermits = min(l.unusedPermits+1, 4)
	l.shard.laterLanes.Fix(l)
}

// settlePermit settles the lane of a permit, if its shard is still held.
func (s *Scheduler) settlePermit(out *openPermit, due unixtime.Milli) {
	if s.shards[out.Shard] == out.lane.shard {
		s.applyDue(out.lane, due)
	}
}
