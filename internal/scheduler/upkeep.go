package scheduler

import (
	"context"
	"errors"
	"maps"
	"slices"
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
	// sweepRest is the least pause of sweeping where more is to be deleted than that.
	sweepRest = 10 * time.Millisecond
)

const (
	// hotFor is how long leases may still be taken under a call or permit that was made
	// just now: until then no look proves that a lane has none.
	hotFor = 15 * time.Second
	// coldPeriods is in how many periods of reaping all lanes of a shard are looked at once:
	// also those in which nothing was leased when they were looked at last. They may have
	// got a lease meanwhile that this node did not give: by a peer's call under a permit,
	// which may be repeated for longer than hotFor, or where an audit mended the index. Such
	// a lease that ends is found that many periods late at most. Of sweeping it is the same
	// with what comes to its end without a lease.
	coldPeriods = 30
	// coldEvery is in how many periods shards have that turn, some of them together: a node
	// that has nothing to reap asks Redis that seldom.
	coldEvery = 5
)

// eachHeld calls f for the shards whose locks can be trusted, with those of their lanes
// in which the time of a record has come, again and again while it finds that there is
// more. It tells whether there is more than that of any. Failures are left to the next
// period.
func (s *Scheduler) eachHeld(
	ctx context.Context, what string, heads map[int][]job.LaneHead,
	f func(shard int, lockValue string, lanes []job.Lane) (more bool, err error),
) (left bool) {
	for id, lanes := range s.ended(ctx, heads) {
		for round := range maxRounds {
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
			left = left || round == maxRounds-1
		}
	}
	return left
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

// inTurn tells whether it is a shard's turn in a period, so that all of its lanes are looked
// at.
func inTurn(shard int, period uint64) bool {
	return period%coldEvery == 0 && (period/coldEvery+uint64(shard))%(coldPeriods/coldEvery) == 0
}

// toReap lists the lanes that are to be looked at for ended leases in this period.
func (s *Scheduler) toReap() map[int][]job.Lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reaps++
	lanes := make(map[int][]job.Lane, len(s.shards))
	for id, sh := range s.shards {
		sh.reaped = s.reaps
		switch {
		case inTurn(id, s.reaps):
			lanes[id] = slices.AppendSeq(make([]job.Lane, 0, len(sh.lanes)), maps.Keys(sh.lanes))
		case len(sh.warm) > 0:
			lanes[id] = make([]job.Lane, 0, len(sh.warm))
			for l := range sh.warm {
				lanes[id] = append(lanes[id], l.key)
			}
		}
	}
	return lanes
}

// toSweep lists the lanes that are to be looked at for records to delete in this period:
// where some may have ended, or the first one is to be deleted by now, as far as is known.
func (s *Scheduler) toSweep(now time.Time) map[int][]job.Lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweeps++
	lanes := make(map[int][]job.Lane, len(s.shards))
	for id, sh := range s.shards {
		all, nowMS := inTurn(id, s.sweeps), sh.clock.show(now)/1000
		for key, l := range sh.lanes {
			if !all && !l.ran && l.firstEnd > nowMS {
				continue
			}
			_, l.ran = sh.warm[l] // what ends from here on the look may not see
			lanes[id] = append(lanes[id], key)
		}
	}
	return lanes
}

// noteEnds keeps when the first record of each of the lanes looked at is to be deleted. Those
// that could not be read are looked at again.
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
				l.ran = true
			}
		}
		for _, h := range list {
			if l := sh.lanes[h.Lane]; l != nil {
				l.firstEnd = min(l.firstEnd, h.DueMS)
			}
		}
	}
}

// noteLeased keeps in which of the lanes looked at something is leased, or may be. A lane
// that could not be read stays as it was, and so do those of a shard that was lost and acquired
// meanwhile: others may have leased from it since.
func (s *Scheduler) noteLeased(looked map[int][]job.Lane, heads map[int][]job.LaneHead, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, list := range heads {
		sh := s.shards[id]
		if sh == nil || sh.reaped != s.reaps {
			continue
		}
		for _, key := range looked[id] {
			if l := sh.lanes[key]; l != nil && !l.pending() && !now.Before(l.hot) {
				delete(sh.warm, l)
			}
		}
		for _, h := range list {
			if l := sh.lanes[h.Lane]; l != nil {
				sh.heat(l)
			}
		}
	}
}

// reap finds leases that ended without a result and has them decided. Only the
// store's clock says that a lease has ended; the write is refused when it was
// renewed meanwhile.
func (s *Scheduler) reap(ctx context.Context) {
	now := time.Now()
	looked := s.toReap()
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
		s.o.Ledger.Submit(change, func(r job.ChangeResult) {
			s.tellLost(o, &r)
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
		s.o.Logger.Warn("ended leases could not be settled", "count", failures, "error", last)
	}
	return failures < len(ended)
}

// tellLost reports an attempt whose loss is stored, also if an earlier call stored it whose
// reply was lost: what it held is given back under its token, which no other attempt has.
func (s *Scheduler) tellLost(o job.Overdue, r *job.ChangeResult) {
	if s.o.OnLost == nil || r.Err != nil || r.Answer != job.Applied && r.Answer != job.Duplicate {
		return
	}
	d := r.Record.Definition
	if d == nil && r.Parent != nil {
		d = r.Parent.Definition
	}
	s.o.OnLost(job.Ending{Record: o.Record, Token: o.State.Token, Over: true, Definition: d})
}

// sweep deletes finished and dead records whose time has come. Where they are many it takes
// a quarter of the time for that, so that what is due is not held up.
func (s *Scheduler) sweep(ctx context.Context) {
	for {
		began := time.Now()
		if left := s.sweepOnce(ctx); !left || !pause(ctx, max(3*time.Since(began), sweepRest)) {
			return
		}
	}
}

// sweepOnce gives each shard its rounds and tells whether they were too few for any.
func (s *Scheduler) sweepOnce(ctx context.Context) (left bool) {
	looked := s.toSweep(time.Now())
	heads := s.firstEnds(ctx, "sweeping", looked, job.RegionDead, job.RegionDone)
	s.noteEnds(looked, heads)
	return s.eachHeld(ctx, "sweeping", heads, func(shard int, lockValue string, lanes []job.Lane) (bool, error) {
		n, err := s.o.Store.Sweep(ctx, shard, lockValue, lanes, sweepLimit)
		s.metrics.swept.Add(float64(n))
		return n >= sweepLimit, err
	})
}
