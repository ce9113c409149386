package scheduler

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// A shard may have more lanes than one page lists. Such a shard is oversized. Its lanes are read in two ways:
//
//   - In turns, page by page. A pass over all lanes takes as many periods as listedLanes fits into the number of
//     lanes. It also finds the lanes of queues without workers, in which leases may have ended.
//   - By name, in each period, those of queues that have workers. So a lane with a worker is found within a period or
//     a few, however many lanes of other queues are due before it.
//
// A known lane is dropped only if one read listed all lanes without it, or if a lookup by name did not find it.

// lookedUpLanes is about how many lanes are looked up by name in one period; the oversized shards have equal
// shares, and in each shard the queues take turns.
const lookedUpLanes = 50_000

const priorities = job.MaxPriority + 1

// endPage notes that a page of the shard was read and applied, and drops lanes that do not exist any more.
func (s *Scheduler) endPage(scan int64, sh *shard, from job.LaneCursor, page job.LanePage) {
	sh.lanesRead = true
	first := from == job.LaneCursor{}
	if first && !page.More {
		if sh.oversized {
			s.o.Logger.Info("shard has no more lanes than one read lists", "shard", sh.id, "lanes", len(page.Heads))
		}
		sh.oversized, sh.nextPage, sh.unlisted = false, job.LaneCursor{}, nil
		for _, l := range sh.lanes {
			if l.listedInScan < scan {
				s.dropUnlessNewer(scan, l)
			}
		}
		return
	}
	if first {
		sh.passBegan = scan
		s.markOversized(sh)
	}
	sh.nextPage = page.Next
	if page.More {
		return
	}
	sh.nextPage = job.LaneCursor{}
	for _, l := range sh.lanes {
		if l.listedInScan < sh.passBegan && l.touchedInScan < sh.passBegan && !l.isPending() {
			sh.unlisted = append(sh.unlisted, l.key)
		}
	}
}

// markOversized notes that a shard has more lanes than one page lists.
func (s *Scheduler) markOversized(sh *shard) {
	if !sh.oversized {
		sh.oversized = true
		s.o.Logger.Warn("shard has more lanes than one read lists, reading lanes of queues without workers in turns",
			"shard", sh.id, "listed", job.LanesPerRead)
	}
}

// dropUnlessNewer drops a lane that a rescan did not find, unless there is newer information about it.
func (s *Scheduler) dropUnlessNewer(scan int64, l *lane) {
	if l.touchedInScan < scan && !l.isPending() {
		l.shard.removeFromHeaps(l, &s.backlog)
		l.shard.dropLane(l)
	}
}

// lookUpLanes looks up lanes of oversized shards by name: those of queues that have workers, and those that a pass
// did not list.
func (s *Scheduler) lookUpLanes(ctx context.Context, scan int64, shards []int) {
	if len(shards) == 0 {
		return
	}
	asked := s.lanesToLookUp(shards)
	if len(asked) == 0 {
		return
	}
	found, err := s.o.Store.FindLanes(ctx, asked)
	s.logUnread(ctx, err)
	for id, heads := range found {
		s.withShard(ctx, id, func(sh *shard, nowMS unixtime.Milli) {
			if !s.learnHeads(scan, id, heads, nowMS, time.Now()) {
				return
			}
			for _, key := range asked[id] {
				if l, known := sh.lanes[key]; known && l.listedInScan < scan {
					s.dropUnlessNewer(scan, l)
				}
			}
		})
	}
	s.wakeLeaser()
}

// lanesToLookUp chooses lanes of each shard: of queues that have workers, by turns, and of those that the last pass
// did not list.
func (s *Scheduler) lanesToLookUp(shards []int) map[int][]job.Lane {
	queues := s.o.Slots.Queues()
	s.mu.Lock()
	defer s.mu.Unlock()
	queues = s.servedQueues(queues)
	share := max(lookedUpLanes/len(shards), priorities)
	asked := make(map[int][]job.Lane, len(shards))
	for _, id := range shards {
		sh, held := s.shards[id]
		if !held {
			continue
		}
		var lanes []job.Lane
		for _, q := range sh.nextServed(queues, share/priorities) {
			for p := range uint8(priorities) {
				lanes = append(lanes, job.Lane{Namespace: q.Namespace, Queue: q.Queue, Priority: p})
			}
		}
		n := min(share, len(sh.unlisted))
		lanes = append(lanes, sh.unlisted[:n]...)
		sh.unlisted = sh.unlisted[n:]
		if len(lanes) > 0 {
			asked[id] = lanes
		}
	}
	return asked
}

// nextServed returns the next n queues of a sorted list, by turns.
func (sh *shard) nextServed(queues []job.QueueKey, n int) []job.QueueKey {
	if len(queues) <= n {
		return queues
	}
	first, _ := slices.BinarySearchFunc(queues, sh.nextQueue, compareQueues)
	queues = append(slices.Clone(queues[first:]), queues[:first]...)
	sh.nextQueue = queues[n]
	return queues[:n]
}

func compareQueues(a, b job.QueueKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Queue, b.Queue))
}

// servedQueues adds the queues that peers serve to those of this node's workers, and sorts them. The caller holds mu.
func (s *Scheduler) servedQueues(own []job.QueueKey) []job.QueueKey {
	queues := slices.Clone(own)
	for _, demands := range s.peerQueues {
		for _, d := range demands {
			queues = append(queues, job.QueueKey{Namespace: d.Namespace, Queue: d.Queue})
		}
	}
	slices.SortFunc(queues, compareQueues)
	return slices.Compact(queues)
}

// updateLaneMetrics counts the known lanes and the oversized shards.
func (s *Scheduler) updateLaneMetrics() {
	s.mu.Lock()
	defer s.mu.Unlock()
	lanes, oversized := 0, 0
	for _, sh := range s.shards {
		lanes += len(sh.lanes)
		if sh.oversized {
			oversized++
		}
	}
	s.metrics.lanes.Set(float64(lanes))
	s.metrics.oversizedShards.Set(float64(oversized))
}
