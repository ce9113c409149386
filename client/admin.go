package client

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Admin has the calls of operators: nodes, shards, workers, limits of queues, backups, webhooks and the audit
// trail. It uses the connections and the namespace of its client.
type Admin struct{ c *Client }

// Admin returns the calls of operators.
func (c *Client) Admin() Admin { return Admin{c} }

// Nodes returns the members of the cluster.
func (a Admin) Nodes(ctx context.Context) ([]*Node, error) {
	members, _, err := a.NodesWithLost(ctx)
	return members, err
}

// NodesWithLost returns the members of the cluster, and the nodes that disappeared within the last ten minutes without
// leaving, as far as the node that answers has seen it.
func (a Admin) NodesWithLost(ctx context.Context) (members []*Node, lost []*LostNode, err error) {
	r, err := callWithRetry(ctx, a.c, a.c.cluster.ListNodes, &fermatav1.ListNodesRequest{})
	return r.GetNodes(), r.GetLostNodes(), err
}

// Shards returns the shards with their owners.
func (a Admin) Shards(ctx context.Context) ([]*Shard, error) {
	r, err := callWithRetry(ctx, a.c, a.c.cluster.ListShards, &fermatav1.ListShardsRequest{})
	return r.GetShards(), err
}

// Workers returns the connected workers.
func (a Admin) Workers(ctx context.Context) ([]*Worker, error) {
	r, err := callWithRetry(ctx, a.c, a.c.cluster.ListWorkers, &fermatav1.ListWorkersRequest{})
	return r.GetWorkers(), err
}

// CheckShardOptions configure [Admin.CheckShard].
type CheckShardOptions struct {
	// Repair also repairs what can be repaired without loss.
	Repair bool
}

// CheckShard checks the stored data of a shard for consistency.
func (a Admin) CheckShard(ctx context.Context, shard int, o CheckShardOptions) (*ShardCheck, error) {
	return callWithRetry(ctx, a.c, a.c.cluster.CheckShard,
		&fermatav1.CheckShardRequest{Shard: int32(shard), Repair: o.Repair})
}

// Namespaces returns the namespaces that the caller may see, with their sizes and quotas.
func (a Admin) Namespaces(ctx context.Context) ([]*Namespace, error) {
	r, err := callWithRetry(ctx, a.c, a.c.cluster.ListNamespaces, &fermatav1.ListNamespacesRequest{})
	return r.GetNamespaces(), err
}

// QueuesOptions configure [Admin.Queues].
type QueuesOptions struct {
	// AllNamespaces selects the queues of all namespaces, instead of the client's namespace.
	AllNamespaces bool
}

// Queues returns the queues with their backlog.
func (a Admin) Queues(ctx context.Context, o QueuesOptions) ([]*Queue, error) {
	r, err := callWithRetry(ctx, a.c, a.c.cluster.ListQueues,
		&fermatav1.ListQueuesRequest{Parent: a.c.listParent(o.AllNamespaces)})
	return r.GetQueues(), err
}

// QueueSettings returns the limits of a queue and whether it is paused. Unset limits are zero.
func (a Admin) QueueSettings(ctx context.Context, queue string) (*QueueSettings, error) {
	return callWithRetry(ctx, a.c, a.c.jobs.GetQueueSettings,
		&fermatav1.GetQueueSettingsRequest{Name: a.c.QueueName(queue)})
}

// SetQueueSettingsOptions configure [Admin.SetQueueSettings].
type SetQueueSettingsOptions struct {
	// Expected are the settings as they were read. If the stored ones differ, the call fails with [ErrConflict].
	// Default nil: the settings are replaced in any case.
	Expected *QueueSettings
}

// SetQueueSettings replaces the limits of the queue named by s.Name. The pause is unchanged unless s.Paused is
// set.
func (a Admin) SetQueueSettings(ctx context.Context, s *QueueSettings,
	o SetQueueSettingsOptions) (*QueueSettings, error) {
	q := proto.CloneOf(s)
	q.Name = a.c.QueueName(s.GetName())
	return callWithRetry(ctx, a.c, a.c.jobs.UpdateQueueSettings,
		&fermatav1.UpdateQueueSettingsRequest{Settings: q, Expected: o.Expected})
}

// PauseQueue stops new runs of a queue from starting until [Admin.ResumeQueue] is called. Live runs continue.
// Nodes apply it within about two seconds. It returns the settings of the queue, whose limits are unchanged. The
// call can be repeated.
func (a Admin) PauseQueue(ctx context.Context, queue string) (*QueueSettings, error) {
	s, err := a.pauseQueue(ctx, &fermatav1.PauseQueueRequest{Name: a.c.QueueName(queue)})
	if status.Code(err) == codes.Unimplemented { // a node of an earlier version
		return a.setPaused(ctx, queue, true)
	}
	return s, err
}

// PauseQueueUntil is PauseQueue, until the nodes resume the queue at a time, by the clock of Redis. Nodes of earlier
// versions answer UNIMPLEMENTED.
func (a Admin) PauseQueueUntil(ctx context.Context, queue string, until time.Time) (*QueueSettings, error) {
	return a.pauseQueue(ctx, &fermatav1.PauseQueueRequest{
		Name: a.c.QueueName(queue), UntilTime: timestamppb.New(until),
	})
}

func (a Admin) pauseQueue(ctx context.Context, q *fermatav1.PauseQueueRequest) (*QueueSettings, error) {
	return callWithRetry(ctx, a.c, a.c.jobs.PauseQueue, q)
}

// ResumeQueue ends a pause by [Admin.PauseQueue]: due runs start in order. The call can be repeated.
func (a Admin) ResumeQueue(ctx context.Context, queue string) (*QueueSettings, error) {
	return a.setPaused(ctx, queue, false)
}

// maxPauseTries bounds how often the limits are read again after a concurrent change.
const maxPauseTries = 8

func (a Admin) setPaused(ctx context.Context, queue string, paused bool) (*QueueSettings, error) {
	for try := 1; ; try++ {
		before, err := a.QueueSettings(ctx, queue)
		if err != nil {
			return nil, err
		}
		after := proto.CloneOf(before)
		after.Name, after.Paused = queue, &paused
		set, err := a.SetQueueSettings(ctx, after, SetQueueSettingsOptions{Expected: before})
		if !IsConflict(err) || try == maxPauseTries {
			return set, err
		}
	}
}
