package scheduler

import (
	"context"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
)

// A queue with limits is asked for twice. Its starts are taken before the lease, so that a backlog stays in
// Redis and in order. What only Redis can decide is decided after the lease, on delivery.

// minLimitPause is the minimum time until a queue without room is asked for again, unless LimitsChanged is
// called.
const minLimitPause = 50 * time.Millisecond

// The wait for grants is bounded. Lanes without limits share the call, so the bound is low. Where Redis answers
// late it has to allow for three answers: otherwise nothing of a queue with limits would start. It leaves half
// of leaseTimeout to the leasing call.
const (
	limitTimeoutLeast = 250 * time.Millisecond
	limitTimeoutMost  = leaseTimeout / 2
)

// limitTimeout is how long grants are waited for now.
func (s *Scheduler) limitTimeout() time.Duration {
	return max(limitTimeoutLeast, min(3*s.o.Latency(), limitTimeoutMost))
}

// splitLatency is the latency from which on shards whose due lanes have no limits do not wait for the grants to
// others. Below it one pipeline for all costs less.
const splitLatency = 20 * time.Millisecond

// splitLimited separates the calls that need limits from the others, where Redis answers late.
func (s *Scheduler) splitLimited(calls []*call) (free, limited []*call) {
	if s.o.Limits == nil || s.o.Latency() < splitLatency {
		return calls, nil
	}
	for _, c := range calls {
		if slices.ContainsFunc(c.quotas, func(q job.LaneQuota) bool { return s.hasLimits(q.Lane) }) {
			limited = append(limited, c)
		} else {
			free = append(free, c)
		}
	}
	return free, limited
}

// applyLimits cuts the quotas of limited queues to what may start now, and returns the calls that remain. The
// lanes of a dropped call stay as due as they were; their queue rests.
func (s *Scheduler) applyLimits(ctx context.Context, calls []*call) []*call {
	asks, places := s.sumAsks(calls)
	if len(asks) == 0 {
		return calls
	}
	asking, cancel := context.WithTimeout(ctx, s.limitTimeout())
	s.mu.Lock()
	rooms := s.limitChanges
	s.mu.Unlock()
	grants := s.o.Limits.TakeStarts(asking, asks)
	cancel()
	left := make([]int, len(grants))
	for i, g := range grants {
		left[i] = g.N
	}
	var released []slots.Reservation
	s.mu.Lock()
	now := time.Now()
	kept := calls[:0:0]
	for _, c := range calls {
		released = append(released, s.cutQuotas(c, places, left)...)
		if len(c.lanes) > 0 {
			kept = append(kept, c)
			continue
		}
		delete(s.callsInFlight, c.shard.id)
	}
	for i, g := range grants {
		if g.N < asks[i].N {
			q, rest := asks[i].Queue, max(g.Again, minLimitPause)
			if rooms != s.limitChanges { // the answer may be older than the change
				rest = minLimitPause
			}
			s.backlog.restUntil(job.Lane{Namespace: q.Namespace, Queue: q.Queue}, now.Add(rest))
		}
	}
	s.wake.Signal()
	s.mu.Unlock()
	for _, r := range released {
		r.Deliver(nil)
	}
	return kept
}

// sumAsks adds up what the calls need of limited queues; places has the index of each queue's ask.
func (s *Scheduler) sumAsks(calls []*call) (asks []job.QueueRequest, places map[queueKey]int) {
	for _, c := range calls {
		for i, q := range c.quotas {
			if !s.hasLimits(q.Lane) {
				continue
			}
			if c.limited == nil {
				c.limited = make([]bool, len(c.quotas))
			}
			c.limited[i] = true
			at, known := places[queueKeyOf(q.Lane)]
			if !known {
				if places == nil {
					places = make(map[queueKey]int)
				}
				at = len(asks)
				places[queueKeyOf(q.Lane)] = at
				asks = append(asks, job.QueueRequest{Queue: job.QueueKey{Namespace: q.Lane.Namespace, Queue: q.Lane.Queue}})
			}
			asks[at].N += q.N
		}
	}
	return asks, places
}

// cutQuotas gives a call's lanes what is left for their queues. Lanes that get nothing leave the call; their
// slots are returned. The caller holds mu.
func (s *Scheduler) cutQuotas(c *call, places map[queueKey]int, left []int) (released []slots.Reservation) {
	if c.limited == nil {
		return nil
	}
	kept := 0
	for i, q := range c.quotas {
		n := q.N
		if c.limited[i] {
			at := places[queueKeyOf(q.Lane)]
			n = min(n, left[at])
			left[at] -= n
			s.backlog.chargeFlow(q.Lane, n-q.N)
		}
		l := c.lanes[i]
		if n == 0 {
			released = append(released, c.slots[i])
			l.callInFlight = false
			if s.shards[c.shard.id] == c.shard {
				s.applyDue(l, l.due)
			}
			continue
		}
		q.N = n
		c.quotas[kept], c.lanes[kept], c.slots[kept], c.limited[kept] = q, l, c.slots[i], c.limited[i]
		kept++
	}
	c.quotas, c.lanes, c.slots, c.limited = c.quotas[:kept], c.lanes[:kept], c.slots[:kept], c.limited[:kept]
	return released
}

// returnUnusedStarts returns the starts that a call took of limits and did not use.
func (s *Scheduler) returnUnusedStarts(c *call, got []int) {
	for i, limited := range c.limited {
		if limited {
			s.returnStarts(c.quotas[i].Lane, c.quotas[i].N-got[i])
		}
	}
}

// hasLimits reports whether the queue of a lane is paused or has limits.
func (s *Scheduler) hasLimits(l job.Lane) bool {
	return s.o.Limits != nil && s.o.Limits.Limited(l.Namespace, l.Queue)
}

// returnStarts returns starts of a queue, if it has limits.
func (s *Scheduler) returnStarts(l job.Lane, n int) {
	if n > 0 && s.hasLimits(l) {
		s.o.Limits.ReturnStarts([]job.QueueRequest{{Queue: job.QueueKey{Namespace: l.Namespace, Queue: l.Queue}, N: n}})
	}
}

// permitLimit takes starts for a permit of a queue with limits, and returns how many there are. If nothing may start
// now, the holder is sent the time at which to ask again as the lane's first due time; without a result the permit
// expires.
func (s *Scheduler) permitLimit(ctx context.Context, p acceptedPermit) (granted int, result *job.LanePermitResult) {
	valid, cancel := context.WithDeadline(ctx, p.until)
	defer cancel()
	grant := s.o.Limits.TakeStarts(valid, []job.QueueRequest{{
		Queue: job.QueueKey{Namespace: p.Lane.Namespace, Queue: p.Lane.Queue}, N: p.slots.Count(),
	}})[0]
	if grant.N == 0 {
		now, err := s.o.Store.Now(ctx, p.Shard)
		if err != nil {
			return 0, nil
		}
		due := now.Add(max(grant.Again, minLimitPause))
		return 0, &job.LanePermitResult{PermitResult: job.PermitResult{ID: p.ID, DueMS: due}, Lane: p.Lane}
	}
	if valid.Err() != nil {
		s.returnStarts(p.Lane, grant.N)
		return 0, nil
	}
	return grant.N, nil
}
