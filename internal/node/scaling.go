package node

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/autoscale"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/queuestats"
)

// watchQueues starts to count queues for autoscalers.
func (n *Node) watchQueues() (err error) {
	n.lookout, err = queuestats.New(queuestats.Options{Count: n.queueSizes, Logger: n.cfg.Logger,
		Registerer: n.cfg.Registerer})
	if err == nil {
		n.addCleanup("autoscalers", func(context.Context) error { n.lookout.Stop(); return nil })
	}
	return err
}

// queueSizes counts some queues in all shards, of all holders, from Redis. It returns an error rather than a
// result without a shard, with which an autoscaler would remove workers that are needed.
func (n *Node) queueSizes(ctx context.Context, queues []job.QueueKey) (map[job.QueueKey]autoscale.Size, error) {
	sizes := make(map[job.QueueKey]autoscale.Size, len(queues))
	for _, q := range queues {
		sizes[q] = autoscale.Size{}
	}
	stats, err := countShardLanes(ctx, n.clientStore, n.allShards(), func(l job.Lane) bool {
		_, wanted := sizes[job.QueueKey{Namespace: l.Namespace, Queue: l.Queue}]
		return wanted
	})
	if err != nil {
		return nil, err
	}
	for _, lanes := range stats {
		for _, s := range lanes {
			key := job.QueueKey{Namespace: s.Lane.Namespace, Queue: s.Lane.Queue}
			sizes[key] = sizes[key].And(n.laneSize(key, s))
		}
	}
	return sizes, nil
}

// laneSize is the amount of work in a lane of a queue. For a paused queue it is the number of running attempts:
// workers could not do more.
func (n *Node) laneSize(q job.QueueKey, s laneStat) autoscale.Size {
	if n.admission.Paused(q) {
		return autoscale.Size{Running: s.Leased}
	}
	return autoscale.Size{Waiting: s.Backlog, Running: s.Leased, Lag: s.overdue, Next: s.next, Ahead: s.scheduled}
}
