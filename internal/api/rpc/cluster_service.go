package rpc

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Cluster describes the whole cluster. The parts of a node that cannot be reached are missing.
type Cluster interface {
	Nodes(ctx context.Context) ([]Node, error)
	// LostNodes are those that this node has seen disappear lately without leaving.
	LostNodes() []LostNode
	Shards(ctx context.Context) ([]Shard, error)
	// Queues of a namespace, or of all if it is empty; those that are covered, or all of them if
	// covers is nil.
	Queues(ctx context.Context, namespace string, covers func(queue string) bool) ([]Queue, error)
	// Namespaces that have jobs in queues of the scope, sorted by name; nil: in any queue. whole reports whether the
	// caller may see all queues of a namespace.
	Namespaces(ctx context.Context, scope job.QueueScope, whole func(namespace string) bool) ([]Namespace, error)
	Workers(ctx context.Context) ([]Worker, error)
	// ForecastLoad returns the forecast of the queues that are covered, or of all of them if covers is nil.
	ForecastLoad(ctx context.Context, q forecast.Query, covers func(queue string) bool) (forecast.Gathered, error)
	// CheckShard audits what is stored in a shard; job.InvalidError if there is none
	// of this number.
	CheckShard(ctx context.Context, shard int, repair bool) (job.ConsistencyReport, error)
}

// Node is one member of the cluster.
type Node struct {
	Name        string
	GRPCAddress string
	PeerAddress string
	ShardsHeld  int
	Workers     int
	Draining    bool
	Version     string
	Started     time.Time
	// Unreachable: only names and addresses are known.
	Unreachable bool
	// Durability class in force: memory, local, replica.
	Durability string
}

// LostNode is a node that disappeared without leaving.
type LostNode struct {
	Name        string
	GRPCAddress string
	PeerAddress string
	Version     string
	LostAt      time.Time
}

// Shard is one slice of all jobs. Without a holder, Holder is empty.
type Shard struct {
	Shard   int
	Holder  string
	LockTTL time.Duration
	Jobs    int64
	Lag     time.Duration
}

// Queue counts the jobs and workers of a queue.
type Queue struct {
	Namespace, Queue                          string
	Backlog, Running, Scheduled, Paused, Dead int64
	FreeSlots, Workers                        int64
	OldestOverdue                             time.Duration
	OldestDeadLetter                          time.Duration
	// QueuePaused: the queue as a whole is paused; Paused counts jobs.
	QueuePaused bool
	// Recent is of the last minute.
	Recent job.RecentRuns
}

// Namespace is the size of a namespace.
type Namespace struct {
	Name                        string
	Jobs, Running, Paused, Dead int64
	Queues                      int
	// Whole: the caller may see all queues. Only then the fields below are known.
	Whole   bool
	Failing int64
	// JobsQuota and BytesQuota are nil if the namespace has no such quota.
	JobsQuota, BytesQuota *QuotaUse
}

// QuotaUse is how much of a quota is used.
type QuotaUse struct {
	Used    int64
	Counted bool // Used is known
	Limit   int64
}

// Worker is one connected worker.
type Worker struct {
	ID        string
	Node      string
	Namespace string
	Queues    []string
	Slots     int
	Running   int
	Draining  bool
	Connected time.Time
	Version   string
	Labels    map[string]string
	// Identity of the worker as the node authenticated it; empty if callers are not authenticated.
	Identity string
}

type clusterService struct {
	fermatav1.UnimplementedClusterServiceServer
	cluster Cluster
	now     func() time.Time
	trail   AuditTrail // nil: none is kept
}

func (s *clusterService) ListNodes(ctx context.Context,
	_ *fermatav1.ListNodesRequest) (*fermatav1.ListNodesResponse, error) {
	nodes, err := s.cluster.Nodes(ctx)
	return &fermatav1.ListNodesResponse{
		Nodes: convert.Map(nodes, nodeToPB), LostNodes: convert.Map(s.cluster.LostNodes(), lostNodeToPB),
	}, err
}

func (s *clusterService) ListShards(ctx context.Context,
	_ *fermatav1.ListShardsRequest) (*fermatav1.ListShardsResponse, error) {
	shards, err := s.cluster.Shards(ctx)
	return &fermatav1.ListShardsResponse{Shards: convert.Map(shards, shardToPB)}, err
}

func (s *clusterService) ListQueues(ctx context.Context,
	q *fermatav1.ListQueuesRequest) (*fermatav1.ListQueuesResponse, error) {
	namespace := ""
	if q.GetParent() != "" {
		var err error
		if namespace, err = convert.ParseNamespace("parent", q.GetParent()); err != nil {
			return nil, err
		}
		if err := convert.ValidateKey("parent", job.Key{Namespace: namespace, ID: "x"}); err != nil {
			return nil, err
		}
	}
	scope := guard.RoleScopeFrom(ctx, cmp.Or(namespace, authz.AllNamespaces))
	queues, err := s.cluster.Queues(ctx, namespace, scope.Filter())
	return &fermatav1.ListQueuesResponse{Queues: convert.Map(queues, queueToPB)}, err
}

