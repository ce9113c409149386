package queuestats

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/roundrobin"
)

const (
	// maxCountedLanes is the approximate number of lanes counted per round; a thousand lanes take some 10 ms of
	// Redis. If there are more, the shards take turns. Of the other shards only lanes with a backlog are
	// counted, about maxCountedBacklogs, because each takes several times as long.
	maxCountedLanes    = 5000
	maxCountedBacklogs = 2000
	// minNewShardLanes is the minimum estimate of the lanes of a shard that was not counted yet.
	minNewShardLanes = 500
	// listTimeout bounds the listing of lanes, so that after an unreachable server there is time left to count
	// the lanes of the others.
	listTimeout = 2 * time.Second
	// countTimeout bounds the counting of one batch of shards.
	countTimeout = 5 * time.Second
)

// ShardCounts are the latest counts of the shards that this node holds, by lane, for metrics. Large keyspaces are
// counted in several rounds. It is not safe for concurrent use.
type ShardCounts struct {
	listTimeout, countTimeout time.Duration // variable for tests

	store  Store
	shards map[int]map[job.Lane]LaneStat
	passes map[int]*countPass // of the shards with more lanes than one page lists
	// Turns among the counted shards, among the others that have a backlog, and among those never counted.
	countedTurns, backlogTurns, uncountedTurns roundrobin.Picker
}

// NewShardCounts returns counts of no shards yet.
func NewShardCounts(store Store) *ShardCounts {
	return &ShardCounts{
		listTimeout: listTimeout, countTimeout: countTimeout,
		store: store, shards: make(map[int]map[job.Lane]LaneStat), passes: make(map[int]*countPass),
	}
}

// Update counts some or all of the held shards, and reports whether any count was updated. Shards that were
// never counted come first, all of them: until then their queues look too small.
func (c *ShardCounts) Update(ctx context.Context, held []int) (updated bool) {
	before := len(c.shards)
	maps.DeleteFunc(c.shards, func(shard int, _ map[job.Lane]LaneStat) bool { return !slices.Contains(held, shard) })
	maps.DeleteFunc(c.passes, func(shard int, _ *countPass) bool { return c.shards[shard] == nil })
	known := slices.Sorted(maps.Keys(c.shards))
	updated = len(known) < before
	updated = c.countNew(ctx, held) || updated
	if len(known) > 0 {
		now, later := c.countedTurns.Pick(known, maxCountedLanes,
			func(shard int) int { return min(len(c.shards[shard]), maxCountedLanes) })
		updated = c.countShards(ctx, now) || updated
		updated = c.countBacklog(ctx, later) || updated
	}
	return updated
}

// countNew counts the held shards that were never counted, in batches. If one round is not enough, the counts of
// the finished batches stay.
func (c *ShardCounts) countNew(ctx context.Context, held []int) (updated bool) {
	ctx, cancel := context.WithTimeout(ctx, c.countTimeout)
	defer cancel()
	left := slices.DeleteFunc(slices.Clone(held), func(shard int) bool { return c.shards[shard] != nil })
	for len(left) > 0 && ctx.Err() == nil {
		var now []int
		now, left = c.uncountedTurns.Pick(left, maxCountedLanes, c.expectedLanes)
		slices.Sort(left)
		updated = c.countShards(ctx, now) || updated
	}
	return updated
}

// expectedLanes estimates the number of lanes of a shard that was not counted yet: as many as the others. The
// first one is counted alone.
func (c *ShardCounts) expectedLanes(int) int {
	if len(c.shards) == 0 {
		return maxCountedLanes
	}
	lanes := 0
	for _, counted := range c.shards {
		lanes += len(counted)
	}
	return max(lanes/len(c.shards), minNewShardLanes)
}

