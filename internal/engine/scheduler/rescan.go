package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
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
// for lost notifications of free slots. Due lanes, and the lanes of oversized shards that have workers, are read
// concurrently with the rest: a server that is down may take all of its time.
func (s *Scheduler) rescan(ctx context.Context, all bool) {
	scan := s.beginScan(all)
	if len(scan.listed) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	var others sync.WaitGroup
	if len(scan.due) > 0 {
		others.Go(func() {
			heads, err := s.o.Store.DueLanes(ctx, scan.due, dueWithinPeriods*s.o.Rescan)
			s.learnDue(ctx, scan, heads, err)
		})
	}
	others.Go(func() { s.lookUpLanes(ctx, scan.number, scan.oversized) })
	pages, err := s.o.Store.LanePages(ctx, scan.from)
	s.lookUpLanes(ctx, scan.number, s.learnPages(ctx, scan, pages, err))
	others.Wait()
	s.updateLaneMetrics()
}

// scanPlan is one rescan.
type scanPlan struct {
	number int64
	listed []int                  // shards whose next page of all lanes is read
	from   map[int]job.LaneCursor // where the page begins
	due    []int                  // shards whose due lanes are read
	// oversized are shards with more lanes than one page lists: the lanes of queues that have workers are looked up.
	oversized []int
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
			out.listed = append(out.listed, id)
		case all:
			known = append(known, id)
			if sh.oversized {
				out.oversized = append(out.oversized, id)
			}
		}
	}
	slices.Sort(known)
	lanesOf := func(id int) int { return min(len(s.shards[id].lanes), listedLanes) }
	listed, due := s.scanTurns.Pick(known, listedLanes, lanesOf)
	out.listed = append(out.listed, listed...)
	out.due = slices.DeleteFunc(due, func(id int) bool { return s.shards[id].oversized })
	out.from = make(map[int]job.LaneCursor, len(out.listed))
	for _, id := range out.listed {
		out.from[id] = s.shards[id].nextPage
	}
	return out
}

// learnDue applies what was read of the due lanes of shards, and wakes a leaser for what is due.
func (s *Scheduler) learnDue(ctx context.Context, scan scanPlan, heads map[int][]job.LaneHead, err error) {
	s.logUnread(ctx, err)
	for id, lanes := range heads {
		s.withShard(ctx, id, func(sh *shard, nowMS unixtime.Milli) {
			if s.learnHeads(scan.number, id, lanes, nowMS, time.Now()) && len(lanes) >= job.LanesPerRead {
				s.markOversized(sh)
			}
		})
	}
	s.wakeLeaser()
}

// learnPages applies the pages that were read of shards, and wakes a leaser for what is due. It returns the shards
// that proved to be oversized.
func (s *Scheduler) learnPages(ctx context.Context, scan scanPlan,
	pages map[int]job.LanePage, err error) (found []int) {
	s.logUnread(ctx, err)
	for id, page := range pages {
		s.withShard(ctx, id, func(sh *shard, nowMS unixtime.Milli) {
			before := sh.oversized
			if s.learnHeads(scan.number, id, page.Heads, nowMS, time.Now()) {
				s.endPage(scan.number, sh, scan.from[id], page)
			}
			if sh.oversized && !before {
				found = append(found, id)
			}
		})
	}
	s.wakeLeaser()
	return found
}

func (s *Scheduler) logUnread(ctx context.Context, err error) {
	if err != nil && context.Cause(ctx) != context.Canceled {
		s.o.Logger.Warn("failed to read due times", "error", err)
	}
}

func (s *Scheduler) wakeLeaser() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake.Signal()
}

// withShard calls f under the lock with a shard, if it is held and its clock is known.
func (s *Scheduler) withShard(ctx context.Context, id int, f func(sh *shard, nowMS unixtime.Milli)) {
	nowMS, err := s.o.Store.Now(ctx, id)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh, held := s.shards[id]; held {
		f(sh, nowMS)
	}
}

// learnHeads applies what a rescan read of lanes of a shard. Other inputs since its beginning may be newer: then
// a lane's due time only becomes earlier. A pending lane will learn its due time from its answer. It returns false
// if the shard was acquired later.
func (s *Scheduler) learnHeads(scan int64, id int, heads []job.LaneHead, nowMS unixtime.Milli, at time.Time) bool {
	sh, held := s.shards[id]
	if !held || sh.acquiredInScan >= scan {
		return false
	}
	sh.noteClock(clockReading{nowMS.Micro(), at, s.clockLag(id)}, false)
	for _, h := range heads {
		l := sh.laneOf(h.Lane)
		l.listedInScan = max(l.listedInScan, scan)
		due := h.DueMS
		if l.touchedInScan >= scan {
			due = min(due, l.due)
		}
		if due != l.due && !l.isPending() {
			s.setDue(l, due)
		}
	}
	return true
}
