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
	// errorRest is how long a shard rests after a call that failed.
	errorRest = 200 * time.Millisecond
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

// await waits until there are calls to make; false when the scheduler closes.
func (s *Scheduler) await() ([]call, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed {
		calls, next := s.pick(time.Now())
		if len(calls) > 0 {
			// Another leaser may take what this one left.
			s.wake.Signal()
			return calls, true
		}
		s.sleepUntil(next)
	}
	return nil, false
}

// leaseAll makes the calls in one pipeline and hands out what came.
func (s *Scheduler) leaseAll(ctx context.Context, calls []call) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	requests := make([]job.LeaseRequest, len(calls))
	for i, c := range calls {
		requests[i] = job.LeaseRequest{
			Shard: c.shard.id, LockValue: c.lockValue, Quotas: c.lanes, TTL: s.o.LeaseTTL, Batch: s.batchID(),
		}
	}
	replies := s.o.Store.Lease(ctx, requests)
	arrived := time.Now()
	for i, r := range replies {
		deliver(calls[i], r)
		s.metrics.leased(len(r.Leased), r.Err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range replies {
		s.finish(calls[i], r, arrived)
	}
	s.wake.Signal()
}

// deliver hands each lane's leases to the slots reserved for it.
func deliver(c call, r job.LeaseReply) {
	byLane := make(map[job.Lane][]job.Leased, len(c.lanes))
	for _, l := range r.Leased {
		byLane[l.State.Lane] = append(byLane[l.State.Lane], l)
	}
	for i, q := range c.lanes {
		c.slots[i].Deliver(byLane[q.Lane])
	}
}

// finish takes what a call taught about the shard. The caller holds mu.
func (s *Scheduler) finish(c call, r job.LeaseReply, arrived time.Time) {
	sh := c.shard
	sh.busy = false
	if r.Err != nil {
		s.failed(sh, r.Err, arrived)
		return
	}
	sh.saw(r.NowUS, arrived)
	got := make(map[job.Lane]int, len(c.lanes))
	for _, l := range r.Leased {
		got[l.State.Lane]++
	}
	for _, h := range r.Heads {
		sh.lane(h.Lane).settleHead(h.DueMS)
	}
	for _, q := range c.lanes {
		sh.lane(q.Lane).learn(q.N, got[q.Lane])
	}
	sh.recount()
}

// learn adapts how much is asked for: twice as much when the lane gave all, one
// more than it gave otherwise.
func (l *lane) learn(asked, got int) {
	if got >= asked {
		l.want = min(max(l.want, asked*2), maxWant)
		return
	}
	l.want = min(got+1, maxWant)
}

func (s *Scheduler) failed(sh *shard, err error, now time.Time) {
	rest := errorRest
	if errors.Is(err, job.ErrNotHolder) || errors.Is(err, job.ErrClockJump) {
		rest = time.Second
	}
	sh.notBefore = now.Add(rest)
	for _, l := range sh.lanes {
		l.due = min(l.due, l.nudged)
		l.nudged = job.NeverMS
	}
	sh.recount()
	s.o.Logger.Warn("leasing failed", "shard", sh.id, "retry_in", rest, "error", err)
}

// batchID makes a call repeatable.
func (s *Scheduler) batchID() string {
	return s.o.Node + "." + strconv.FormatInt(s.batches.Add(1), 36)
}
