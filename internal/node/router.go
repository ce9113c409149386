package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/admission"
	"github.com/fermata-io/fermata/internal/engine/dispatch"
	"github.com/fermata-io/fermata/internal/engine/scheduler"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// Nudge notifies the holder of a shard that lanes became due earlier: this node's own loop, or the peer whose
// lock value the script returned.
func (n *Node) Nudge(shard int, heads []job.LaneHead, holder string) {
	if _, held := n.locks.Held(shard); held {
		n.scheduler.Nudge(shard, heads)
		return
	}
	peer, _, ok := shardlock.ParseHolder(holder)
	if !ok || peer == n.cfg.Name {
		return // the shard has no holder: the next one reads its lanes
	}
	for _, h := range heads {
		n.peers.Nudge(peer, shard, h)
	}
}

// heldLock is the lock value of a shard while this node may rely on it.
func (n *Node) heldLock(shard int) (string, bool) {
	grip, ok := n.locks.Held(shard)
	return grip.Value, ok
}

// redisLatency is the current latency of Redis for this node.
func (n *Node) redisLatency() time.Duration { return n.latency.currentLatency(time.Now()) }

// slots adapts the dispatcher to the interface of the admission.
type slots struct{ *dispatch.Dispatcher }

func (s slots) Reserve(namespace, queue string, count int) admission.Reservation {
	return reservation{s.Dispatcher.Reserve(namespace, queue, count)}
}

func (s slots) Prefetch(namespace, queue string, count int) admission.Reservation {
	return reservation{s.Dispatcher.Prefetch(namespace, queue, count)}
}

type reservation struct{ *dispatch.Reservation }

func (r reservation) Split(count int) admission.Reservation {
	return reservation{r.Reservation.Split(count)}
}

// gates adapts the admission to the interfaces of the scheduler and the dispatcher, which are built before it.
type gates struct{ *Node }

func (g gates) Reserve(namespace, queue string, count int) scheduler.Reservation {
	return g.admission.Reserve(namespace, queue, count)
}

func (g gates) Prefetch(namespace, queue string, count int) scheduler.Reservation {
	return g.admission.Prefetch(namespace, queue, count)
}

func (g gates) MayAdvance(namespace, queue string) bool {
	return g.admission.MayAdvance(namespace, queue)
}

func (g gates) Queues() []job.QueueKey { return g.dispatcher.Queues() }

func (g gates) Limited(namespace, queue string) bool { return g.admission.Limited(namespace, queue) }

func (g gates) Take(ctx context.Context, asks []job.QueueAsk) []job.QueueGrant {
	grants := g.admission.Take(ctx, asks)
	for i, grant := range grants {
		if grant.Limit != job.NoLimit {
			g.telemetry.QueueLimited(asks[i].Queue, grant.Limit, grant.Again)
		}
	}
	return grants
}

func (g gates) GiveBack(unused []job.QueueAsk) { g.admission.GiveBack(unused) }

func (g gates) Adopted(l job.Leased) { g.admission.Adopted(l) }

func (g gates) Ended(e job.Ending) { g.admission.Ended(e) }

// CancelAttempt cancels an attempt on any node.
func (n *Node) CancelAttempt(record string, token uint64) {
	if !n.dispatcher.CancelAttempt(record, token) {
		n.peers.BroadcastCancel(record, token)
	}
}

// The methods below implement the handler of the peer links.

// OnDemand stores a peer's free slots.
func (n *Node) OnDemand(peer string, demand []job.QueueDemand) {
	n.telemetry.PeerServes(peer, demand)
	n.scheduler.PeerDemand(peer, demand)
}

// OnLinkDown removes a peer's free slots.
func (n *Node) OnLinkDown(peer string) { n.OnDemand(peer, nil) }

// OnGone moves the shards of a node whose process has ended.
func (n *Node) OnGone(peer string) {
	n.locks.Gone(peer)
	n.dispatcher.AddressesChanged()
}

// OnBack reverts OnGone.
func (n *Node) OnBack(peer string) {
	n.locks.Back(peer)
	n.dispatcher.AddressesChanged()
}

// OnAddress sends workers the address that a node has confirmed.
func (n *Node) OnAddress(string) { n.dispatcher.AddressesChanged() }

// OnNudge handles a peer's notice that a lane became due earlier.
func (n *Node) OnNudge(shard int, head job.LaneHead) {
	n.scheduler.Nudge(shard, []job.LaneHead{head})
}

// OnPermit queues a peer's permit. A node that stops, or has too many queued permits, replies at once that it
// has no slots, so that the jobs need not wait until the permit expires.
func (n *Node) OnPermit(peer string, p job.Permit) {
	if n.ctx.Err() == nil {
		select {
		case n.permits <- permit{peer, p, time.Now()}:
			return
		default:
			n.wakeDemand() // notify the peer of free slots again
		}
	}
	n.peers.SendPermitResult(peer, p.Lane, job.PermitResult{ID: p.ID})
}

// permit is a peer's permit on its way to the scheduler.
type permit struct {
	peer    string
	permit  job.Permit
	arrived time.Time
}

const (
	// maxPermitCalls is the maximum number of concurrent leasing calls under permits.
	maxPermitCalls = 8
	// maxQueuedPermits is the number of permits that may wait for slots: as many as a peer sends at once when
	// very many lanes become due. Permits that have waited too long are not used.
	maxQueuedPermits = 4096
)

