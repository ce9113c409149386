package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// readLoop reads the first due times of newly acquired shards at once, also while a rescan waits for a
// server that is away.
func (s *Scheduler) readLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.unread:
			s.rescan(ctx, false)
		}
	}
}

// listedLanes is about how many lanes are listed in one period. Where there are more, the
// shards take turns; of the others those lanes are read that are due within dueWithin.
const (
	listedLanes = 5000
	dueWithin   = 2 // periods
)

// rescan reads the first due times of all shards, or only of those that were not
// read before. It is also where lost words of free slots are made up for. What is due is
// read beside the rest: a server that is away may have that take all its time.
func (s *Scheduler) rescan(ctx context.Context, all bool) {
	scan := s.beginScan(all)
	if len(scan.whole) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	var due sync.WaitGroup
	if len(scan.due) > 0 {
		due.Go(func() {
			heads, err := s.o.Store.DueLanes(ctx, scan.due, dueWithin*s.o.Rescan)
			s.learn(ctx, scan, heads, err, false)
		})
	}
	heads, err := s.o.Store.Lanes(ctx, scan.whole)
	s.learn(ctx, scan, heads, err, true)
	due.Wait()
}

// scan is one rescan: which shards are read as a whole, and of which only what is due.
type scan struct {
	number     int64
	whole, due []int
}

// beginScan numbers a rescan and chooses its shards.
func (s *Scheduler) beginScan(all bool) scan {
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
	out := scan{number: s.scans}
	var known []int
	for id, sh := range s.shards {
		switch {
		case !sh.read:
			out.whole = append(out.whole, id)
		case all:
			known = append(known, id)
		}
	}
	slices.Sort(known)
	listed, due := s.turns.Take(known, listedLanes, func(id int) int { return len(s.shards[id].lanes) })
	out.whole, out.due = append(out.whole, listed...), due
	return out
}

// learn takes what was read of shards, and has what is due leased; whole tells that these
// are all of their lanes.
func (s *Scheduler) learn(ctx context.Context, scan scan, heads map[int][]job.LaneHead, err error, whole bool) {
	if err != nil && context.Cause(ctx) != context.Canceled {
		s.o.Logger.Warn("reading due times failed", "error", err)
	}
	for id, lanes := range heads {
		nowMS, err := s.o.Store.Now(ctx, id)
		if err != nil {
			continue
		}
		s.mu.Lock()
		s.learnHeads(scan.number, id, lanes, whole, nowMS, time.Now())
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake.Signal()
}

// learnHeads takes what a rescan read of a shard, of all its lanes or some. What came
// from elsewhere since it began may be newer, so that such a lane's due time only becomes
// earlier; a pending lane is about to learn its due time anyway.
func (s *Scheduler) learnHeads(scan int64, id int, heads []job.LaneHead, whole bool, nowMS int64, at time.Time) {
	sh, held := s.shards[id]
	if !held || sh.born >= scan {
		return
	}
	sh.read = sh.read || whole
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
	if !whole {
		return
	}
	for _, l := range sh.lanes {
		if _, there := listed[l.key]; !there && l.touched < scan && !l.pending() {
			sh.take(l, &s.backlog)
			sh.forget(l)
		}
	}
}
