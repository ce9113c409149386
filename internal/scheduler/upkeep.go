package scheduler

import (
	"context"
	"errors"

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

// eachHeld calls f for the shards whose locks can be trusted, with those of their
// lanes that have something to do in the regions, again and again while it finds that
// there is more. Mostly there is nothing to do, which one look for all shards tells.
// Failures are left to the next period.
func (s *Scheduler) eachHeld(
	ctx context.Context, what string, regions []job.Region,
	f func(shard int, lockValue string, lanes []job.Lane) (more bool, err error),
) {
	ended, err := s.ended(ctx, regions)
	if err != nil && ctx.Err() == nil {
		s.o.Logger.Warn(what+" failed", "error", err)
	}
	for id, lanes := range ended {
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

// ended lists the lanes of the shards that have something to do in the regions.
func (s *Scheduler) ended(ctx context.Context, regions []job.Region) (map[int][]job.Lane, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	return s.o.Store.Ended(ctx, s.lanes(), regions...)
}

// lanes lists the lanes of the shards.
func (s *Scheduler) lanes() map[int][]job.Lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	lanes := make(map[int][]job.Lane, len(s.shards))
	for id, sh := range s.shards {
		for key := range sh.lanes {
			lanes[id] = append(lanes[id], key)
		}
	}
	return lanes
}

// reap finds leases that ended without a result and has them decided. Only the
// store's clock says that a lease has ended; the write is refused when it was
// renewed meanwhile.
func (s *Scheduler) reap(ctx context.Context) {
	s.eachHeld(ctx, "reaping", []job.Region{job.RegionLeased}, func(shard int, lockValue string, lanes []job.Lane) (bool, error) {
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
	s.eachHeld(ctx, "sweeping", []job.Region{job.RegionDead, job.RegionDone}, func(shard int, lockValue string, lanes []job.Lane) (bool, error) {
		n, err := s.o.Store.Sweep(ctx, shard, lockValue, lanes, sweepLimit)
		s.metrics.swept.Add(float64(n))
		return n >= sweepLimit, err
	})
}
