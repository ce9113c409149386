package queuestats

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/autoscale"
	"github.com/fermata-io/fermata/internal/core/job"
)

// Store reads the lanes of shards.
type Store interface {
	// Lanes lists all lanes of shards, DueLanes those with a record that is due within some time. With an error
	// they return the shards that could be read. LanePages lists part of the lanes, however many there are.
	Lanes(ctx context.Context, shards []int) (map[int][]job.LaneHead, error)
	DueLanes(ctx context.Context, shards []int, within time.Duration) (map[int][]job.LaneHead, error)
	LanePages(ctx context.Context, from map[int]job.LaneCursor) (map[int]job.LanePage, error)
	// Stats counts the records of lanes. With an error it returns the shards that could be counted.
	Stats(ctx context.Context, lanes map[int][]job.Lane) (map[int][]job.LaneStat, error)
	// Now is the clock of a shard, in Unix milliseconds.
	Now(ctx context.Context, shard int) (int64, error)
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

// AnyLane selects all lanes.
func AnyLane(job.Lane) bool { return true }

// CountLanes counts the records of the wanted lanes of some shards. It fails if one of them cannot be counted.
func CountLanes(ctx context.Context, store Store, shards []int,
	wanted func(job.Lane) bool) (map[int][]LaneStat, error) {
	heads, err := store.Lanes(ctx, shards)
	if err != nil {
		return nil, err
	}
	return countLanes(ctx, store, selectLanes(heads, wanted))
}

// selectLanes returns the wanted lanes of every listed shard.
func selectLanes(heads map[int][]job.LaneHead, wanted func(job.Lane) bool) map[int][]job.Lane {
	lanes := make(map[int][]job.Lane, len(heads))
	for shard, list := range heads {
		lanes[shard] = nil
		for _, h := range list {
			if wanted(h.Lane) {
				lanes[shard] = append(lanes[shard], h.Lane)
			}
		}
	}
	return lanes
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
func withTimes(c job.LaneStat, now int64) LaneStat {
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
func sinceMS(from, to int64) time.Duration {
	return time.Duration(max(0, to-from)) * time.Millisecond
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
