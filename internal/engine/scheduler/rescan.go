package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// readLoop reads the first due times of newly acquired shards at once, also while a rescan waits for a server
// that is down.
func (s *Scheduler) readLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.shardUnread:
			s.rescan(ctx, false)
		}
	}
}

// listedLanes is about how many lanes are listed in one period. Where there are more, the
// shards take turns; of the others those lanes are read that are due within dueWithinPeriods.
const (
	listedLanes      = 5000
	dueWithinPeriods = 2 // periods
)

// rescan reads the first due times of all shards, or only of those that were not read before. It also makes up
// for lost notifications of free slots. Due lanes are read concurrently with the rest: a server that is down may
// take all of its time.
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
			heads, err := s.o.Store.DueLanes(ctx, scan.due, dueWithinPeriods*s.o.Rescan)
			s.learnScan(ctx, scan, heads, err, false)
		})
	}
	heads, err := s.o.Store.Lanes(ctx, scan.whole)
	s.learnScan(ctx, scan, heads, err, true)
	due.Wait()
}

// scanPlan is one rescan: the shards that are read completely, and those for which only due lanes are read.
type scanPlan struct {
	number     int64
	whole, due []int
}

// beginScan numbers a rescan and chooses its shards.
func (s *Scheduler) beginScan(all bool) scanPlan {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scanCount++
	if all {
		for _, p := range s.peers {
			p.unreachable = false
		}
		s.backlog.pruneFlows()
		s.backlog.allSlotsAvailable()
	}
	out := scanPlan{number: s.scanCount}
	var known []int
	for id, sh := range s.shards {
		switch {
		case !sh.lanesRead:
			out.whole = append(out.whole, id)
		case all:
			known = append(known, id)
		}
	}
	slices.Sort(known)
	listed, due := s.scanTurns.Take(known, listedLanes, func(id int) int { return len(s.shards[id].lanes) })
	out.whole, out.due = append(out.whole, listed...), due
	return out
}

// learnScan applies what was read of shards, and wakes a leaser for what is due; whole reports that these are
// all of their lanes.
func (s *Scheduler) learnScan(ctx context.Context, scan scanPlan, heads map[int][]job.LaneHead, err error, whole bool) {
	if err != nil && context.Cause(ctx) != context.Canceled {
		s.o.Logger.Warn("failed to read due times", "error", err)
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

// learnHeads applies what a rescan read of a shard, of all its lanes or some. Other inputs since its beginning
// may be newer: then a lane's due time only becomes earlier. A pending lane will learn its due time from its
// answer.
func (s *Scheduler) learnHeads(scan int64, id int, heads []job.LaneHead, whole bool, nowMS int64, at time.Time) {
	sh, held := s.shards[id]
	if !held || sh.acquiredInScan >= scan {
		return
	}
	sh.lanesRead = sh.lanesRead || whole
	sh.noteClock(nowMS*1000, at, false)
	listed := make(map[job.Lane]struct{}, len(heads))
	for _, h := range heads {
		listed[h.Lane] = struct{}{}
		l := sh.laneOf(h.Lane)
		due := h.DueMS
		if l.touchedInScan >= scan {
			due = min(due, l.due)
		}
		if due != l.due && !l.isPending() {
			s.setDue(l, due)
		}
	}
	if !whole {
		return
	}
	for _, l := range sh.lanes {
		if _, there := listed[l.key]; !there && l.touchedInScan < scan && !l.isPending() {
			sh.removeFromHeaps(l, &s.backlog)
			sh.dropLane(l)
		}
	}
}
