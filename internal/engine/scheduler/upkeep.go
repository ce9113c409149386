package scheduler

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// reapLimit and sweepLimit bound one look for ended leases and for records to
	// delete in one shard.
	reapLimit  = 100
	sweepLimit = 200
	// maxShardRounds bounds how often one shard is looked at before the others' turn.
	maxShardRounds = 20
	// minSweepPause is the least pause of sweeping where more is to be deleted than that.
	minSweepPause = 10 * time.Millisecond
)

const (
	// leasableFor is how long leases may still be taken under a call or permit that was made just now: until
	// then no look proves that a lane has none.
	leasableFor = 15 * time.Second
	// fullReapPeriods is the number of reaping periods in which all lanes of a shard are looked at once, also
	// those without leases at their last look. They may have got a lease that this node did not give: by a
	// peer's call under a permit, which may be repeated for longer than leasableFor, or where an audit repaired
	// the index. The expiry of such a lease is found at most that many periods late. The same holds for sweeping
	// of records that end without a lease.
	fullReapPeriods = 30
	// fullReapStride is the number of periods between such looks, which several shards share: a node that has
	// nothing to reap asks Redis that rarely.
	fullReapStride = 5
)

// forEachHeldShard calls f for the shards whose locks can be trusted, with the lanes that have a record whose
// time has come, until f reports that there is no more. It reports whether any shard has more than its rounds
// allowed. Failures are left to the next period.
func (s *Scheduler) forEachHeldShard(
	ctx context.Context, what string, heads map[int][]job.LaneHead,
	f func(shard int, lockValue string, lanes []job.Lane) (more bool, err error),
) (left bool) {
	for id, lanes := range s.lanesWithEnded(ctx, heads) {
		for round := range maxShardRounds {
			lockValue, held := s.o.Held(id)
			if !held || ctx.Err() != nil {
				break
			}
			more, err := f(id, lockValue, lanes)
			if err != nil && ctx.Err() == nil && !errors.Is(err, job.ErrNotHolder) {
				s.o.Logger.Warn("failed to "+what, "shard", id, "error", err)
			}
			if err != nil || !more {
				break
			}
			left = left || round == maxShardRounds-1
		}
	}
	return left
}

// readFirstEnds reads the first end times of lanes. Usually they show that there is nothing to do.
func (s *Scheduler) readFirstEnds(ctx context.Context, what string, lanes map[int][]job.Lane,
	regions ...job.Region) map[int][]job.LaneHead {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	heads, err := s.o.Store.FirstEnds(ctx, lanes, regions...)
	if err != nil && context.Cause(ctx) != context.Canceled {
		s.o.Logger.Warn("failed to "+what, "error", err)
	}
	return heads
}

// lanesWithEnded lists the lanes that have a record whose time has come, by the shards' clocks as this process
// knows them: it may be a moment late.
func (s *Scheduler) lanesWithEnded(ctx context.Context, heads map[int][]job.LaneHead) map[int][]job.Lane {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	out := make(map[int][]job.Lane)
	for id, list := range heads {
		if len(list) == 0 {
			continue
		}
		now, err := s.o.Store.Now(ctx, id)
		if err != nil {
			continue
		}
		for _, h := range list {
			if h.DueMS <= now && (len(out[id]) == 0 || out[id][len(out[id])-1] != h.Lane) {
				out[id] = append(out[id], h.Lane)
			}
		}
	}
	return out
}

// isShardTurn reports whether all lanes of a shard are looked at in this period.
func isShardTurn(shard int, period uint64) bool {
	return period%fullReapStride == 0 && (period/fullReapStride+uint64(shard))%(fullReapPeriods/fullReapStride) == 0
}

// lanesToReap lists the lanes that are looked at for expired leases in this period.
func (s *Scheduler) lanesToReap() map[int][]job.Lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reapCount++
	lanes := make(map[int][]job.Lane, len(s.shards))
	for id, sh := range s.shards {
		sh.lastReapPeriod = s.reapCount
		switch {
		case isShardTurn(id, s.reapCount):
			lanes[id] = slices.AppendSeq(make([]job.Lane, 0, len(sh.lanes)), maps.Keys(sh.lanes))
		case len(sh.maybeLeased) > 0:
			lanes[id] = make([]job.Lane, 0, len(sh.maybeLeased))
			for l := range sh.maybeLeased {
				lanes[id] = append(lanes[id], l.key)
			}
		}
	}
	return lanes
}

// lanesToSweep lists the lanes that are looked at for records to delete in this period: those in which records
// may have ended, or whose first record is to be deleted by now, as far as is known.
func (s *Scheduler) lanesToSweep(now time.Time) map[int][]job.Lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepCount++
	lanes := make(map[int][]job.Lane, len(s.shards))
	for id, sh := range s.shards {
		all, nowMS := isShardTurn(id, s.sweepCount), sh.clock.estimateUS(now).Milli()
		for key, l := range sh.lanes {
			if !all && !l.leasedSinceSweep && l.firstEnd > nowMS {
				continue
			}
			_, l.leasedSinceSweep = sh.maybeLeased[l] // this look may miss records that end from here on
			lanes[id] = append(lanes[id], key)
		}
	}
	return lanes
}

