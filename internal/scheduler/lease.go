package scheduler

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

const (
	// leaseTimeout bounds one leasing call with the store's own retries. A lock
	// that runs out meanwhile is noticed by the script.
	leaseTimeout = 3 * time.Second
	// errorRest is how long a shard rests after a call that failed, and longRest
	// after one that is likely to fail for a while.
	errorRest = 200 * time.Millisecond
	longRest  = time.Second
)

// leaseLoop makes one leasing call after the other.
func (s *Scheduler) leaseLoop(ctx context.Context) {
	for {
		calls, ok := s.await()
		if !ok {
			return
		}
		s.leaseAll(ctx, calls)
	}
}

// leaseAll makes the calls in one pipeline and hands out what came. It is not cut
// short when ctx ends: what is leased must be delivered.
func (s *Scheduler) leaseAll(run context.Context, calls []*call) {
	if free, limited := s.apart(calls); len(free) > 0 && len(limited) > 0 {
		s.collectors.Go(func() { s.leaseAll(run, limited) })
		calls = free
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run), leaseTimeout)
	defer cancel()
	if calls = s.limit(ctx, calls); len(calls) == 0 {
		return
	}
	requests := make([]job.LeaseRequest, len(calls))
	for i, c := range calls {
		requests[i] = job.LeaseRequest{
			Shard: c.shard.id, LockValue: c.lockValue, Quotas: c.quotas, TTL: s.o.LeaseTTL, Batch: s.batchID(),
			Advance: c.horizon(),
		}
	}
	sent := time.Now()
	replies := s.o.Store.Lease(ctx, requests)
	arrived := time.Now()
	got := make([][]int, len(calls))
	for i, c := range calls {
		c.startAt(replies[i], sent, arrived)
		got[i] = s.deliver(c.quotas, c.slots, replies[i].Leased)
		s.metrics.leased(len(replies[i].Leased), replies[i].Err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range calls {
		if unknown(replies[i]) && !s.closed {
			s.collectors.Go(func() { s.collect(run, c, requests[i], replies[i]) })
			continue
		}
		s.finish(c, replies[i], got[i], arrived)
	}
}

// deliver hands each lane's leases to the slots reserved for it and returns how
// many there were. Every reservation with slots ends here. A record may be indexed under
// another lane than its own, after a write that was lost in part: then its lease goes to
// workers of its own queue, or back.
func (s *Scheduler) deliver(quotas []job.LaneQuota, slots []Reservation, leased []job.Leased) []int {
	got := make([]int, len(quotas))
	if len(quotas) == 1 && allOf(leased, quotas[0].Lane) {
		got[0] = len(leased)
		slots[0].Deliver(leased)
		return got
	}
	byLane := make(map[job.Lane][]job.Leased, len(quotas))
	for _, l := range leased {
		byLane[l.Known.State.Lane] = append(byLane[l.Known.State.Lane], l)
	}
	for i, q := range quotas {
		got[i] = len(byLane[q.Lane])
		slots[i].Deliver(byLane[q.Lane])
		delete(byLane, q.Lane)
	}
	for lane, strays := range byLane {
		s.o.Slots.Reserve(lane.Namespace, lane.Queue, len(strays)).Deliver(strays)
	}
	return got
}

// allOf tells whether all leases are of the lane.
func allOf(leased []job.Leased, lane job.Lane) bool {
	for i := range leased {
		if leased[i].Known.State.Lane != lane {
			return false
		}
	}
	return true
}

// finish takes what a call taught about the shard. The caller holds mu, and
// looks for more to do next.
func (s *Scheduler) finish(c *call, r job.LeaseReply, got []int, arrived time.Time) {
	sh := c.shard
	delete(s.flying, sh.id)
	for i, q := range c.quotas {
		s.backlog.charge(q.Lane, got[i]-q.N)
		c.lanes[i].asked = false
	}
	s.giveBack(c, got)
	if s.shards[sh.id] != sh {
		return // lost meanwhile
	}
	if r.Err != nil {
		s.failed(c, r.Err, arrived)
		return
	}
	sh.saw(r.NowUS, arrived, len(r.Leased) == 0)
	// A lane that is missing in the answer is left to the next rescan.
	heads := make(map[job.Lane]int64, len(r.Heads))
	for _, h := range r.Heads {
		heads[h.Lane] = h.DueMS
	}
	nowMS := sh.clock.show(arrived) / 1000
	for i, l := range c.lanes {
		due, known := heads[l.key]
		if !known {
			due = job.NeverMS
		}
		l.learn(c.quotas[i].N, got[i], due, nowMS)
		if got[i] == 0 {
			l.advance = false // it came too soon: the next time it waits until something is due
		}
		s.settle(l, due)
	}
}

// failed has a shard rest. What was due still is.
func (s *Scheduler) failed(c *call, err error, now time.Time) {
	rest := errorRest
	if errors.Is(err, job.ErrNotHolder) || errors.Is(err, job.ErrClockJump) {
		rest = longRest
	}
	c.shard.rest = now.Add(rest)
	for _, l := range c.lanes {
		s.settle(l, l.due)
	}
	s.o.Logger.Warn("leasing failed", "shard", c.shard.id, "retry_in", rest, "error", err)
}

// batchID makes a call repeatable.
func (s *Scheduler) batchID() string {
	return s.o.Node + "." + strconv.FormatInt(s.batches.Add(1), 36)
}
