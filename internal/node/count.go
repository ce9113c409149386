package node

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/roundrobin"
	"github.com/fermata-io/fermata/internal/observe/telemetry"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
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
)

// queueCounts are the latest counts of the held shards by lane. Only statsLoop uses it.
type queueCounts struct {
	store  *redisstore.Store
	shards map[int]map[job.Lane]laneStat
	passes map[int]*countPass // of the shards with more lanes than one page lists
	// Turns among the counted shards, among the others that have a backlog, and among those never counted.
	countedTurns, backlogTurns, uncountedTurns roundrobin.Turns
}

func newQueueCounts(store *redisstore.Store) queueCounts {
	return queueCounts{store: store, shards: make(map[int]map[job.Lane]laneStat), passes: make(map[int]*countPass)}
}

// countPass is a count of the lanes of a shard, one page in each of its turns.
type countPass struct {
	next    job.LaneCursor
	counted map[job.Lane]struct{}
}

// countQueues counts the records of the shards that this node holds.
func (n *Node) countQueues(ctx context.Context) {
	if n.counts.countRound(ctx, n.heldShards()) {
		n.telemetry.SetQueues(n.counts.queueStats(n.admission.Paused))
	}
}

// countRound counts some or all of the held shards, and reports whether any count was updated. Shards that were
// never counted come first, all of them: until then their queues look too small.
func (c *queueCounts) countRound(ctx context.Context, held []int) (updated bool) {
	before := len(c.shards)
	maps.DeleteFunc(c.shards, func(shard int, _ map[job.Lane]laneStat) bool { return !slices.Contains(held, shard) })
	maps.DeleteFunc(c.passes, func(shard int, _ *countPass) bool { return c.shards[shard] == nil })
	known := slices.Sorted(maps.Keys(c.shards))
	updated = len(known) < before
	updated = c.countNew(ctx, held) || updated
	if len(known) > 0 {
		now, later := c.countedTurns.Take(known, maxCountedLanes,
			func(shard int) int { return min(len(c.shards[shard]), maxCountedLanes) })
		updated = c.countShards(ctx, now) || updated
		updated = c.countBacklog(ctx, later) || updated
	}
	return updated
}

// countNew counts the held shards that were never counted, in batches. If one round is not enough, the counts of
// the finished batches stay.
func (c *queueCounts) countNew(ctx context.Context, held []int) (updated bool) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	left := slices.DeleteFunc(slices.Clone(held), func(shard int) bool { return c.shards[shard] != nil })
	for len(left) > 0 && ctx.Err() == nil {
		var now []int
		now, left = c.uncountedTurns.Take(left, maxCountedLanes, c.expectedLanes)
		slices.Sort(left)
		updated = c.countShards(ctx, now) || updated
	}
	return updated
}

// expectedLanes estimates the number of lanes of a shard that was not counted yet: as many as the others. The
// first one is counted alone.
func (c *queueCounts) expectedLanes(int) int {
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
func (c *queueCounts) countShards(ctx context.Context, shards []int) (updated bool) {
	listing, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	from := make(map[int]job.LaneCursor, len(shards))
	for _, shard := range shards {
		from[shard] = job.LaneCursor{}
		if p := c.passes[shard]; p != nil {
			from[shard] = p.next
		}
	}
	pages, _ := c.store.LanePages(listing, from) // the store logs errors of Redis
	heads := make(map[int][]job.LaneHead, len(pages))
	for shard, page := range pages {
		heads[shard] = page.Heads
	}
	for shard, stats := range c.updateLanes(ctx, selectLanes(heads, anyLane)) {
		updated = true
		c.addPage(shard, pages[shard], stats)
	}
	return updated
}

// addPage adds the counts of a page of a shard's lanes. The last page of a pass removes the lanes that were in none.
func (c *queueCounts) addPage(shard int, page job.LanePage, stats []laneStat) {
	p := c.passes[shard]
	if c.shards[shard] == nil || p == nil && !page.More {
		c.shards[shard] = make(map[job.Lane]laneStat, len(stats))
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
	maps.DeleteFunc(c.shards[shard], func(l job.Lane, _ laneStat) bool {
		_, counted := p.counted[l]
		return !counted
	})
}

// countBacklog counts the lanes of shards with due records, now or when they were last counted. If there are too
// many, the shards take turns.
func (c *queueCounts) countBacklog(ctx context.Context, shards []int) (updated bool) {
	if len(shards) == 0 {
		return false
	}
	listing, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	heads, _ := c.store.DueLanes(listing, shards, 0)
	lanes := make(map[int][]job.Lane, len(heads))
	for shard, due := range heads {
		lanes[shard] = c.backlogLanes(shard, due)
	}
	_, later := c.backlogTurns.Take(slices.Sorted(maps.Keys(lanes)), maxCountedBacklogs,
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

// hasBacklog reports whether any lane had a due record when it was last counted.
func (c *queueCounts) hasBacklog() bool {
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
func (c *queueCounts) backlogLanes(shard int, due []job.LaneHead) []job.Lane {
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
func (c *queueCounts) updateLanes(ctx context.Context, lanes map[int][]job.Lane) map[int][]laneStat {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	counts, _ := countLanes(ctx, c.store, lanes)
	return counts
}

// queueStats are the counts of all queues.
func (c *queueCounts) queueStats(paused func(job.QueueKey) bool) []telemetry.QueueStat {
	var queues []telemetry.QueueStat
	for _, lanes := range c.shards {
		for _, s := range lanes {
			queues = append(queues, telemetry.QueueStat{
				Namespace: s.Lane.Namespace, Queue: s.Lane.Queue,
				Backlog: s.Backlog, Scheduled: s.Scheduled, Leased: s.Leased, Paused: s.Paused, Dead: s.Dead,
				Done:    s.Done,
				Overdue: s.Overdue, OldestOverdue: s.overdue, DeadFor: s.deadFor, OldestDead: s.deadAge,
				QueuePaused: paused(job.QueueKey{Namespace: s.Lane.Namespace, Queue: s.Lane.Queue}),
			})
		}
	}
	return queues
}
