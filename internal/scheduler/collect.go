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
// Meanwhile the shard stays in flight and its slots serve others; so it is with a
// call under a peer's permit, and further permits for the shard are left to run out.
// The repetition has a goroutine of its own, at most one a shard, so that a server
// that is away keeps no leaser from the shards of other servers.

// unknown tells whether a call may have had its effect.
func unknown(r job.LeaseReply) bool { return errors.Is(r.Err, job.ErrUnavailable) }

// collect repeats a call of this node's own shard.
func (s *Scheduler) collect(ctx context.Context, c *call, request job.LeaseRequest, r job.LeaseReply) {
	r, got := s.repeat(ctx, request, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(c, r, got, time.Now())
	s.wake.Signal()
}

// collectPermitted repeats a call under a permit, whose answer nobody waits for any
// more.
func (s *Scheduler) collectPermitted(ctx context.Context, request job.LeaseRequest, r job.LeaseReply) {
	_, got := s.repeat(ctx, request, r)
	s.unused(request.Quotas[0].Lane, request.Quotas[0].N-got[0])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doubtful[request.Shard]--; s.doubtful[request.Shard] == 0 {
		delete(s.doubtful, request.Shard)
	}
}

// repeat makes a call until it is answered, its leases would have ended, or ctx
// ends. It returns the last answer, and how much was delivered for each quota. A
// repetition asks for no leases, which brings those that its batch has got: so no slot
// waits for a server that is away.
func (s *Scheduler) repeat(ctx context.Context, request job.LeaseRequest, r job.LeaseReply) (job.LeaseReply, []int) {
	s.o.Logger.Warn("leasing call has no answer and is repeated", "shard", request.Shard, "error", r.Err)
	asked := request.Quotas
	request.Quotas = make([]job.LaneQuota, len(asked))
	for i, q := range asked {
		request.Quotas[i] = job.LaneQuota{Lane: q.Lane}
	}
	// What the call has leased in advance is due when it is repeated.
	request.Advance = 0
	for until := time.Now().Add(s.o.LeaseTTL); unknown(r) && time.Now().Before(until) && pause(ctx, errorRest); {
		r = s.o.Store.Lease(ctx, []job.LeaseRequest{request})[0]
		s.metrics.leased(len(r.Leased), r.Err)
	}
	return r, s.deliver(asked, s.reserveFor(asked, r.Leased), r.Leased)
}

// reserveFor takes slots for what was leased without any. If they are too few, the rest
// goes to whatever is free when it is delivered, or back.
func (s *Scheduler) reserveFor(quotas []job.LaneQuota, leased []job.Leased) []Reservation {
	need := make(map[job.Lane]int, len(quotas))
	for _, l := range leased {
		need[l.Known.State.Lane]++
	}
	slots := make([]Reservation, len(quotas))
	for i, q := range quotas {
		slots[i] = s.o.Slots.Reserve(q.Lane.Namespace, q.Lane.Queue, need[q.Lane])
	}
	return slots
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
