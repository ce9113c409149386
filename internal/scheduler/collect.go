package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// A call that ends with job.ErrUnavailable may have leased: then its leases are
// nobody's, and their jobs would wait until they end. So it is repeated, with its
// batch id, until it is answered: a script that has run it answers the same leases.
// Meanwhile the shard stays in flight and its slots serve others. The repetition
// has a goroutine of its own, at most one a shard, so that a server that is away
// keeps no leaser from the shards of other servers.

// unknown tells whether a call may have had its effect.
func unknown(r job.LeaseReply) bool { return errors.Is(r.Err, job.ErrUnavailable) }

// collect repeats a call until it is answered, its leases would have ended, or the
// scheduler stops.
func (s *Scheduler) collect(ctx context.Context, c *call, batch string, r job.LeaseReply) {
	s.o.Logger.Warn("leasing call has no answer and is repeated", "shard", c.shard.id, "error", r.Err)
	got := make([]int, len(c.lanes))
	for until := time.Now().Add(s.o.LeaseTTL); unknown(r) && time.Now().Before(until) && pause(ctx, errorRest); {
		quotas, slots, any := s.reserveAgain(c)
		if !any {
			continue // nobody could start what it brings
		}
		r = s.o.Store.Lease(ctx, []job.LeaseRequest{{
			Shard: c.shard.id, LockValue: c.lockValue, Quotas: quotas, TTL: s.o.LeaseTTL, Batch: batch,
		}})[0]
		got = deliver(c.quotas, slots, r.Leased)
		s.metrics.leased(len(r.Leased), r.Err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(c, r, got, time.Now())
	s.wake.Signal()
}

// reserveAgain takes slots for a repetition; false if there are none. What the call
// has leased comes whatever is free, and goes back if there are fewer slots than
// there were; if it has leased nothing, it does no more than for these slots.
func (s *Scheduler) reserveAgain(c *call) (quotas []job.LaneQuota, slots []Reservation, any bool) {
	quotas, slots = make([]job.LaneQuota, len(c.quotas)), make([]Reservation, len(c.quotas))
	for i, q := range c.quotas {
		slots[i] = s.o.Slots.Reserve(q.Lane.Namespace, q.Lane.Queue, q.N)
		quotas[i] = job.LaneQuota{Lane: q.Lane, N: slots[i].Count()}
		any = any || quotas[i].N > 0
	}
	return quotas, slots, any
}

// pause waits; false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
