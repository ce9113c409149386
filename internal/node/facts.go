package node

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// JobFacts returns the holder of a shard and the workers of the whole cluster that serve a queue, for the
// explanation of a job. Asked is false if Redis or a node did not answer: missing facts then prove nothing.
func (n *Node) JobFacts(ctx context.Context, shard int, q job.QueueKey) job.Facts {
	f := job.Facts{ClusterKnown: true, Shard: shard}
	lanes, err := n.clientStore.CountLanes(ctx, shard)
	f.Oversized = err == nil && lanes > job.LanesPerRead
	value, err := n.lockConns.Get(ctx, n.store.LockKey(shard)).Result()
	switch {
	case err == nil:
		f.Holder, _, f.Held = shardlock.ParseHolder(value)
	case !errors.Is(err, redis.Nil):
		f.ClusterKnown = false
	}
	for _, m := range (clusterView{n}).describeAll(ctx) {
		if m.Unreachable {
			f.ClusterKnown = false
		}
		for _, w := range m.QueueWorkers {
			if w.Namespace == q.Namespace && w.Queue == q.Queue {
				f.Workers += w.Workers
				f.FreeSlots += int(w.FreeSlots)
			}
		}
	}
	return f
}

// currentTime is the time of a keyspace with a virtual clock, or this node's.
func (n *Node) currentTime() time.Time {
	if n.cfg.Virtual {
		return n.cfg.Now().Time()
	}
	return time.Now()
}
