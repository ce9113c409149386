package node

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
	"github.com/fermata-io/fermata/internal/engine/dispatch"
	"github.com/fermata-io/fermata/internal/engine/slotshare"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// Nudge notifies the holder of a shard that lanes became due earlier: this node's own loop, or the peer whose
// lock value the script returned.
func (n *Node) Nudge(shard int, heads []job.LaneHead, holder string) {
	if _, held := n.locks.ValidLock(shard); held {
		n.scheduler.LanesDueEarlier(shard, heads)
		return
	}
	peer, _, ok := shardlock.ParseHolder(holder)
	if !ok || peer == n.cfg.Name {
		return // the shard has no holder: the next one reads its lanes
	}
	for _, h := range heads {
		n.peers.SendNudge(peer, shard, h)
	}
}

// validLock is the lock value of a shard while this node may rely on it.
func (n *Node) validLock(shard int) (string, bool) {
	lock, ok := n.locks.ValidLock(shard)
	return lock.Value, ok
}

// redisLatency is the current latency of Redis for this node.
func (n *Node) redisLatency() time.Duration { return n.latency.Current(time.Now()) }

// gates adapts the admission to the interfaces of the scheduler and the dispatcher, which are built before it.
type gates struct{ *Node }

func (g gates) Reserve(namespace, queue string, count int) slots.Reservation {
	return g.admission.Reserve(namespace, queue, count)
}

func (g gates) Prefetch(namespace, queue string, count int) slots.Reservation {
	return g.admission.Prefetch(namespace, queue, count)
}

func (g gates) MayAdvance(namespace, queue string) bool {
	return g.admission.MayAdvance(namespace, queue)
}

func (g gates) FreeSlots(namespace, queue string) int {
	return g.dispatcher.FreeSlots(namespace, queue)
}

func (g gates) HoldAssignments() { g.dispatcher.HoldAssignments() }

func (g gates) ReleaseAssignments() { g.dispatcher.ReleaseAssignments() }

func (g gates) Queues() []job.QueueKey { return g.dispatcher.Queues() }

func (g gates) Limited(namespace, queue string) bool { return g.admission.Limited(namespace, queue) }

func (g gates) TakeStarts(ctx context.Context, asks []job.QueueRequest) []job.QueueGrant {
	grants := g.admission.TakeStarts(ctx, asks)
	for i, grant := range grants {
		if grant.Limit != job.NoLimit {
			g.telemetry.QueueLimited(asks[i].Queue, grant.Limit, grant.Again)
		}
	}
	return grants
}

func (g gates) ReturnStarts(unused []job.QueueRequest) { g.admission.ReturnStarts(unused) }

func (g gates) Adopted(l job.Leased) { g.admission.Adopted(l) }

func (g gates) Ended(e job.Ending) { g.admission.Ended(e) }

// CancelAttempt cancels an attempt on any node.
func (n *Node) CancelAttempt(record job.RecordID, token uint64) {
	if !n.dispatcher.CancelAttempt(record, token) {
		n.peers.BroadcastCancel(record, token)
	}
}

// The methods below implement the handler of the peer links.

// OnDemand stores a peer's free slots.
func (n *Node) OnDemand(peer string, demand []job.QueueDemand) {
	n.spread.setDemand(peer, demand, time.Now())
	n.telemetry.PeerServes(peer, demand)
	n.scheduler.SetPeerDemand(peer, demand)
}

// OnLinkDown removes a peer's free slots.
func (n *Node) OnLinkDown(peer string) {
	n.OnDemand(peer, nil)
	n.spread.removePeer(peer)
}

// OnProcessEnded moves the shards of a node whose process has ended.
func (n *Node) OnProcessEnded(peer string) {
	n.locks.ProcessEnded(peer)
	n.dispatcher.AddressesChanged()
}

// OnLinkUp reverts OnProcessEnded.
func (n *Node) OnLinkUp(peer string) {
	n.locks.ProcessAnswers(peer)
	n.dispatcher.AddressesChanged()
}

// OnAddress sends workers the address that a node has confirmed.
func (n *Node) OnAddress(string) { n.dispatcher.AddressesChanged() }

// OnNudge handles a peer's notice that a lane became due earlier.
func (n *Node) OnNudge(shard int, head job.LaneHead) {
	n.scheduler.LanesDueEarlier(shard, []job.LaneHead{head})
}

// OnPermits queues permits that a peer sent in one message.
func (n *Node) OnPermits(peer string, permits []job.Permit) { n.slotShare.QueuePermits(peer, permits) }

// acceptPermits reserves slots for a peer's permits, and returns what leases under them.
func (n *Node) acceptPermits(peer string, permits []job.Permit) []slotshare.PermittedLease {
	accepted := n.scheduler.Accept(peer, permits)
	leases := make([]slotshare.PermittedLease, len(accepted))
	for i, a := range accepted {
		leases[i] = a
	}
	return leases
}

// OnPermitResults handles a peer's results of permits.
func (n *Node) OnPermitResults(peer string, results []job.PermitResult) {
	n.scheduler.HandlePermitResults(peer, results)
}

// OnHandOver handles a peer's notice that it released shards.
func (n *Node) OnHandOver(shards []int) { n.locks.ShardsReleased(shards...) }

// OnLeaving handles a peer's notice that it leaves the cluster.
func (n *Node) OnLeaving(node string) { n.gossip.RecordLeaving(node) }

// OnCancel cancels an attempt of a worker of this node.
func (n *Node) OnCancel(record job.RecordID, token uint64) { n.dispatcher.CancelAttempt(record, token) }

// Describe is the description of this node for peers.
func (n *Node) Describe() job.NodeInfo {
	held := 0
	for shard := range n.cfg.Shards {
		if _, ok := n.locks.ValidLock(shard); ok {
			held++
		}
	}
	workers := n.dispatcher.Workers()
	return job.NodeInfo{
		Name: n.cfg.Name, GRPCAddress: n.grpcAddr, PeerAddress: n.peerAddr, ShardsHeld: held,
		Draining: n.draining.Load(), Version: n.cfg.Version, StartedAt: n.startedAt,
		Durability: n.durabilityClass(), WorkerCount: len(workers), QueueWorkers: job.SumQueueWorkers(workers),
		Workers: workers, Queues: n.telemetry.RecentRuns(),
	}
}

// offeredSlots are the free slots that peers may send permits for. While Redis does not answer, the node offers
// none: it could not lease.
func (n *Node) offeredSlots() []job.QueueDemand {
	if n.reach.Silent() {
		return nil
	}
	return n.dispatcher.Demand()
}

// assignFreed gives slots that became free to this node's shards or to peers.
func (n *Node) assignFreed(freed []dispatch.FreedSlots) {
	for _, x := range freed {
		n.slotShare.AssignFreed(x.Group, x.N)
	}
	n.slotShare.NotifyPeers()
}
