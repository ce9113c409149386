package node

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/autoscale"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/queuestats"
	"github.com/fermata-io/fermata/internal/observe/telemetry"
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

// queueSizes counts some queues in the whole cluster.
func (n *Node) queueSizes(ctx context.Context, queues []job.QueueKey) (map[job.QueueKey]autoscale.Demand, error) {
	return queuestats.CountSizes(ctx, n.clientStore, n.allShards(), queues, n.admission.Paused)
}

// countQueues counts the records of the shards that this node holds, for its metrics.
func (n *Node) countQueues(ctx context.Context) {
	if !n.counts.Update(ctx, n.heldShards()) {
		return
	}
	var queues []telemetry.QueueSize
	for s := range n.counts.Lanes() {
		queues = append(queues, telemetry.QueueSize{
			Namespace: s.Lane.Namespace, Queue: s.Lane.Queue,
			Backlog: s.Backlog, Scheduled: s.Scheduled, Leased: s.Leased, Paused: s.Paused, Dead: s.Dead, Done: s.Done,
			Overdue: s.Overdue, OldestOverdue: s.OldestOverdue, DeadFor: s.DeadFor, OldestDead: s.OldestDead,
			QueuePaused: n.admission.Paused(job.QueueKey{Namespace: s.Lane.Namespace, Queue: s.Lane.Queue}),
		})
	}
	n.telemetry.SetQueues(queues)
}
