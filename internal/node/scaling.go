package node

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/autoscale"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/queuestats"
)

// watchQueues starts to count queues for autoscalers.
func (n *Node) watchQueues() (err error) {
	n.lookout, err = queuestats.New(queuestats.Options{Count: n.sizes, Logger: n.cfg.Logger, Registerer: n.cfg.Registerer})
	if err == nil {
		n.onStop("autoscalers", func(context.Context) error { n.lookout.Stop(); return nil })
	}
	return err
}

// sizes counts some queues in all shards, whoever holds them: Redis knows of all. An answer
// that lacks a shard would have an autoscaler take workers away that are needed, so there
// is none.
func (n *Node) sizes(ctx context.Context, queues []job.QueueKey) (map[job.QueueKey]autoscale.Size, error) {
	sizes := make(map[job.QueueKey]autoscale.Size, len(queues))
	for _, q := range queues {
		sizes[q] = autoscale.Size{}
	}
	stats, err := laneStats(ctx, n.clientStore, n.allShards(), func(l job.Lane) bool {
		_, wanted := sizes[job.QueueKey{Namespace: l.Namespace, Queue: l.Queue}]
		return wanted
	})
	if err != nil {
		return nil, err
	}
	for _, lanes := range stats {
		for _, s := range lanes {
			key := job.QueueKey{Namespace: s.Lane.Namespace, Queue: s.Lane.Queue}
			sizes[key] = sizes[key].And(n.size(key, s))
		}
	}
	return sizes, nil
}

// size is how much there is to do in a lane of a queue. Of a queue that is paused it is
// what runs: workers could not do more.
func (n *Node) size(q job.QueueKey, s laneStat) autoscale.Size {
	if n.admission.Paused(q) {
		return autoscale.Size{Running: s.Leased}
	}
	return autoscale.Size{Waiting: s.Backlog, Running: s.Leased, Lag: s.overdue, Next: s.next, Ahead: s.ahead}
}