func (s *clusterService) ListNamespaces(ctx context.Context,
	_ *fermatav1.ListNamespacesRequest) (*fermatav1.ListNamespacesResponse, error) {
	whole := func(namespace string) bool { return guard.RoleScopeFrom(ctx, namespace) == nil }
	namespaces, err := s.cluster.Namespaces(ctx, reachableOfAll(ctx), whole)
	return &fermatav1.ListNamespacesResponse{Namespaces: convert.Map(namespaces, namespaceToPB)}, err
}

func (s *clusterService) ListWorkers(ctx context.Context,
	_ *fermatav1.ListWorkersRequest) (*fermatav1.ListWorkersResponse, error) {
	workers, err := s.cluster.Workers(ctx)
	return &fermatav1.ListWorkersResponse{Workers: convert.Map(workers, workerToPB)}, err
}

func (s *clusterService) CheckShard(ctx context.Context,
	q *fermatav1.CheckShardRequest) (*fermatav1.CheckShardResponse, error) {
	BeginWrite(ctx)
	report, err := s.cluster.CheckShard(ctx, int(q.GetShard()), q.GetRepair())
	if err != nil {
		if slices.ContainsFunc(report.Findings, func(f job.Finding) bool { return f.Repaired }) {
			NoteStored(ctx, 0)
		}
		return nil, err
	}
	p := &fermatav1.CheckShardResponse{Findings: convert.Map(report.Findings, convert.FindingToPB), More: report.More}
	for _, n := range report.Records {
		p.Records += n
	}
	return p, nil
}

func nodeToPB(n Node) *fermatav1.Node {
	return &fermatav1.Node{
		Name: n.Name, GrpcAddress: n.GRPCAddress, PeerAddress: n.PeerAddress,
		ShardsHeld: int32(n.ShardsHeld), Workers: int32(n.Workers), Draining: n.Draining,
		Version: n.Version, StartTime: convert.TimeToPB(n.Started), Unreachable: n.Unreachable, Durability: n.Durability,
	}
}

func lostNodeToPB(n LostNode) *fermatav1.LostNode {
	return &fermatav1.LostNode{
		Name: n.Name, GrpcAddress: n.GRPCAddress, PeerAddress: n.PeerAddress, Version: n.Version,
		LostTime: convert.TimeToPB(n.LostAt),
	}
}

func shardToPB(s Shard) *fermatav1.Shard {
	return &fermatav1.Shard{
		Shard: int32(s.Shard), Holder: s.Holder, LockTtl: durationpb.New(s.LockTTL), Jobs: s.Jobs, Lag: durationpb.New(s.Lag),
	}
}

func queueToPB(q Queue) *fermatav1.Queue {
	return &fermatav1.Queue{
		Namespace: q.Namespace, Queue: q.Queue, Backlog: q.Backlog, Running: q.Running, Scheduled: q.Scheduled,
		Paused: q.Paused, Dead: q.Dead, FreeSlots: q.FreeSlots, Workers: q.Workers,
		OldestOverdue: durationpb.New(q.OldestOverdue), RecentRuns: recentToPB(q.Recent),
		OldestDeadLetter: durationpb.New(q.OldestDeadLetter), QueuePaused: q.QueuePaused,
	}
}

func recentToPB(r job.RecentRuns) *fermatav1.RecentRuns {
	return &fermatav1.RecentRuns{
		Started: r.Started, Succeeded: r.Succeeded, Failed: r.Failed, Breaches: r.Breaches,
		MaxLag: durationpb.New(r.MaxLag), Span: durationpb.New(r.Span),
	}
}

func workerToPB(w Worker) *fermatav1.Worker {
	return &fermatav1.Worker{
		WorkerId: w.ID, Node: w.Node, Namespace: w.Namespace, Queues: w.Queues, Slots: int32(w.Slots),
		Running: int32(w.Running), Draining: w.Draining, ConnectTime: convert.TimeToPB(w.Connected),
		Version: w.Version, Labels: w.Labels, Identity: w.Identity,
	}
}

func namespaceToPB(n Namespace) *fermatav1.Namespace {
	p := &fermatav1.Namespace{
		Name: convert.NamespaceName(n.Name), Jobs: n.Jobs, Running: n.Running, Paused: n.Paused, Dead: n.Dead,
		Queues: int32(n.Queues), JobsQuota: quotaToPB(n.JobsQuota), JobBytesQuota: quotaToPB(n.BytesQuota),
	}
	if n.Whole {
		p.Failing = &n.Failing
	}
	return p
}

func quotaToPB(q *QuotaUse) *fermatav1.Quota {
	if q == nil {
		return nil
	}
	p := &fermatav1.Quota{Limit: q.Limit}
	if q.Counted {
		p.Used = &q.Used
	}
	return p
}