// countShards counts all lanes of shards, or the next page of them. Shards that cannot be read keep their counts.
func (c *ShardCounts) countShards(ctx context.Context, shards []int) (updated bool) {
	listing, cancel := context.WithTimeout(ctx, c.listTimeout)
	defer cancel()
	from := make(map[int]job.LaneCursor, len(shards))
	for _, shard := range shards {
		from[shard] = job.LaneCursor{}
		if p := c.passes[shard]; p != nil {
			from[shard] = p.next
		}
	}
	pages, _ := c.store.LanePages(listing, from) // the store logs errors of Redis
	lanes := make(map[int][]job.Lane, len(pages))
	for shard, page := range pages {
		lanes[shard] = make([]job.Lane, len(page.Heads))
		for i, h := range page.Heads {
			lanes[shard][i] = h.Lane
		}
	}
	for shard, stats := range c.updateLanes(ctx, lanes) {
		updated = true
		c.addPage(shard, pages[shard], stats)
	}
	return updated
}

// countPass is a count of the lanes of a shard, one page in each of its turns.
type countPass struct {
	next    job.LaneCursor
	counted map[job.Lane]struct{}
}

// addPage adds the counts of a page of a shard's lanes. The last page of a pass removes the lanes that were in none.
func (c *ShardCounts) addPage(shard int, page job.LanePage, stats []LaneStat) {
	p := c.passes[shard]
	if c.shards[shard] == nil || p == nil && !page.More {
		c.shards[shard] = make(map[job.Lane]LaneStat, len(stats))
	}
	for _, s := range stats {
		c.shards[shard][s.Lane] = s
	}
	if p == nil && !page.More {
		return
	}
	if p == nil {
		p = &countPass{counted: make(map[job.Lane]struct{}, len(stats))}
		c.passes[shard] = p
	}
	for _, s := range stats {
		p.counted[s.Lane] = struct{}{}
	}
	p.next = page.Next
	if page.More {
		return
	}
	delete(c.passes, shard)
	maps.DeleteFunc(c.shards[shard], func(l job.Lane, _ LaneStat) bool {
		_, counted := p.counted[l]
		return !counted
	})
}

// countBacklog counts the lanes of shards with due records, now or when they were last counted. If there are too
// many, the shards take turns.
func (c *ShardCounts) countBacklog(ctx context.Context, shards []int) (updated bool) {
	if len(shards) == 0 {
		return false
	}
	listing, cancel := context.WithTimeout(ctx, c.listTimeout)
	defer cancel()
	heads, _ := c.store.DueLanes(listing, shards, 0)
	lanes := make(map[int][]job.Lane, len(heads))
	for shard, due := range heads {
		lanes[shard] = c.backlogLanes(shard, due)
	}
	_, later := c.backlogTurns.Pick(slices.Sorted(maps.Keys(lanes)), maxCountedBacklogs,
		func(shard int) int { return len(lanes[shard]) })
	for _, shard := range later {
		delete(lanes, shard)
	}
	for shard, stats := range c.updateLanes(ctx, lanes) {
		updated = true
		for _, s := range stats {
			c.shards[shard][s.Lane] = s
		}
	}
	return updated
}

// HasBacklog reports whether any lane had a due record when it was last counted.
func (c *ShardCounts) HasBacklog() bool {
	for _, lanes := range c.shards {
		for _, s := range lanes {
			if s.Backlog > 0 {
				return true
			}
		}
	}
	return false
}

// backlogLanes are the lanes of a shard that have a backlog now or had one.
func (c *ShardCounts) backlogLanes(shard int, due []job.LaneHead) []job.Lane {
	lanes := make(map[job.Lane]struct{}, len(due))
	for _, h := range due {
		lanes[h.Lane] = struct{}{}
	}
	for lane, s := range c.shards[shard] {
		if s.Backlog > 0 {
			lanes[lane] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(lanes))
}

// updateLanes counts lanes of the shards that can be read.
func (c *ShardCounts) updateLanes(ctx context.Context, lanes map[int][]job.Lane) map[int][]LaneStat {
	ctx, cancel := context.WithTimeout(ctx, c.countTimeout)
	defer cancel()
	counts, _ := countLanes(ctx, c.store, lanes)
	return counts
}

// Lanes are the latest counts of all lanes of the held shards.
func (c *ShardCounts) Lanes() iter.Seq[LaneStat] {
	return func(yield func(LaneStat) bool) {
		for _, lanes := range c.shards {
			for _, s := range lanes {
				if !yield(s) {
					return
				}
			}
		}
	}
}
