package peer

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// DescribeAll asks the other members, to which a link is open, for their description without workers, concurrently, each
// for at most two seconds. Members that do not answer, or have no link, are returned as unreachable: gossip may show any
// number of members that are silent. The answers are sorted by name.
func (p *Peer) DescribeAll(ctx context.Context) []job.NodeInfo {
	return p.describeAll(ctx, &fermatav1.DescribeNodeRequest{OmitWorkers: true, MaxBytes: maxDescription})
}

// DescribeAllWorkers is DescribeAll with workers.
func (p *Peer) DescribeAllWorkers(ctx context.Context) []job.NodeInfo {
	return p.describeAll(ctx, &fermatav1.DescribeNodeRequest{MaxBytes: maxDescription})
}

func (p *Peer) describeAll(ctx context.Context, r *fermatav1.DescribeNodeRequest) []job.NodeInfo {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for _, l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	infos := make([]job.NodeInfo, len(links))
	var asked sync.WaitGroup
	for i, l := range links {
		if !l.isUp() {
			infos[i] = l.unreachable()
			continue
		}
		asked.Go(func() { infos[i] = l.describePeer(ctx, r) })
	}
	asked.Wait()
	known := 0
	for i, l := range links {
		if l.departed.Load() && infos[i].Unreachable {
			continue
		}
		infos[known] = infos[i]
		known++
	}
	infos = infos[:known]
	slices.SortFunc(infos, func(a, b job.NodeInfo) int { return cmp.Compare(a.Name, b.Name) })
	return infos
}

// describePeer asks the peer about itself.
func (l *link) describePeer(ctx context.Context, r *fermatav1.DescribeNodeRequest) job.NodeInfo {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	answer, err := l.client.DescribeNode(ctx, r)
	if err != nil {
		l.logNoDescription(err)
		return l.unreachable()
	}
	info := infoFromPB(answer)
	info.Name = l.member.Name
	return info
}

// unreachable describes a peer that does not answer.
func (l *link) unreachable() job.NodeInfo {
	return job.NodeInfo{
		Name: l.member.Name, GRPCAddress: l.clientAddress(), PeerAddress: l.member.PeerAddr, Unreachable: true,
	}
}

// logNoDescription logs why a peer that can be reached is listed as unreachable. That it cannot be reached is logged
// when its link ends.
func (l *link) logNoDescription(err error) {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
	default:
		l.p.o.Logger.Warn("peer sent no description of itself", "node", l.member.Name, "error", err)
	}
}

func (s *peerService) DescribeNode(_ context.Context,
	r *fermatav1.DescribeNodeRequest) (*fermatav1.DescribeNodeResponse, error) {
	info := s.p.o.Handler.Describe()
	answer, limit := infoToPB(info), maxSent
	if r.GetMaxBytes() > 0 {
		limit = min(int(r.GetMaxBytes()), maxDescription)
		answer.QueueWorkers = queueWorkersToPB(info.QueueWorkers)
	}
	if r.GetOmitWorkers() {
		return answer, nil
	}
	workers, cut := fitWorkers(workersToPB(info.Workers), limit-proto.Size(answer))
	if answer.Workers = workers; cut > 0 {
		s.p.metrics.cut.WithLabelValues("description").Inc()
		s.p.o.Logger.Warn("labels or queues of workers, or whole workers, were left out of the description of this node",
			"workers", info.WorkerCount, "cut", cut, "bytes", limit)
	}
	return answer, nil
}

// fitWorkers shortens a list of workers to the bytes that it may have. If it is too long, a worker may have an equal
// part of them: one that takes more loses its labels, then its queues, and is left out if it still takes more. So the
// workers of one caller do not crowd out those of others. It returns how many it has cut.
func fitWorkers(workers []*fermatav1.Worker, limit int) (fitting []*fermatav1.Worker, cut int) {
	bytes := 0
	for _, w := range workers {
		bytes += entryBytes(w)
	}
	if bytes <= limit {
		return workers, 0
	}
	part := limit / max(1, len(workers))
	fitting = workers[:0]
	for _, w := range workers {
		if entryBytes(w) > part {
			cut++
			w.Labels = nil
		}
		if entryBytes(w) > part {
			w.Queues = nil
		}
		if entryBytes(w) <= part {
			fitting = append(fitting, w)
		}
	}
	return fitting, cut
}