// noteEnds stores when the first record of each of these lanes is to be deleted. Lanes that could not be read
// are looked at again.
func (s *Scheduler) noteEnds(looked map[int][]job.Lane, heads map[int][]job.LaneHead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, keys := range looked {
		sh := s.shards[id]
		if sh == nil {
			continue
		}
		list, read := heads[id]
		for _, key := range keys {
			if l := sh.lanes[key]; l != nil && read {
				l.firstEnd = job.NeverMS
			} else if l != nil {
				l.leasedSinceSweep = true
			}
		}
		for _, h := range list {
			if l := sh.lanes[h.Lane]; l != nil {
				l.firstEnd = min(l.firstEnd, h.DueMS)
			}
		}
	}
}

// noteLeased stores which of these lanes have leases, or may have some. A lane that could not be read stays as
// it was, and so do the lanes of a shard that was lost and acquired meanwhile: others may have leased from it
// since.
func (s *Scheduler) noteLeased(looked map[int][]job.Lane, heads map[int][]job.LaneHead, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, list := range heads {
		sh := s.shards[id]
		if sh == nil || sh.lastReapPeriod != s.reapCount {
			continue
		}
		for _, key := range looked[id] {
			if l := sh.lanes[key]; l != nil && !l.isPending() && !now.Before(l.leasableUntil) {
				delete(sh.maybeLeased, l)
			}
		}
		for _, h := range list {
			if l := sh.lanes[h.Lane]; l != nil {
				sh.markMaybeLeased(l)
			}
		}
	}
}

// reapLeases finds leases that expired without a result and submits their loss. Only the store's clock decides
// that a lease has expired; the write is refused if it was renewed meanwhile.
func (s *Scheduler) reapLeases(ctx context.Context) {
	now := time.Now()
	looked := s.lanesToReap()
	heads := s.readFirstEnds(ctx, "reap expired leases", looked, job.RegionLeased)
	s.noteLeased(looked, heads, now)
	s.forEachHeldShard(ctx, "reap expired leases", heads,
		func(shard int, lockValue string, lanes []job.Lane) (bool, error) {
			ended, err := s.o.Store.Expired(ctx, shard, lockValue, lanes, reapLimit)
			if err != nil {
				return false, err
			}
			s.metrics.reaped.Add(float64(len(ended)))
			settled := s.submitLosses(ctx, ended)
			return len(ended) >= reapLimit && settled, nil
		})
}

// submitLosses submits the loss of expired leases and waits for the decisions. It reports whether any was
// stored: if not, the next look would find the same ones.
func (s *Scheduler) submitLosses(ctx context.Context, ended []job.Overdue) bool {
	results := make(chan job.ChangeResult, len(ended))
	for _, o := range ended {
		change := job.Change{Record: o.Record, Input: job.LoseLease{Token: o.State.Token}, IfExpired: true}
		s.o.Ledger.Submit(change, func(r job.ChangeResult) {
			s.reportLost(o, &r)
			results <- r
		})
	}
	failures, last := 0, error(nil)
	for range ended {
		select {
		case r := <-results:
			if r.Err != nil {
				failures, last = failures+1, r.Err
			}
		case <-ctx.Done():
			return false
		}
	}
	if failures > 0 {
		s.o.Logger.Warn("failed to settle expired leases", "count", failures, "error", last)
	}
	return failures < len(ended)
}

// reportLost reports an attempt whose loss is stored, also if an earlier call with a lost reply stored it. What
// the attempt held is given back under its token, which no other attempt has.
func (s *Scheduler) reportLost(o job.Overdue, r *job.ChangeResult) {
	if s.o.OnLost == nil || r.Err != nil || r.Answer != job.Applied && r.Answer != job.Duplicate {
		return
	}
	d := r.Record.Definition
	if d == nil && r.Parent != nil {
		d = r.Parent.Definition
	}
	s.o.OnLost(job.Ending{Record: o.Record, Token: o.State.Token, Over: true, Definition: d})
}

// sweepRecords deletes finished and dead records whose time has come. If there are many it takes a quarter of
// the time, so that due runs are not delayed.
func (s *Scheduler) sweepRecords(ctx context.Context) {
	for {
		began := time.Now()
		if left := s.sweepOnce(ctx); !left || !sleepContext(ctx, max(3*time.Since(began), minSweepPause)) {
			return
		}
	}
}

// sweepOnce gives each shard its rounds and reports whether they were too few for any.
func (s *Scheduler) sweepOnce(ctx context.Context) (left bool) {
	looked := s.lanesToSweep(time.Now())
	heads := s.readFirstEnds(ctx, "sweep records", looked, job.RegionDead, job.RegionDone)
	s.noteEnds(looked, heads)
	return s.forEachHeldShard(ctx, "sweep records", heads,
		func(shard int, lockValue string, lanes []job.Lane) (bool, error) {
			n, err := s.o.Store.Sweep(ctx, shard, lockValue, lanes, sweepLimit)
			s.metrics.swept.Add(float64(n))
			return n >= sweepLimit, err
		})
}

// finishRenames ends the renames of the shards that this node holds which their callers have left.
func (s *Scheduler) finishRenames(ctx context.Context) {
	s.mu.Lock()
	shards := slices.Sorted(maps.Keys(s.shards))
	s.mu.Unlock()
	shards = slices.DeleteFunc(shards, func(id int) bool { _, held := s.o.Held(id); return !held })
	if len(shards) == 0 {
		return
	}
	if err := s.o.FinishRenames(ctx, shards); err != nil && ctx.Err() == nil {
		s.o.Logger.Warn("failed to finish renames", "error", err)
	}
}