// permitLoop reserves slots for peers' permits, one after the other, and leases under them.
func (n *Node) permitLoop(ctx context.Context) {
	accepted := make(chan acceptedPermit)
	var leasers sync.WaitGroup
	for range maxPermitCalls {
		leasers.Go(func() { n.leasePermitted(ctx, accepted) })
	}
	defer leasers.Wait()
	defer close(accepted)
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-n.permits:
			turns := n.scarceShares(p.permit.Lane)
			now := time.Now()
			for _, s := range turns {
				s.recordPeerRequest(now)
			}
			p.permit.ValidFor -= now.Sub(p.arrived)
			if a := n.scheduler.Accept(p.peer, p.permit); a != nil {
				accepted <- acceptedPermit{a, turns}
			} else {
				n.wakeDemand()
			}
		}
	}
}

// acceptedPermit is a permit that has slots, with the shares whose turn it may belong to.
type acceptedPermit struct {
	*scheduler.Accepted
	shares []*slotShare
}

// leasePermitted leases under permits that have slots, until the channel is closed.
func (n *Node) leasePermitted(ctx context.Context, accepted <-chan acceptedPermit) {
	for a := range accepted {
		leased := a.Lease(ctx)
		for _, s := range a.shares {
			s.recordTaken(leased)
		}
		n.wakeDemand() // the peer may have used up the slots that it knows of
	}
}

// OnPermitResult handles a peer's result of a permit.
func (n *Node) OnPermitResult(peer string, r job.PermitResult) { n.scheduler.PermitResult(peer, r) }

// OnHandOver handles a peer's notice that it released shards.
func (n *Node) OnHandOver(shards []int) { n.locks.Wake(shards...) }

// OnCancel cancels an attempt of a worker of this node.
func (n *Node) OnCancel(record string, token uint64) { n.dispatcher.CancelAttempt(record, token) }

// Describe is the description of this node for peers.
func (n *Node) Describe() job.NodeInfo {
	held := 0
	for shard := range n.cfg.Shards {
		if _, ok := n.locks.Held(shard); ok {
			held++
		}
	}
	return job.NodeInfo{
		Name: n.cfg.Name, GRPCAddress: n.grpcAddr, PeerAddress: n.peerAddr, ShardsHeld: held,
		Draining: n.draining.Load(), Version: n.cfg.Version, StartedAt: n.startedAt,
		Durability: n.durabilityClass(), Workers: n.dispatcher.Workers(), Queues: n.telemetry.Recent(),
	}
}

const (
	// minDemandInterval is the minimum pause between two offers of free slots. Slots become free one by one;
	// peers need not be notified of each.
	minDemandInterval = 2 * time.Millisecond
	// maxDemandInterval is the interval after which all peers are notified in any case.
	maxDemandInterval = time.Second
)

// demandLoop notifies the peers of free slots of this node's workers.
func (n *Node) demandLoop(ctx context.Context) {
	again := time.NewTimer(n.untilNextRound(maxDemandInterval))
	defer again.Stop()
	gap := time.NewTimer(minDemandInterval)
	defer gap.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.demand:
			if n.peers.Linked() && n.peers.Offer(n.offeredSlots()) {
				n.wakeDemand()
			}
		case <-again.C:
			again.Reset(n.untilNextRound(maxDemandInterval))
			n.shares.removeUnused(time.Now())
			if !n.peers.Linked() {
				continue
			}
			n.peers.Restate(n.offeredSlots())
		}
		gap.Reset(minDemandInterval)
		select {
		case <-ctx.Done():
			return
		case <-gap.C:
		}
	}
}

// offeredSlots are the free slots that peers may send permits for. While Redis does not answer, the node offers
// none: it could not lease.
func (n *Node) offeredSlots() []job.QueueDemand {
	if n.unreachable.Load() {
		return nil
	}
	return n.dispatcher.Demand()
}

// demandChanged assigns slots that became free to this node's shards or to peers, by turns. Slots that peers
// leave in their turn go to this node's shards when it ends.
func (n *Node) demandChanged(freed []dispatch.Freed) {
	for _, x := range freed {
		f := x.Fleet
		wanting := n.peers.Wanting(f.Namespace, f.Queues)
		s := n.shares.fleetShare(f, wanting > 0)
		if s == nil {
			n.scheduler.DemandChanged(f.Namespace, f.Queues)
			continue
		}
		if wanting > 0 && !n.scheduler.Waits(f.Namespace, f.Queues) {
			wanting = 0 // no turn: peers do not compete for these slots
		}
		switch whose, length := s.assignFreed(time.Now(), wanting, x.N); whose {
		case ownTurn:
			n.scheduler.DemandChanged(f.Namespace, f.Queues)
		case peersBegin:
			time.AfterFunc(length, func() {
				s.endPeersTurn()
				n.scheduler.DemandChanged(f.Namespace, f.Queues)
			})
		}
	}
	n.wakeDemand()
}

// scarceShares are the shares of the fleets that serve a lane, if this node's own shards wait for their slots.
// Without such a wait a peer's permit is not evidence about turns.
func (n *Node) scarceShares(l job.Lane) []*slotShare {
	return slices.DeleteFunc(n.shares.servingQueue(l.Namespace, l.Queue), func(s *slotShare) bool {
		return !n.scheduler.Waits(s.fleet.Namespace, s.fleet.Queues)
	})
}

// wakeDemand makes demandLoop notify the peers that need to know of free slots.
func (n *Node) wakeDemand() {
	select {
	case n.demand <- struct{}{}:
	default:
	}
}
