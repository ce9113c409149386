package scheduler

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/job"
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
			s.rescan(ctx, false)
		case <-t.C:
			s.rescan(ctx, true)
		}
	}
}

// rescan reads the first due times of all shards, or only of those that were not
// read before. It is also where lost words of free slots are made up for.
func (s *Scheduler) rescan(ctx context.Context, all bool) {
	scan, ids := s.beginScan(all)
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	heads, err := s.o.Store.Lanes(ctx, ids)
	if err != nil && context.Cause(ctx) != context.Canceled {
		s.o.Logger.Warn("reading due times failed", "shards", len(ids), "error", err)
	}
	for id, lanes := range heads {
		nowMS, err := s.o.Store.Now(ctx, id)
		if err != nil {
			continue
		}
		s.mu.Lock()
		s.learnHeads(scan, id, lanes, nowMS, time.Now())
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake.Signal()
}

// beginScan numbers a rescan and lists its shards.
func (s *Scheduler) beginScan(all bool) (scan int64, ids []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scans++
	if all {
		for _, p := range s.peers {
			p.away = false
		}
		s.backlog.prune()
		s.backlog.waterAll()
	}
	for id, sh := range s.shards {
		if all || !sh.read {
			ids = append(ids, id)
		}
	}
	return s.scans, ids
}

// learnHeads takes what a rescan read of a shard. What came from elsewhere since
// it began may be newer, so that such a lane's due time only becomes earlier; a
// pending lane is about to learn its due time anyway.
func (s *Scheduler) learnHeads(scan int64, id int, heads []job.LaneHead, nowMS int64, at time.Time) {
	sh, held := s.shards[id]
	if !held || sh.born >= scan {
		return
	}
	sh.read = true
	sh.saw(nowMS*1000, at, false)
	listed := make(map[job.Lane]struct{}, len(heads))
	for _, h := range heads {
		listed[h.Lane] = struct{}{}
		l := sh.lane(h.Lane)
		due := h.DueMS
		if l.touched >= scan {
			due = min(due, l.due)
		}
		if due != l.due && !l.pending() {
			s.setDue(l, due)
		}
	}
	for key, l := range sh.lanes {
		if _, there := listed[key]; !there && l.touched < scan && !l.pending() {
			sh.take(l, &s.backlog)
			delete(sh.lanes, key)
		}
	}
}
