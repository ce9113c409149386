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
)

// scanLoop reads the first due times of all shards once a period, and those of
// newly acquired shards at once.
func (s *Scheduler) scanLoop(ctx context.Context) {
	t := time.NewTicker(s.o.Rescan)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.unread:
			s.scan(ctx, s.shardIDs(func(sh *shard) bool { return sh.clock.at.IsZero() }))
		case <-t.C:
			s.scan(ctx, s.shardIDs(func(*shard) bool { return true }))
		}
	}
}

func (s *Scheduler) shardIDs(want func(*shard) bool) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropExpired(time.Now())
	s.fair.forget()
	var ids []int
	for id, sh := range s.shards {
		if want(sh) {
			ids = append(ids, id)
		}
	}
	return ids
}

// scan reads the first due times of some shards.
func (s *Scheduler) scan(ctx context.Context, ids []int) {
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	heads, err := s.o.Store.Lanes(ctx, ids)
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			s.o.Logger.Warn("reading due times failed", "shards", len(ids), "error", err)
		}
		return
	}
	arrived := time.Now()
	for id, lanes := range heads {
		nowMS, err := s.o.Store.Now(ctx, id)
		if err != nil {
			continue
		}
		s.mu.Lock()
		s.learnHeads(id, lanes, nowMS, arrived)
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.wake.Signal()
	s.mu.Unlock()
}

// learnHeads replaces what is known of a shard's lanes. What a call in flight is
// about to report is left to that call.
func (s *Scheduler) learnHeads(id int, heads []job.LaneHead, nowMS int64, at time.Time) {
	sh, held := s.shards[id]
	if !held {
		return
	}
	if nowMS > sh.nowMS(at) || at.Sub(sh.clock.at) > time.Second {
		sh.saw(nowMS*1000, at)
	}
	listed := make(map[job.Lane]bool, len(heads))
	for _, h := range heads {
		listed[h.Lane] = true
		l := sh.lane(h.Lane)
		if sh.busy || l.permit != nil {
			l.nudged = min(l.nudged, h.DueMS)
		} else {
			l.due = h.DueMS
		}
	}
	if !sh.busy {
		for l, state := range sh.lanes {
			if !listed[l] && state.permit == nil {
				delete(sh.lanes, l)
			}
		}
	}
	sh.recount()
}

// held lists the shards whose locks can be trusted, with their lanes.
func (s *Scheduler) held() map[int][]job.Lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	lanes := make(map[int][]job.Lane, len(s.shards))
	for id, sh := range s.shards {
		for l := range sh.lanes {
			lanes[id] = append(lanes[id], l)
		}
	}
	return lanes
}

// reap finds leases that ended without a result and has them decided. Only the
// store's clock says that a lease has ended; the write is refused when it was
// renewed meanwhile.
func (s *Scheduler) reap(ctx context.Context) {
	for id, lanes := range s.held() {
		value, ok := s.o.Held(id)
		if !ok || len(lanes) == 0 {
			continue
		}
		ended, err := s.o.Store.Expired(ctx, id, value, lanes, reapLimit)
		if err != nil {
			s.upkeepFailed(ctx, "reaping", id, err)
			continue
		}
		for _, o := range ended {
			change := job.Change{Record: o.Record, Event: job.Lose{Token: o.State.Token}, IfExpired: true}
			s.o.Ledger.Submit(change, func(r job.ChangeResult) {
				if r.Err != nil {
					s.o.Logger.Warn("ended lease could not be settled", "record", o.Record, "error", r.Err)
				}
			})
		}
		s.metrics.reaped.Add(float64(len(ended)))
	}
}

// sweep deletes finished and dead records whose time has come.
func (s *Scheduler) sweep(ctx context.Context) {
	for id, lanes := range s.held() {
		value, ok := s.o.Held(id)
		for ok && len(lanes) > 0 {
			n, err := s.o.Store.Sweep(ctx, id, value, lanes, sweepLimit)
			if err != nil {
				s.upkeepFailed(ctx, "sweeping", id, err)
			}
			s.metrics.swept.Add(float64(n))
			if n < sweepLimit || err != nil {
				break
			}
		}
	}
}

func (s *Scheduler) upkeepFailed(ctx context.Context, what string, shard int, err error) {
	if ctx.Err() == nil && !errors.Is(err, job.ErrNotHolder) {
		s.o.Logger.Warn(what+" failed", "shard", shard, "error", err)
	}
}
