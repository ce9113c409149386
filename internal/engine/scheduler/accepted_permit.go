package scheduler

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
)

// AcceptedPermit is a holder's permit for which slots of this node's workers are reserved. Either
// Lease or Release has to be called, once.
type AcceptedPermit struct {
	s      *Scheduler
	node   string
	permit job.Permit
	until  time.Time
	slots  slots.Reservation
}

// Accept reserves slots for a holder's permit. Permits get slots in the order of the calls; the holder sends
// them in its own order of preference. Accept returns nil if the permit is not to be used: it has expired, or a
// call under an earlier permit for the shard is unanswered, or there is no slot, which is reported to the
// holder.
func (s *Scheduler) Accept(node string, p job.Permit) *AcceptedPermit {
	if p.ValidFor <= 0 || s.hasUnansweredCall(p.Shard) {
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
	return &AcceptedPermit{s: s, node: node, permit: p, until: time.Now().Add(p.ValidFor), slots: slots}
}

// Release gives the slots back without an answer: the permit expires.
func (a *AcceptedPermit) Release() { a.slots.Deliver(nil) }

// Lease leases under the permit and answers it. It blocks for one call to the store, which must begin while the
// permit is valid, and for no longer than the holder waits for an answer. A failed call is not answered: the
// shard rests until the permit expires. If the call may have leased, it is repeated in the background, and until
// that ends no other permit for the shard is used, so that a server that is down blocks no permits for the
// shards of others. Lease returns the number of leases.
func (a *AcceptedPermit) Lease(ctx context.Context) int {
	s := a.s
	if !time.Now().Before(a.until) || s.hasUnansweredCall(a.permit.Shard) {
		a.Release()
		return 0
	}
	request, r := a.leaseOnce(ctx)
	if !outcomeUnknown(r) {
		return len(r.Leased)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.unansweredCalls[a.permit.Shard]++
		s.repeaters.Go(func() { s.repeatPermittedCall(ctx, request, r) })
	}
	return 0
}

// hasUnansweredCall reports whether a call under an earlier permit for the shard is being repeated.
func (s *Scheduler) hasUnansweredCall(shard int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unansweredCalls[shard] > 0
}

// leaseOnce makes the call and delivers the leases. If no call was needed the reply is empty.
func (a *AcceptedPermit) leaseOnce(ctx context.Context) (request job.LeaseRequest, r job.LeaseReply) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx),
		permitLife(max(a.permit.ValidFor, job.PermitValidity)))
	defer cancel()
	s, p, reserved, node := a.s, a.permit, a.slots, a.node
	n, ok := s.permitLimit(ctx, node, p, a.until, reserved.Count())
	if !ok {
		reserved.Deliver(nil)
		return request, r
	}
	started := time.Now()
	request = job.LeaseRequest{
		Shard: p.Shard, LockValue: p.LockValue, TTL: s.o.LeaseTTL, Batch: s.newBatchID(),
		Quotas: []job.LaneQuota{{Lane: p.Lane, N: n}},
	}
	r = s.o.Store.Lease(ctx, []job.LeaseRequest{request})[0]
	s.deliverLeases(request.Quotas, []slots.Reservation{reserved}, r.Leased)
	s.metrics.countLeases(len(r.Leased), r.Err)
	s.metrics.permitsUsed.Inc()
	if outcomeUnknown(r) {
		return request, r
	}
	s.returnStarts(p.Lane, n-len(r.Leased))
	if r.Err != nil {
		s.o.Logger.Warn("failed to lease under a permit",
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
