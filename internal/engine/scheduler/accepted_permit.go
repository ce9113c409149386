package scheduler

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
)

// AcceptedPermits are a holder's permits for which slots of this node's workers are reserved. They are leased in one
// pipeline. Lease has to be called, once.
type AcceptedPermits struct {
	s       *Scheduler
	node    string
	permits []acceptedPermit
}

// acceptedPermit is one of them.
type acceptedPermit struct {
	job.Permit
	until time.Time
	slots slots.Reservation
	// limited: starts of its queue were taken.
	limited bool
}

// Accept reserves slots for permits that a holder sent in one message. Permits get slots in their order, and in the
// order of the calls; the holder sends them in its own order of preference. Accept returns what leases under them: one
// for all queues without limits, and one for each permit of a queue with limits, which may have to wait. It leaves out
// permits that are not to be used: one that has expired, one for a shard with an unanswered call under an earlier
// permit, and one without a slot, which is reported to the holder.
func (s *Scheduler) Accept(node string, permits []job.Permit) []*AcceptedPermits {
	var accepted []*AcceptedPermits
	var unlimited *AcceptedPermits
	var refused []job.LanePermitResult
	now := time.Now()
	for _, p := range permits {
		if p.ValidFor <= 0 || s.hasUnansweredCall(p.Shard) {
			continue
		}
		slots := s.reserveForPermit(p)
		if slots == nil {
			refused = append(refused, job.LanePermitResult{PermitResult: job.PermitResult{ID: p.ID}, Lane: p.Lane})
			continue
		}
		one := acceptedPermit{Permit: p, until: now.Add(p.ValidFor), slots: slots}
		if unlimited == nil || s.hasLimits(p.Lane) {
			a := &AcceptedPermits{s: s, node: node}
			accepted = append(accepted, a)
			if s.hasLimits(p.Lane) {
				a.permits = []acceptedPermit{one}
				continue
			}
			unlimited = a
		}
		unlimited.permits = append(unlimited.permits, one)
	}
	if len(refused) > 0 {
		s.o.Peers.SendPermitResults(node, refused)
	}
	return accepted
}

// reserveForPermit reserves free slots, or places to wait for one; nil if there are none.
func (s *Scheduler) reserveForPermit(p job.Permit) slots.Reservation {
	n := min(p.N, job.MaxLeasesPerCall)
	r := s.o.Slots.Reserve(p.Lane.Namespace, p.Lane.Queue, n)
	if r == nil || r.Count() == 0 {
		r = s.o.Slots.Prefetch(p.Lane.Namespace, p.Lane.Queue, n)
	}
	if r == nil || r.Count() == 0 {
		return nil
	}
	return r
}

// permittedCall is a leasing call for one shard under permits, with a reservation for each of its quotas.
type permittedCall struct {
	request job.LeaseRequest
	permits []acceptedPermit
	slots   []slots.Reservation
	got     []int // leases that were delivered
}

// Lease leases under the permits and answers them. It blocks for one pipeline, which must begin while the
// permits are valid, and for no longer than the holder waits for an answer. A failed call is not answered: the
// shard rests until the permits expire. If the call may have leased, it is repeated in the background, and until
// that ends no other permit for the shard is used, so that a server that is down blocks no permits for the
// shards of others. Lease returns the number of leases in each lane.
func (a *AcceptedPermits) Lease(ctx context.Context) map[job.Lane]int {
	s := a.s
	leased := make(map[job.Lane]int, 1)
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), permitLife(a.longestValidity()))
	defer cancel()
	results, calls := a.prepare(within)
	if len(calls) > 0 {
		replies := a.lease(within, calls)
		for i, c := range calls {
			results = a.finish(ctx, c, replies[i], leased, results)
		}
	}
	if len(results) > 0 {
		s.o.Peers.SendPermitResults(a.node, results)
	}
	return leased
}

func (a *AcceptedPermits) longestValidity() time.Duration {
	longest := job.PermitValidity
	for _, p := range a.permits {
		longest = max(longest, p.ValidFor)
	}
	return longest
}

// prepare takes starts of queues with limits, and makes the calls: one for each shard, if its bounds allow. It returns
// the results of permits under which nothing may start now.
func (a *AcceptedPermits) prepare(ctx context.Context) (results []job.LanePermitResult, calls []*permittedCall) {
	s := a.s
	for _, p := range a.permits {
		if !time.Now().Before(p.until) || s.hasUnansweredCall(p.Shard) {
			p.slots.Deliver(nil)
			continue
		}
		n := p.slots.Count()
		p.limited = s.hasLimits(p.Lane)
		if p.limited {
			granted, result := s.permitLimit(ctx, p)
			if result != nil {
				results = append(results, *result)
			}
			n = granted
		}
		if n == 0 {
			p.slots.Deliver(nil)
			continue
		}
		calls = s.addPermitted(calls, p, n)
	}
	return results, calls
}

