package scheduler

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// Permitted leases under a holder's permit for this node's workers and answers
// it. It blocks for one call to the store, which must begin while the permit is
// valid; a call whose answer is late has leased all the same, so it is not cut off
// there. A call that failed is not answered: the permit running out is the rest that
// the shard needs.
func (s *Scheduler) Permitted(ctx context.Context, node string, p job.Permit) {
	if p.ValidFor <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	slots := s.o.Slots.Reserve(p.Lane.Namespace, p.Lane.Queue, min(p.N, job.MaxLeasesPerCall))
	if slots == nil || slots.Count() == 0 {
		s.o.Peers.SendPermitResult(node, job.PermitResult{ID: p.ID})
		return
	}
	n, ok := s.permitLimit(ctx, node, p, slots.Count())
	if !ok {
		slots.Deliver(nil)
		return
	}
	started := time.Now()
	r := s.o.Store.Lease(ctx, []job.LeaseRequest{{
		Shard: p.Shard, LockValue: p.LockValue, TTL: s.o.LeaseTTL, Batch: s.batchID(),
		Quotas: []job.LaneQuota{{Lane: p.Lane, N: n}},
	}})[0]
	slots.Deliver(r.Leased)
	s.unused(p.Lane, n-len(r.Leased))
	s.metrics.leased(len(r.Leased), r.Err)
	s.metrics.permitsUsed.Inc()
	if r.Err != nil {
		s.o.Logger.Warn("leasing under a permit failed",
			"shard", p.Shard, "holder", node, "took", time.Since(started), "error", r.Err)
		return
	}
	result := job.PermitResult{ID: p.ID, Leased: len(r.Leased)}
	for _, h := range r.Heads {
		if h.Lane == p.Lane {
			result.DueMS = h.DueMS
		}
	}
	s.o.Peers.SendPermitResult(node, result)
}
