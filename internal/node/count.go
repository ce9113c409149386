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
	// countedLanes is about how many lanes are counted at a time, which takes some 10 ms
	// of Redis for a thousand. Where there are more, the shards take turns, and of the
	// others those lanes are counted that have a backlog, which takes several times as
	// long for each: about countedBacklogs.
	countedLanes    = 5000
	countedBacklogs = 2000
	// newShardLanes is how many lanes a shard is taken to have at least that was not
	// counted yet.
	newShardLanes = 500
	// listTimeout bounds the listing of lanes that are to be counted: a server that is
	// away leaves time to count what the others have.
	listTimeout = 2 * time.Second
)

// queueCounts are the records of the held shards by lane, as each lane was counted last.
// Only statsLoop uses it.
type queueCounts struct {
	store  *redisstore.Store
	shards map[int]map[job.Lane]laneStat
	// Whose turn it is: of the shards that were counted, of those with a backlog among
	// the others, of those that were never counted.
	counted, waiting, uncounted roundrobin.Turns
}

func newQueueCounts(store *redisstore.Store) queueCounts {
	return queueCounts{store: store, shards: make(map[int]map[job.Lane]laneStat)}
}

// countQueues counts the records of the shards that this node holds.
func (n *Node) countQueues(ctx context.Context) {
	if n.counts.round(ctx, n.heldShards()) {
		n.telemetry.SetQueues(n.counts.queues(n.admission.Paused))
	}
}

// round counts the held shards, or some of them, and tells whether there is anything new.
// Those that were never counted come first, all of them: their queues would look smaller
// than they are.
func (c *queueCounts) round(ctx context.Context, held []int) (news bool) {
	before := len(c.shards)
	maps.DeleteFunc(c.shards, func(shard int, _ map[job.Lane]laneStat) bool { return !slices.Contains(held, shard) })
	known := slices.Sorted(maps.Keys(c.shards))
	news = len(known) < before
	news = c.countNew(ctx, held) || news
	if len(known) > 0 {
		now, later := c.counted.Take(known, countedLanes, func(shard int) int { return len(c.shards[shard]) })
		news = c.countShards(ctx, now) || news
		news = c.countBacklog(ctx, later) || news
	}
	return news
}

// countNew counts those of the held shards that were never counted, some at a time: what
// could be counted stays, if not all can be in one round.
func (c *queueCounts) countNew(ctx context.Context, held []int) (news bool) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	left := slices.DeleteFunc(slices.Clone(held), func(shard int) bool { return c.shards[shard] != nil })
	for len(left) > 0 && ctx.Err() == nil {
		var now []int
		now, left = c.uncounted.Take(left, countedLanes, c.expected)
		slices.Sort(left)
		news = c.countShards(ctx, now) || news
	}
	return news
}

// expected is about how many lanes a shard has that was not counted yet: as many as the
// others. The first one is counted alone.
func (c *queueCounts) expected(int) int {
	if len(c.shards) == 0 {
		return countedLanes
	}
	lanes := 0
	for _, counted := range c.shards {
		lanes += len(counted)
	}
	return max(lanes/len(c.shards), newShardLanes)
}

// countShards counts all lanes of shards. Those that cannot be read stay as they were.
func (c *queueCounts) countShards(ctx context.Context, shards []int) (news bool) {
	listing, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	heads, _ := c.store.Lanes(listing, shards) // the store logs what is wrong with Redis
	for shard, stats := range c.count(ctx, lanesOf(heads, every)) {
		news = true
		c.shards[shard] = make(map[job.Lane]laneStat, len(stats))
		for _, s := range stats {
			c.shards[shard][s.Lane] = s
		}
	}
	return news
}

// countBacklog counts those lanes of shards in which something is due, or was when they
// were counted last. Where they are too many, the shards take turns.
func (c *queueCounts) countBacklog(ctx context.Context, shards []int) (news bool) {
	if len(shards) == 0 {
		return false
	}
	listing, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	heads, _ := c.store.DueLanes(listing, shards, 0)
	lanes := make(map[int][]job.Lane, len(heads))
	for shard, due := range heads {
		lanes[shard] = c.waitingLanes(shard, due)
	}
	_, later := c.waiting.Take(slices.Sorted(maps.Keys(lanes)), countedBacklogs, func(shard int) int { return len(lanes[shard]) })
	for _, shard := range later {
		delete(lanes, shard)
	}
	for shard, stats := range c.count(ctx, lanes) {
		news = true
		for _, s := range stats {
			c.shards[shard][s.Lane] = s
		}
	}
	return news
}

// anyWaits reports whether a record was due when its lane was counted last.
func (c *queueCounts) anyWaits() bool {
	for _, lanes := range c.shards {
		for _, s := range lanes {
			if s.Backlog > 0 {
				return true
			}
		}
	}
	return false
}

// waitingLanes are those lanes of a shard that have a backlog, or had one.
func (c *queueCounts) waitingLanes(shard int, due []job.LaneHead) []job.Lane {
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

// count counts lanes, of those shards that can be read.
func (c *queueCounts) count(ctx context.Context, lanes map[int][]job.Lane) map[int][]laneStat {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	counts, _ := countLanes(ctx, c.store, lanes)
	return counts
}

// queues are all that was counted.
func (c *queueCounts) queues(paused func(job.QueueKey) bool) []telemetry.QueueStat {
	var queues []telemetry.QueueStat
	for _, lanes := range c.shards {
		for _, s := range lanes {
			queues = append(queues, telemetry.QueueStat{
				Namespace: s.Lane.Namespace, Queue: s.Lane.Queue,
				Backlog: s.Backlog, Scheduled: s.Scheduled, Leased: s.Leased, Paused: s.Paused, Dead: s.Dead, Done: s.Done,
				Overdue: s.Overdue, OldestOverdue: s.overdue, DeadFor: s.deadFor, OldestDead: s.deadAge,
				QueuePaused: paused(job.QueueKey{Namespace: s.Lane.Namespace, Queue: s.Lane.Queue}),
			})
		}
	}
	return queues
}