// entryBytes is what a worker takes in a list, at most.
func entryBytes(w *fermatav1.Worker) int {
	const prefix = 5 // tag and length
	return proto.Size(w) + prefix
}

func workersToPB(list []job.WorkerInfo) []*fermatav1.Worker {
	workers := make([]*fermatav1.Worker, len(list))
	for i, w := range list {
		workers[i] = &fermatav1.Worker{
			WorkerId: w.ID, Node: w.Node, Namespace: w.Namespace, Queues: w.Queues, Slots: int32(w.Slots),
			Running: int32(w.Running), Draining: w.Draining, ConnectTime: instantToPB(w.ConnectedAt),
			Version: w.Version, Labels: w.Labels, Identity: w.Identity,
		}
	}
	return workers
}

func queueWorkersToPB(list []job.QueueWorkers) []*fermatav1.QueueWorkers {
	queues := make([]*fermatav1.QueueWorkers, len(list))
	for i, q := range list {
		queues[i] = &fermatav1.QueueWorkers{Namespace: q.Namespace, Queue: q.Queue, Workers: int32(q.Workers),
			FreeSlots: q.FreeSlots}
	}
	return queues
}

// infoToPB leaves out the workers and their sums.
func infoToPB(n job.NodeInfo) *fermatav1.DescribeNodeResponse {
	queues := make([]*fermatav1.Queue, len(n.Queues))
	for i, q := range n.Queues {
		queues[i] = &fermatav1.Queue{Namespace: q.Namespace, Queue: q.Queue, RecentRuns: &fermatav1.RecentRuns{
			Started: q.Started, Succeeded: q.Succeeded, Failed: q.Failed, Breaches: q.Breaches,
			MaxLag: durationpb.New(q.MaxLag), Span: durationpb.New(q.Span),
		}}
	}
	return &fermatav1.DescribeNodeResponse{Queues: queues, Node: &fermatav1.Node{
		Name: n.Name, GrpcAddress: n.GRPCAddress, PeerAddress: n.PeerAddress, ShardsHeld: int32(n.ShardsHeld),
		Workers: int32(n.WorkerCount), Draining: n.Draining, Version: n.Version, StartTime: instantToPB(n.StartedAt),
		Durability: n.Durability,
	}}
}

func infoFromPB(r *fermatav1.DescribeNodeResponse) job.NodeInfo {
	n := r.GetNode()
	info := job.NodeInfo{
		Name: n.GetName(), GRPCAddress: n.GetGrpcAddress(), PeerAddress: n.GetPeerAddress(),
		ShardsHeld: int(n.GetShardsHeld()), Draining: n.GetDraining(), Version: n.GetVersion(),
		StartedAt: instantFromPB(n.GetStartTime()), Durability: n.GetDurability(), WorkerCount: int(n.GetWorkers()),
	}
	for _, w := range r.GetWorkers() {
		info.Workers = append(info.Workers, job.WorkerInfo{
			ID: w.GetWorkerId(), Node: w.GetNode(), Namespace: w.GetNamespace(), Queues: w.GetQueues(),
			Slots: int(w.GetSlots()), Running: int(w.GetRunning()), Draining: w.GetDraining(),
			ConnectedAt: instantFromPB(w.GetConnectTime()), Version: w.GetVersion(), Labels: w.GetLabels(),
			Identity: w.GetIdentity(),
		})
	}
	for _, q := range r.GetQueueWorkers() {
		info.QueueWorkers = append(info.QueueWorkers, job.QueueWorkers{Namespace: q.GetNamespace(), Queue: q.GetQueue(),
			Workers: int(q.GetWorkers()), FreeSlots: q.GetFreeSlots()})
	}
	if len(info.QueueWorkers) == 0 { // the node is of the previous build, which sends all workers
		info.QueueWorkers = job.SumQueueWorkers(info.Workers)
	}
	for _, q := range r.GetQueues() {
		p := q.GetRecentRuns()
		info.Queues = append(info.Queues, job.QueueRuns{Namespace: q.GetNamespace(), Queue: q.GetQueue(),
			RecentRuns: job.RecentRuns{
				Started: p.GetStarted(), Succeeded: p.GetSucceeded(), Failed: p.GetFailed(), Breaches: p.GetBreaches(),
				MaxLag: p.GetMaxLag().AsDuration(), Span: p.GetSpan().AsDuration(),
			}})
	}
	return info
}
