package scheduler

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// permit asks the peer with the most free slots to lease from a due lane. The
// caller holds mu.
func (s *Scheduler) permit(c candidate, lockValue string, now time.Time) int {
	q := queue{c.lane.Namespace, c.lane.Queue}
	node, free := s.neediest(q)
	if free <= 0 {
		return 0
	}
	s.permitID++
	p := job.Permit{
		ID: s.permitID, Shard: c.shard.id, Lane: c.lane, N: min(c.state.want, free),
		LockValue: lockValue, ValidFor: job.PermitValidity,
	}
	if !s.o.Peers.SendPermit(node, p) {
		delete(s.peers, node)
		return s.permit(c, lockValue, now)
	}
	s.peers[node][q] -= p.N
	out := &outstanding{Permit: p, node: node, expires: now.Add(2 * job.PermitValidity)}
	c.state.permit = out
	s.dropExpired(now)
	s.permits[p.ID] = out
	s.metrics.permitsSent.Inc()
	return p.N
}

// neediest is the peer with the most free slots for a queue.
func (s *Scheduler) neediest(q queue) (node string, free int) {
	for n, queues := range s.peers {
		if f := queues[q]; f > free || (f == free && f > 0 && n < node) {
			node, free = n, f
		}
	}
	return node, free
}

// dropExpired forgets permits that nobody answered.
func (s *Scheduler) dropExpired(now time.Time) {
	for id, p := range s.permits {
		if now.After(p.expires) {
			delete(s.permits, id)
		}
	}
}

// PermitResult says what a peer did with a permit.
func (s *Scheduler) PermitResult(node string, r job.PermitResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, known := s.permits[r.ID]
	if !known || out.node != node {
		return
	}
	delete(s.permits, r.ID)
	if r.Leased == 0 {
		s.metrics.permitsUnused.Inc()
	}
	sh, held := s.shards[out.Shard]
	if !held {
		return
	}
	l := sh.lane(out.Lane)
	if l.permit != out {
		return
	}
	l.permit = nil
	if r.DueMS > 0 {
		l.settleHead(r.DueMS)
	}
	l.learn(out.N, r.Leased)
	if free := s.peers[node]; free != nil && r.Leased < out.N && r.DueMS > 0 {
		free[queue{out.Lane.Namespace, out.Lane.Queue}] += out.N - r.Leased
	}
	sh.recount()
	s.wake.Signal()
}

// Permitted leases under a holder's permit for this node's workers and answers
// it. It blocks for one call to the store.
func (s *Scheduler) Permitted(ctx context.Context, node string, p job.Permit) {
	deadline := time.Now().Add(p.ValidFor)
	result := job.PermitResult{ID: p.ID}
	defer func() { s.o.Peers.SendPermitResult(node, result) }()
	slots := s.o.Slots.Reserve(p.Lane.Namespace, p.Lane.Queue, min(p.N, job.MaxLeasesPerCall))
	if slots == nil || slots.Count() == 0 {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	replies := s.o.Store.Lease(ctx, []job.LeaseRequest{{
		Shard: p.Shard, LockValue: p.LockValue, TTL: s.o.LeaseTTL, Batch: s.batchID(),
		Quotas: []job.LaneQuota{{Lane: p.Lane, N: slots.Count()}},
	}})
	r := replies[0]
	slots.Deliver(r.Leased)
	s.metrics.leased(len(r.Leased), r.Err)
	s.metrics.permitsUsed.Inc()
	if r.Err != nil {
		s.o.Logger.Warn("leasing under a permit failed", "shard", p.Shard, "holder", node, "error", r.Err)
		return
	}
	result.Leased = len(r.Leased)
	for _, h := range r.Heads {
		if h.Lane == p.Lane {
			result.DueMS = h.DueMS
		}
	}
}
