package node

import (
	"context"
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/telemetry"
)

// countedLanes is about how many lanes are counted in one round, which takes some 10 ms
// of Redis for a thousand. Where there are more, the shards take turns.
const countedLanes = 5000

// queueCounts are the records of the held shards by lane, as each shard was counted last.
// Only statsLoop uses it.
type queueCounts struct {
	shards map[int][]laneStat
	last   int // the shard that was counted last
}

// next drops the shards that are not held any more and chooses those to be counted now,
// beginning after the one that was counted last: as many as have about countedLanes, by
// what is known of them, and one at least.
func (c *queueCounts) next(held []int) []int {
	maps.DeleteFunc(c.shards, func(shard int, _ []laneStat) bool { return !slices.Contains(held, shard) })
	first, _ := slices.BinarySearch(held, c.last+1)
	var chosen []int
	lanes := 0
	for i := range held {
		shard := held[(first+i)%len(held)]
		if lanes += len(c.shards[shard]); lanes > countedLanes && len(chosen) > 0 {
			break
		}
		chosen = append(chosen, shard)
	}
	return chosen
}

// countQueues counts the records of the shards that this node holds.
func (n *Node) countQueues(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	shards := n.counts.next(n.heldShards())
	counts, err := laneStats(ctx, n.store, shards, every)
	if err != nil {
		return // the store logs what is wrong with Redis
	}
	for _, shard := range shards {
		n.counts.shards[shard], n.counts.last = counts[shard], shard
	}
	var queues []telemetry.QueueStat
	for _, lanes := range n.counts.shards {
		for _, s := range lanes {
			queues = append(queues, telemetry.QueueStat{
				Namespace: s.Lane.Namespace, Queue: s.Lane.Queue,
				Backlog: s.Backlog, Scheduled: s.Scheduled, Leased: s.Leased, Paused: s.Paused, Dead: s.Dead, Done: s.Done,
				OldestOverdue: s.overdue, DeadFor: s.deadFor, OldestDead: s.deadAge,
			})
		}
	}
	n.telemetry.SetQueues(queues)
}
