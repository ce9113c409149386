package scheduler

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const (
	// leaseTimeout bounds one leasing call with the store's own retries. A lock
	// that runs out meanwhile is noticed by the script.
	leaseTimeout = 3 * time.Second
	// errorPause is how long a shard rests after a call that failed, and longRest
	// after one that is likely to fail for a while.
	errorPause     = 200 * time.Millisecond
	longErrorPause = time.Second
)

// leaseLoop makes one leasing call after the other.
func (s *Scheduler) leaseLoop(ctx context.Context) {
	for {
		calls, ok := s.awaitCalls()
		if !ok {
			return
		}
		s.leaseAll(ctx, calls)
	}
}

// leaseAll makes the calls in one pipeline and delivers the leases. It does not stop when ctx ends: what is
// leased must be delivered.
func (s *Scheduler) leaseAll(run context.Context, calls []*call) {
	if free, limited := s.splitLimited(calls); len(free) > 0 && len(limited) > 0 {
		s.repeaters.Go(func() { s.leaseAll(run, limited) })
		calls = free
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run), leaseTimeout)
	defer cancel()
	calls = s.applyLimits(ctx, calls)
	if len(calls) == 0 {
		return
	}
	requests := make([]job.LeaseRequest, len(calls))
	for i, c := range calls {
		requests[i] = job.LeaseRequest{
			Shard: c.shard.id, LockValue: c.lockValue, Quotas: c.quotas, TTL: s.o.LeaseTTL, Batch: s.newBatchID(),
			Advance: c.horizon(),
		}
	}
	sent := time.Now()
	replies := s.o.Store.Lease(ctx, requests)
	arrived := time.Now()
	got := make([][]int, len(calls))
	s.o.Slots.HoldAssignments()
	for i, c := range calls {
		setStartTimes(replies[i], c.horizon(), c.clock, sent, arrived)
		got[i] = s.deliverLeases(c.quotas, c.slots, replies[i].Leased)
		s.metrics.countLeases(len(replies[i].Leased), replies[i].Err)
	}
	s.o.Slots.ReleaseAssignments()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range calls {
		if outcomeUnknown(replies[i]) && !s.stopping {
			s.repeaters.Go(func() { s.repeatOwnCall(run, c, requests[i], replies[i]) })
			continue
		}
		s.finishCall(c, replies[i], got[i], arrived)
	}
}

// deliverLeases delivers each lane's leases to the slots reserved for it and returns their number. It ends every
// reservation with slots. After a partly lost write, a record may be indexed under a lane that is not its own:
// then its lease goes to workers of its own queue, or is returned.
func (s *Scheduler) deliverLeases(quotas []job.LaneQuota, slots []slots.Reservation, leased []job.Leased) []int {
	got := make([]int, len(quotas))
	if len(quotas) == 1 && allInLane(leased, quotas[0].Lane) {
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

// allInLane reports whether all leases are of the lane.
func allInLane(leased []job.Leased, lane job.Lane) bool {
	for i := range leased {
		if leased[i].Known.State.Lane != lane {
			return false
		}
	}
	return true
}

// finishCall applies the answer of a call to the shard. The caller holds mu, and picks again afterwards.
func (s *Scheduler) finishCall(c *call, r job.LeaseReply, got []int, arrived time.Time) {
	sh := c.shard
	delete(s.callsInFlight, sh.id)
	for i, q := range c.quotas {
		s.backlog.chargeFlow(q.Lane, got[i]-q.N)
		c.lanes[i].callInFlight = false
	}
	s.returnUnusedStarts(c, got)
	if s.shards[sh.id] != sh {
		return // lost meanwhile
	}
	if r.Err != nil {
		s.restAfterError(c, r.Err, arrived)
		return
	}
	sh.noteClock(clockReading{r.NowUS, arrived, s.clockLag(sh.id)}, len(r.Leased) == 0)
	s.leaseRate.Count(len(r.Leased), arrived)
	// A lane that is missing in the answer is left to the next rescan.
	heads := make(map[job.Lane]unixtime.Milli, len(r.Heads))
	for _, h := range r.Heads {
		heads[h.Lane] = h.DueMS
	}
	nowMS := sh.clock.estimateUS(arrived).Milli()
	for i, l := range c.lanes {
		due, known := heads[l.key]
		if !known {
			due = job.NeverMS
		}
		l.adaptWanted(c.quotas[i].N, got[i], due, nowMS)
		if got[i] == 0 {
			l.mayAdvance = false // it came too soon: the next time it waits until something is due
		}
		s.applyDue(l, due)
	}
}

// restAfterError makes a shard rest. Its lanes stay as due as they were.
func (s *Scheduler) restAfterError(c *call, err error, now time.Time) {
	rest := errorPause
	if errors.Is(err, job.ErrNotHolder) || errors.Is(err, job.ErrClockJump) {
		rest = longErrorPause
	}
	c.shard.restUntil = now.Add(rest)
	for _, l := range c.lanes {
		s.applyDue(l, l.due)
	}
	s.o.Logger.Warn("failed to lease runs", "shard", c.shard.id, "retry_in", rest, "error", err)
}

// newBatchID returns an id under which a call can be repeated.
func (s *Scheduler) newBatchID() string {
	return s.o.Node + "." + strconv.FormatInt(s.batches.Add(1), 36)
}
