package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
)

// A call that ends with job.ErrUnavailable may have leased records. No worker has those
// leases, and their jobs would wait until they expire. So the call is repeated with its
// batch id until it is answered: a script that has run already returns the same leases.
// Meanwhile the shard counts as in flight, and its slots serve others. The same holds for a
// call under a peer's permit; further permits for the shard are left to expire. Each
// repetition runs in a goroutine of its own, at most one a shard, so that a server that is
// down does not keep leasers from the shards of other servers.

// outcomeUnknown reports whether a call may have had its effect.
func outcomeUnknown(r job.LeaseReply) bool { return errors.Is(r.Err, job.ErrUnavailable) }

// mayStillLease reports whether a repetition did not answer the call: Redis did not answer, or refused its clock
// before it looked at the batch.
func mayStillLease(r job.LeaseReply) bool {
	return outcomeUnknown(r) || errors.Is(r.Err, job.ErrClockJump)
}

// repeatOwnCall repeats a call for a shard of this node.
func (s *Scheduler) repeatOwnCall(ctx context.Context, c *call, request job.LeaseRequest, r job.LeaseReply) {
	r, got := s.repeatCall(ctx, request, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishCall(c, r, got, time.Now())
	s.wake.Signal()
}

// repeatPermittedCall repeats a call under a permit whose answer the holder no longer waits for.
func (s *Scheduler) repeatPermittedCall(ctx context.Context, request job.LeaseRequest, r job.LeaseReply) {
	_, got := s.repeatCall(ctx, request, r)
	for i, q := range request.Quotas {
		s.returnStarts(q.Lane, q.N-got[i])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unansweredCalls[request.Shard]--
	if s.unansweredCalls[request.Shard] == 0 {
		delete(s.unansweredCalls, request.Shard)
	}
}

// repeatCall repeats a call until it is answered, its leases have expired, or ctx ends. It returns the last
// answer, and the number of leases delivered for each quota. A repetition asks for no new leases and receives
// those of its batch, so no slot is reserved for a server that is down.
func (s *Scheduler) repeatCall(ctx context.Context, request job.LeaseRequest, r job.LeaseReply) (job.LeaseReply,
	[]int) {
	s.o.Logger.Warn("leasing call unanswered, repeating it", "shard", request.Shard, "error", r.Err)
	asked := request.Quotas
	request.Quotas = make([]job.LaneQuota, len(asked))
	for i, q := range asked {
		request.Quotas[i] = job.LaneQuota{Lane: q.Lane}
	}
	// Records leased in advance are due by the time of the repetition.
	request.Advance = 0
	for until := time.Now().Add(s.o.LeaseTTL); mayStillLease(r) && time.Now().Before(until) &&
		sleepContext(ctx, errorPause); {
		r = s.o.Store.Lease(ctx, []job.LeaseRequest{request})[0]
		s.metrics.countLeases(len(r.Leased), r.Err)
	}
	return r, s.deliverLeases(asked, s.reserveFor(asked, r.Leased), r.Leased)
}

// reserveFor reserves slots for leases that have none. If there are too few, the other leases go to slots that
// are free on delivery, or are returned.
func (s *Scheduler) reserveFor(quotas []job.LaneQuota, leased []job.Leased) []slots.Reservation {
	need := make(map[job.Lane]int, len(quotas))
	for _, l := range leased {
		need[l.Known.State.Lane]++
	}
	slots := make([]slots.Reservation, len(quotas))
	for i, q := range quotas {
		slots[i] = s.o.Slots.Reserve(q.Lane.Namespace, q.Lane.Queue, need[q.Lane])
	}
	return slots
}

// sleepContext waits; false if ctx ended.
func sleepContext(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
