package node

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/cluster/membership"
	"github.com/fermata-io/fermata/internal/cluster/reachability"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/engine/queuestats"
	"github.com/fermata-io/fermata/internal/redis/fsck"
)

// otherNodes lists the addresses to which workers can move from this node: those that other nodes have
// confirmed. Workers send their tokens there and run the jobs that they receive, so an address from gossip
// alone, which any holder of its key can publish, is not sufficient.
func (n *Node) otherNodes() []string {
	return n.nodesWhere(func(sharding.Member) bool { return true })
}

// relocateWorkers asks the workers of this node to move to nodes that own shards, when this node withdraws.
func (n *Node) relocateWorkers(withdrawn bool) {
	n.reports.withdrawn.Store(withdrawn)
	var addresses []string
	if withdrawn {
		addresses = n.nodesWhere(func(m sharding.Member) bool { return !m.Withdrawn })
	}
	n.dispatcher.RelocateWorkers(addresses)
}

// nodesWhere are the confirmed addresses of other nodes that meet a condition.
func (n *Node) nodesWhere(wanted func(sharding.Member) bool) []string {
	var addresses []string
	for _, m := range n.gossip.View().Members {
		if m.Name == n.cfg.Name || n.peers.HasEnded(m.Name) || !wanted(m) {
			continue
		}
		if address := n.confirmedAddress(m); address != "" && address != n.grpcAddr {
			addresses = append(addresses, address)
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// confirmedAddress is the address at which workers reach a member; empty: only gossip has it. If links between
// nodes are authenticated, the member has sent it over one; otherwise it is in the member's heartbeat in the
// keyspace, which only nodes can write.
func (n *Node) confirmedAddress(m sharding.Member) string {
	if n.security.peers != nil {
		return n.peers.ClientAddress(m.Name)
	}
	return n.locks.ClientAddress(m.Name, m.Process)
}

// reachOfOthers are the published reports of the other nodes that could own shards, and whether gossip has any other
// live node. A member that this node has never seen in the keyspace could not: it may have nothing but the gossip key. See
// [reportFilter] for when reports count.
func (n *Node) reachOfOthers() (anyAlive bool, owners []reachability.Report) {
	known := n.locks.KeyspaceMembers()
	for _, m := range n.gossip.Members() {
		if m.State != membership.StateAlive || m.Name == n.cfg.Name {
			continue
		}
		anyAlive = true
		if slices.ContainsFunc(known, func(e sharding.Member) bool { return e.Name == m.Name }) {
			owners = append(owners, reachability.Report{
				Withdrawn: m.Withdrawn, Unreachable: m.UnreachablePrimaries, Latency: m.Latency,
			})
		}
	}
	n.rereadHolders()
	if !n.reports.accepts(n.othersHoldShards(), time.Now()) {
		owners = nil
	}
	return anyAlive, owners
}

// knownMembers are the other live members whose processes have a heartbeat in the keyspace. A holder of the gossip key can
// invent others. Until heartbeats have been read for a while, that is all members.
func (n *Node) knownMembers() (known []membership.MemberState) {
	owners, ok := n.locks.EligibleOwners()
	for _, m := range n.gossip.Members() {
		if m.State == membership.StateAlive && m.Name != n.cfg.Name && (!ok || owners[m.Name] == m.Process) {
			known = append(known, m)
		}
	}
	return known
}

// maxLoggedNodes is how many nodes a line of the log names.
const maxLoggedNodes = 10

// listNodes joins descriptions of nodes for a line of the log. Parts of them come from gossip.
func listNodes(nodes []string) string {
	short := make([]string, len(nodes))
	for i, text := range nodes {
		short[i] = job.Clip(text, job.MaxID)
	}
	return strings.Join(job.ClipList(short, len(short), maxLoggedNodes), " ")
}

// publishReach publishes how this node reaches Redis.
func (n *Node) publishReach(r reachability.Report) error {
	return n.gossip.PublishRedisState(membership.RedisState{
		Aside: r.Withdrawn, Blind: r.Unreachable, Latency: r.Latency,
	})
}

func splitHostPort(addr string) (string, int, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.Atoi(text)
	return host, port, err
}

// clusterView implements ClusterService: nodes and workers come from the peers, shards and queues from Redis.
type clusterView struct{ *Node }

// describeAll describes all nodes, without their workers: sums by queue are enough for most.
func (v clusterView) describeAll(ctx context.Context) []job.NodeInfo {
	return v.withSelf(v.peers.DescribeAll(ctx))
}

// describeWorkers describes all nodes with their workers.
func (v clusterView) describeWorkers(ctx context.Context) []job.NodeInfo {
	return v.withSelf(v.peers.DescribeAllWorkers(ctx))
}

// withSelf adds this node, and sorts the nodes by name.
func (v clusterView) withSelf(others []job.NodeInfo) []job.NodeInfo {
	nodes := append(others, v.Describe())
	slices.SortFunc(nodes, func(a, b job.NodeInfo) int { return cmp.Compare(a.Name, b.Name) })
	return nodes
}

func (v clusterView) Nodes(ctx context.Context) ([]rpc.Node, error) {
	infos := v.describeAll(ctx)
	versions := map[string]string{}
	for _, m := range v.gossip.Members() {
		versions[m.Name] = m.Version
	}
	nodes := make([]rpc.Node, len(infos))
	for i, m := range infos {
		nodes[i] = rpc.Node{
			Name: m.Name, GRPCAddress: m.GRPCAddress, PeerAddress: m.PeerAddress, ShardsHeld: m.ShardsHeld,
			Workers: m.WorkerCount, Draining: m.Draining, Version: cmp.Or(m.Version, versions[m.Name]),
			Started:     m.StartedAt,
			Unreachable: m.Unreachable, Durability: m.Durability,
		}
	}
	return nodes, nil
}

func (v clusterView) LostNodes() []rpc.LostNode {
	var lost []rpc.LostNode
	for _, m := range v.gossip.Members() {
		if !m.LostAt.IsZero() {
			lost = append(lost, rpc.LostNode{
				Name: m.Name, GRPCAddress: m.GRPCAddr, PeerAddress: m.PeerAddr, Version: m.Version, LostAt: m.LostAt,
			})
		}
	}
	return lost
}

func (v clusterView) Workers(ctx context.Context) ([]rpc.Worker, error) {
	var workers []rpc.Worker
	for _, m := range v.describeWorkers(ctx) {
		for _, w := range m.Workers {
			workers = append(workers, rpc.Worker{
				ID: w.ID, Node: m.Name, Namespace: w.Namespace, Queues: w.Queues, Slots: w.Slots, Running: w.Running,
				Draining: w.Draining, Connected: w.ConnectedAt, Version: w.Version, Labels: w.Labels,
				Identity: w.Identity,
			})
		}
	}
	return workers, nil
}

func (v clusterView) Shards(ctx context.Context) ([]rpc.Shard, error) {
	holders, err := v.locks.Holders(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", job.ErrUnavailable, err)
	}
	counts, err := v.overview.Counts(ctx, "")
	if err != nil {
		return nil, err
	}
	shards := make([]rpc.Shard, v.cfg.Shards)
	for i := range shards {
		shards[i].Shard, shards[i].Jobs, shards[i].Lag = i, counts.Shards[i].Jobs, counts.Shards[i].Lag
	}
	for _, h := range holders {
		shards[h.Shard].Holder, shards[h.Shard].LockTTL = h.Node, h.TTL
	}
	return shards, nil
}

func (v clusterView) CheckShard(ctx context.Context, shard int, repair bool) (job.ConsistencyReport, error) {
	if shard < 0 || shard >= v.cfg.Shards {
		return job.ConsistencyReport{}, job.Invalid("shard", "is %d, want 0 to %d", shard, v.cfg.Shards-1)
	}
	report, err := fsck.New(v.clientStore).CheckShard(ctx, shard, repair)
	for _, f := range report.Findings {
		v.cfg.Logger.Warn("stored data is inconsistent", "shard", shard, "fault", f.Fault.String(), "record",
			f.Record, "lane", f.Lane,
			"detail", f.Detail, "repaired", f.Repaired)
	}
	return report, err
}

// Queues takes the counts of the namespace from the node's overview and the settings from the node's own copy, so that
// the queues of other namespaces do not add to the cost of the call.
func (v clusterView) Queues(ctx context.Context, namespace string,
	covers func(queue string) bool) ([]rpc.Queue, error) {
	settings := v.admission.QueueSettings()
	if settings == nil {
		return nil, fmt.Errorf("%w: the settings of queues are not known yet", job.ErrUnavailable)
	}
	sums := queueSums{
		wanted: func(ns, queue string) bool {
			return (namespace == "" || ns == namespace) && (covers == nil || covers(queue))
		},
		queues: map[job.QueueKey]*rpc.Queue{},
	}
	counts, err := v.overview.Counts(ctx, namespace)
	if err != nil {
		return nil, err
	}
	for q, c := range counts.Queues {
		if sums.wanted(q.Namespace, q.Queue) {
			sums.addCount(q, c)
		}
	}
	for q, s := range settings {
		if sums.wanted(q.Namespace, q.Queue) {
			sums.queue(q.Namespace, q.Queue).QueuePaused = s.Paused // also without jobs: its settings count
		}
	}
	for _, m := range v.describeAll(ctx) {
		sums.addNode(m)
	}
	return sums.sorted(), nil
}

// queueSums adds up the queues of the cluster.
type queueSums struct {
	wanted func(namespace, queue string) bool
	queues map[job.QueueKey]*rpc.Queue
}

func (s queueSums) queue(namespace, queue string) *rpc.Queue {
	k := job.QueueKey{Namespace: namespace, Queue: queue}
	if s.queues[k] == nil {
		s.queues[k] = &rpc.Queue{Namespace: namespace, Queue: queue}
	}
	return s.queues[k]
}

func (s queueSums) addCount(k job.QueueKey, c queuestats.QueueCount) {
	q := s.queue(k.Namespace, k.Queue)
	q.Backlog, q.Running, q.Scheduled, q.Paused, q.Dead = c.Backlog, c.Leased, c.Scheduled, c.Paused, c.Dead
	q.OldestOverdue, q.OldestDeadLetter = c.OldestOverdue, c.OldestDead
}

// addNode adds the recent runs and the workers of a node.
func (s queueSums) addNode(m job.NodeInfo) {
	for _, r := range m.Queues {
		// Rates are not shown for a queue without records, nor for one that is included in a sum.
		if q := s.queues[job.QueueKey{Namespace: r.Namespace, Queue: r.Queue}]; q != nil {
			q.Recent.Add(r.RecentRuns)
		}
	}
	for _, w := range m.QueueWorkers {
		if s.wanted(w.Namespace, w.Queue) {
			q := s.queue(w.Namespace, w.Queue)
			q.Workers += int64(w.Workers)
			q.FreeSlots += w.FreeSlots
		}
	}
}

func (s queueSums) sorted() []rpc.Queue {
	queues := make([]rpc.Queue, 0, len(s.queues))
	for _, q := range s.queues {
		queues = append(queues, *q)
	}
	slices.SortFunc(queues, func(a, b rpc.Queue) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Queue, b.Queue))
	})
	return queues
}

func (n *Node) allShards() []int {
	shards := make([]int, n.cfg.Shards)
	for i := range shards {
		shards[i] = i
	}
	return shards
}
