package scheduler

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// Accepted is a holder's permit for which slots of this node's workers are reserved. Either
// Lease or Release has to be called, once.
type Accepted struct {
	s      *Scheduler
	node   string
	permit job.Permit
	until  time.Time
	slots  Reservation
}

// Accept reserves slots for a holder's permit. Permits have slots in the order in which this
// is called: the holder sends first what is to come first. It is nil if the permit is not to be
// used: it has run out, or a call under an earlier permit for the shard has no answer yet,
// or there is no slot, of which the holder is told.
func (s *Scheduler) Accept(node string, p job.Permit) *Accepted {
	if p.ValidFor <= 0 || s.inDoubt(p.Shard) {
		return nil
	}
	n := min(p.N, job.MaxLeasesPerCall)
	slots := s.o.Slots.Reserve(p.Lane.Namespace, p.Lane.Queue, n)
	if slots == nil || slots.Count() == 0 {
		slots = s.o.Slots.Prefetch(p.Lane.Namespace, p.Lane.Queue, n)
	}
	if slots == nil || slots.Count() == 0 {
		s.o.Peers.SendPermitResult(node, p.Lane, job.PermitResult{ID: p.ID})
		return nil
	}
	return &Accepted{s: s, node: node, permit: p, until: time.Now().Add(p.ValidFor), slots: slots}
}

// Release gives the slots back, and lets the permit run out.
func (a *Accepted) Release() { a.slots.Deliver(nil) }

// Lease leases under the permit and answers it. It blocks for one call to the store, which must
// begin while the permit is valid, and for no longer than the holder waits for an answer. A
// call that failed is not answered: the permit running out is the rest that the shard needs. If
// it may have leased it is repeated in the background, and until that ends no other permit for
// the shard is used: so a server that is away keeps nobody from permits for the shards of
// others. It returns how much was leased.
func (a *Accepted) Lease(ctx context.Context) int {
	s := a.s
	if !time.Now().Before(a.until) || s.inDoubt(a.permit.Shard) {
		a.Release()
		return 0
	}
	request, r := a.lease(ctx)
	if !unknown(r) {
		return len(r.Leased)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.doubtful[a.permit.Shard]++
		s.collectors.Go(func() { s.collectPermitted(ctx, request, r) })
	}
	return 0
}

// inDoubt tells whether a call under an earlier permit for the shard is repeated.
func (s *Scheduler) inDoubt(shard int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doubtful[shard] > 0
}

// lease makes the call and delivers what comes. Without a reason to call the reply is empty.
func (a *Accepted) lease(ctx context.Context) (request job.LeaseRequest, r job.LeaseReply) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), permitLife(max(a.permit.ValidFor, job.PermitValidity)))
	defer cancel()
	s, p, slots, node := a.s, a.permit, a.slots, a.node
	n, ok := s.permitLimit(ctx, node, p, a.until, slots.Count())
	if !ok {
		slots.Deliver(nil)
		return request, r
	}
	started := time.Now()
	request = job.LeaseRequest{
		Shard: p.Shard, LockValue: p.LockValue, TTL: s.o.LeaseTTL, Batch: s.batchID(),
		Quotas: []job.LaneQuota{{Lane: p.Lane, N: n}},
	}
	r = s.o.Store.Lease(ctx, []job.LeaseRequest{request})[0]
	s.deliver(request.Quotas, []Reservation{slots}, r.Leased)
	s.metrics.leased(len(r.Leased), r.Err)
	s.metrics.permitsUsed.Inc()
	if unknown(r) {
		return request, r
	}
	s.unused(p.Lane, n-len(r.Leased))
	if r.Err != nil {
		s.o.Logger.Warn("leasing under a permit failed",
			"shard", p.Shard, "holder", node, "took", time.Since(started), "error", r.Err)
		return request, r
	}
	result := job.PermitResult{ID: p.ID, Leased: len(r.Leased)}
	for _, h := range r.Heads {
		if h.Lane == p.Lane {
			result.DueMS = h.DueMS
		}
	}
	s.o.Peers.SendPermitResult(node, p.Lane, result)
	return request, r
}
