package queuestats

import (
	"context"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/autoscale"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Store reads the lanes of shards.
type Store interface {
	// DueLanes lists the lanes of shards with a record that is due within some time. With an error it returns the
	// shards that could be read. LanePages lists the lanes of shards from a place on.
	DueLanes(ctx context.Context, shards []int, within time.Duration) (map[int][]job.LaneHead, error)
	LanePages(ctx context.Context, from map[int]job.LaneCursor) (map[int]job.LanePage, error)
	// Stats counts the records of lanes. With an error it returns the shards that could be counted.
	Stats(ctx context.Context, lanes map[int][]job.Lane) (map[int][]job.LaneStat, error)
	// Now is the clock of a shard, in Unix milliseconds.
	Now(ctx context.Context, shard int) (unixtime.Milli, error)
}

// LaneStat has the counts of a lane with the times that follow from them.
type LaneStat struct {
	job.LaneStat
	OldestOverdue time.Duration // age of its oldest due record
	DeadFor       time.Duration // until its first dead letter is deleted
	OldestDead    time.Duration // since the oldest of its first dead letters died
	HasNext       bool          // nothing is due, and something is scheduled
	Next          time.Duration // time until the next scheduled record
}

// shardsPerListing is how many shards one read of the indexes of lanes covers, so that its answer has a bounded size.
const shardsPerListing = 8

// CountLanes counts the records of the wanted lanes of some shards. It fails if one of them cannot be counted.
func CountLanes(ctx context.Context, store Store, shards []int,
	wanted func(job.Lane) bool) (map[int][]LaneStat, error) {
	lanes := make(map[int][]job.Lane, len(shards))
	for _, shard := range shards {
		lanes[shard] = nil
	}
	err := listAllLanes(ctx, store, shards, func(shard int, h job.LaneHead) {
		if wanted(h.Lane) {
			lanes[shard] = append(lanes[shard], h.Lane)
		}
	})
	if err != nil {
		return nil, err
	}
	return countLanes(ctx, store, lanes)
}

// listAllLanes calls visit once for each lane of some shards, however many pages they take.
func listAllLanes(ctx context.Context, store Store, shards []int, visit func(shard int, h job.LaneHead)) error {
	for part := range slices.Chunk(shards, shardsPerListing) {
		from := make(map[int]job.LaneCursor, len(part))
		for _, shard := range part {
			from[shard] = job.LaneCursor{}
		}
		seen := make(map[int]map[job.Lane]struct{}) // of shards with several pages, which overlap
		for len(from) > 0 {
			pages, err := store.LanePages(ctx, from)
			if err != nil {
				return err
			}
			for shard, page := range pages {
				if page.More && seen[shard] == nil {
					seen[shard] = make(map[job.Lane]struct{})
				}
				visitPage(shard, page, seen[shard], visit)
				from[shard] = page.Next
				if !page.More {
					delete(from, shard)
				}
			}
		}
	}
	return nil
}

// visitPage visits the lanes of a page that were not seen before; seen is nil for the only page of a shard.
func visitPage(shard int, page job.LanePage, seen map[job.Lane]struct{}, visit func(shard int, h job.LaneHead)) {
	for _, h := range page.Heads {
		if seen != nil {
			if _, again := seen[h.Lane]; again {
				continue
			}
			seen[h.Lane] = struct{}{}
		}
		visit(shard, h)
	}
}

// countLanes counts the records of lanes. With an error it returns the shards that could be counted.
func countLanes(ctx context.Context, store Store, lanes map[int][]job.Lane) (map[int][]LaneStat, error) {
	counts, failed := store.Stats(ctx, lanes)
	out := make(map[int][]LaneStat, len(counts))
	for shard, list := range counts {
		now, err := store.Now(ctx, shard)
		if err != nil {
			failed = err
			continue
		}
		out[shard] = make([]LaneStat, len(list))
		for i, c := range list {
			out[shard][i] = withTimes(c, now)
		}
	}
	return out, failed
}

// withTimes derives the times of a lane's counts from the clock of its shard.
func withTimes(c job.LaneStat, now unixtime.Milli) LaneStat {
	s := LaneStat{LaneStat: c}
	if c.OldestDueMS > 0 {
		s.OldestOverdue = sinceMS(c.OldestDueMS, now)
	}
	if c.NextDueMS > 0 {
		s.HasNext, s.Next = true, sinceMS(now, c.NextDueMS)
	}
	if c.DeadUntilMS > 0 {
		s.DeadFor = sinceMS(now, c.DeadUntilMS)
	}
	if c.OldestDeadMS > 0 {
		s.OldestDead = sinceMS(c.OldestDeadMS, now)
	}
	return s
}

// sinceMS is the time from one Unix millisecond to a later one; 0 if it is not later.
func sinceMS(from, to unixtime.Milli) time.Duration {
	return max(0, to.Sub(from))
}

// CountSizes counts some queues in all given shards, of all holders, for autoscalers. It returns an error rather than
// a result without a shard, with which an autoscaler would remove workers that are needed.
func CountSizes(ctx context.Context, store Store, shards []int, queues []job.QueueKey,
	paused func(job.QueueKey) bool) (map[job.QueueKey]autoscale.Demand, error) {
	sizes := make(map[job.QueueKey]autoscale.Demand, len(queues))
	for _, q := range queues {
		sizes[q] = autoscale.Demand{}
	}
	stats, err := CountLanes(ctx, store, shards, func(l job.Lane) bool {
		_, wanted := sizes[job.QueueKey{Namespace: l.Namespace, Queue: l.Queue}]
		return wanted
	})
	if err != nil {
		return nil, err
	}
	for _, lanes := range stats {
		for _, s := range lanes {
			key := job.QueueKey{Namespace: s.Lane.Namespace, Queue: s.Lane.Queue}
			sizes[key] = sizes[key].And(s.size(paused(key)))
		}
	}
	return sizes, nil
}

// size is the amount of work in a lane. For a paused queue it is the number of running attempts: workers could not do
// more.
func (s LaneStat) size(paused bool) autoscale.Demand {
	if paused {
		return autoscale.Demand{Running: s.Leased}
	}
	return autoscale.Demand{Waiting: s.Backlog, Running: s.Leased, Lag: s.OldestOverdue, Next: s.Next, Ahead: s.HasNext}
}
