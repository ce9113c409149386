package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

const (
	// reapLimit and sweepLimit bound one look for ended leases and for records to
	// delete in one shard.
	reapLimit  = 100
	sweepLimit = 100
	// maxRounds bounds how often one shard is looked at before the others' turn.
	maxRounds = 20
)

const (
	// hotFor is how long leases may still be taken under a call or permit that was made
	// just now: until then no look proves that a lane has none.
	hotFor = 15 * time.Second
	// coldPeriods is in how many periods of reaping a lane is looked at once in which
	// nothing was leased when it was looked at last. It may have got a lease meanwhile
	// that this node did not give: by a peer's call under a permit, which may be repeated
	// for longer than hotFor, or where an audit mended the index. Such a lease that ends is
	// found that many periods late at most.
	coldPeriods = 15
)

// eachHeld calls f for the shards whose locks can be trusted, with those of their lanes
// in which the time of a record has come, again and again while it finds that there is
// more. Failures are left to the next period.
func (s *Scheduler) eachHeld(
	ctx context.Context, what string, heads map[int][]job.LaneHead,
	f func(shard int, lockValue string, lanes []job.Lane) (more bool, err error),
) {
	for id, lanes := range s.ended(ctx, heads) {
		for range maxRounds {
			lockValue, held := s.o.Held(id)
			if !held || ctx.Err() != nil {
				break
			}
			more, err := f(id, lockValue, lanes)
			if err != nil && ctx.Err() == nil && !errors.Is(err, job.ErrNotHolder) {
				s.o.Logger.Warn(what+" failed", "shard", id, "error", err)
			}
			if err != nil || !more {
				break
			}
		}
	}
}

// firstEnds looks at lanes; mostly that tells that there is nothing to do.
func (s *Scheduler) firstEnds(ctx context.Context, what string, lanes map[int][]job.Lane, regions ...job.Region) map[int][]job.LaneHead {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	heads, err := s.o.Store.FirstEnds(ctx, lanes, regions...)
	if err != nil && context.Cause(ctx) != context.Canceled {
		s.o.Logger.Warn(what+" failed", "error", err)
	}
	return heads
}

// ended lists the lanes in which the time of a record has come, by the shards' clocks as
// this process knows them: it may be a moment late.
func (s *Scheduler) ended(ctx context.Context, heads map[int][]job.LaneHead) map[int][]job.Lane {
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

// lanes lists the lanes of the shards for which a function is true.
func (s *Scheduler) lanes(which func(*lane) bool) map[int][]job.Lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	lanes := make(map[int][]job.Lane, len(s.shards))
	for id, sh := range s.shards {
		for key, l := range sh.lanes {
			if which(l) {
				lanes[id] = append(lanes[id], key)
			}
		}
	}
	return lanes
}

// toReap tells whether a lane is to be looked at for ended leases in this period.
func (l *lane) toReap() bool {
	if l.leased {
		return true
	}
	l.cold++
	return l.cold%coldPeriods == 0
}

// noteLeased keeps in which of the lanes looked at something is leased, or may be. A lane
// that could not be read stays as it was.
func (s *Scheduler) noteLeased(looked map[int][]job.Lane, heads map[int][]job.LaneHead, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, list := range heads {
		sh := s.shards[id]
		if sh == nil {
			continue
		}
		for _, key := range looked[id] {
			if l := sh.lanes[key]; l != nil {
				l.leased = l.pending() || now.Before(l.hot)
			}
		}
		for _, h := range list {
			if l := sh.lanes[h.Lane]; l != nil {
				l.leased = true
			}
		}
	}
}

// reap finds leases that ended without a result and has them decided. Only the
// store's clock says that a lease has ended; the write is refused when it was
// renewed meanwhile.
func (s *Scheduler) reap(ctx context.Context) {
	now := time.Now()
	looked := s.lanes((*lane).toReap)
	heads := s.firstEnds(ctx, "reaping", looked, job.RegionLeased)
	s.noteLeased(looked, heads, now)
	s.eachHeld(ctx, "reaping", heads, func(shard int, lockValue string, lanes []job.Lane) (bool, error) {
		ended, err := s.o.Store.Expired(ctx, shard, lockValue, lanes, reapLimit)
		if err != nil {
			return false, err
		}
		s.metrics.reaped.Add(float64(len(ended)))
		settled := s.lose(ctx, ended)
		return len(ended) >= reapLimit && settled, nil
	})
}

// lose submits the loss of ended leases and waits for the decisions. It reports
// whether any was stored: if not, the next look would find the same ones.
func (s *Scheduler) lose(ctx context.Context, ended []job.Overdue) bool {
	results := make(chan job.ChangeResult, len(ended))
	for _, o := range ended {
		change := job.Change{Record: o.Record, Event: job.Lose{Token: o.State.Token}, IfExpired: true}
		s.o.Ledger.Submit(change, func(r job.ChangeResult) { results <- r })
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
		s.o.Logger.Warn("ended leases could not be settled", "count", failures, "error", last)
	}
	return failures < len(ended)
}

// sweep deletes finished and dead records whose time has come.
func (s *Scheduler) sweep(ctx context.Context) {
	all := s.lanes(func(*lane) bool { return true })
	heads := s.firstEnds(ctx, "sweeping", all, job.RegionDead, job.RegionDone)
	s.eachHeld(ctx, "sweeping", heads, func(shard int, lockValue string, lanes []job.Lane) (bool, error) {
		n, err := s.o.Store.Sweep(ctx, shard, lockValue, lanes, sweepLimit)
		s.metrics.swept.Add(float64(n))
		return n >= sweepLimit, err
	})
}