// addPermitted adds a permit with n leases to a call for its shard, or to a new one.
func (s *Scheduler) addPermitted(calls []*permittedCall, p acceptedPermit, n int) []*permittedCall {
	advance := time.Duration(0)
	if p.slots.Advance() && !p.limited {
		advance = p.Advance
	}
	for _, c := range calls {
		if c.takes(p, n, advance) {
			c.add(p, n)
			return calls
		}
	}
	c := &permittedCall{request: job.LeaseRequest{
		Shard: p.Shard, LockValue: p.LockValue, TTL: s.o.LeaseTTL, Batch: s.newBatchID(), Advance: advance,
	}}
	c.add(p, n)
	return append(calls, c)
}

// takes reports whether a permit with n leases fits into the call.
func (c *permittedCall) takes(p acceptedPermit, n int, advance time.Duration) bool {
	r := c.request
	if r.Shard != p.Shard || r.LockValue != p.LockValue || r.Advance != advance || len(r.Quotas) == job.MaxLanesPerCall {
		return false
	}
	for _, q := range r.Quotas {
		if q.Lane == p.Lane {
			return false
		}
		n += q.N
	}
	return n <= job.MaxLeasesPerCall
}

func (c *permittedCall) add(p acceptedPermit, n int) {
	c.request.Quotas = append(c.request.Quotas, job.LaneQuota{Lane: p.Lane, N: n})
	c.permits = append(c.permits, p)
	c.slots = append(c.slots, p.slots)
}

// lease makes the calls in one pipeline and delivers the leases.
func (a *AcceptedPermits) lease(ctx context.Context, calls []*permittedCall) []job.LeaseReply {
	s := a.s
	requests := make([]job.LeaseRequest, len(calls))
	for i, c := range calls {
		requests[i] = c.request
	}
	sent := time.Now()
	replies := s.o.Store.Lease(ctx, requests)
	arrived := time.Now()
	s.o.Slots.HoldAssignments()
	for i, c := range calls {
		setStartTimes(replies[i], c.request.Advance, clockReading{}, sent, arrived)
		c.got = s.deliverLeases(c.request.Quotas, c.slots, replies[i].Leased)
		s.metrics.countLeases(len(replies[i].Leased), replies[i].Err)
		s.metrics.permitsUsed.Add(float64(len(c.permits)))
		if replies[i].Err != nil && !outcomeUnknown(replies[i]) {
			s.o.Logger.Warn("failed to lease under a permit",
				"shard", c.request.Shard, "holder", a.node, "took", arrived.Sub(sent), "error", replies[i].Err)
		}
	}
	s.o.Slots.ReleaseAssignments()
	return replies
}

// finish adds the results of a call, and its leases by lane. If the call may have leased, it is repeated.
func (a *AcceptedPermits) finish(ctx context.Context, c *permittedCall, r job.LeaseReply, leased map[job.Lane]int,
	results []job.LanePermitResult) []job.LanePermitResult {
	s := a.s
	if outcomeUnknown(r) {
		s.repeatUnlessStopping(ctx, c.request, r)
		return results
	}
	for i, p := range c.permits {
		n := c.got[i]
		leased[p.Lane] += n
		if p.limited { // and not only by now
			s.returnStarts(p.Lane, c.request.Quotas[i].N-n)
		}
		if r.Err != nil {
			continue
		}
		result := job.LanePermitResult{PermitResult: job.PermitResult{ID: p.ID, Leased: n}, Lane: p.Lane}
		for _, h := range r.Heads {
			if h.Lane == p.Lane {
				result.DueMS = h.DueMS
			}
		}
		results = append(results, result)
	}
	return results
}

// repeatUnlessStopping repeats a call that may have leased.
func (s *Scheduler) repeatUnlessStopping(ctx context.Context, request job.LeaseRequest, r job.LeaseReply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.unansweredCalls[request.Shard]++
		s.repeaters.Go(func() { s.repeatPermittedCall(ctx, request, r) })
	}
}

// hasUnansweredCall reports whether a call under an earlier permit for the shard is being repeated.
func (s *Scheduler) hasUnansweredCall(shard int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unansweredCalls[shard] > 0
}
