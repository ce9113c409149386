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

// Nudge tells the holder of a shard that lanes became due earlier: this node's
// own loop, or the peer whose lock value the script saw.
func (n *Node) Nudge(shard int, heads []job.LaneHead, holder string) {
	if _, held := n.locks.Held(shard); held {
		n.scheduler.Nudge(shard, heads)
		return
	}
	peer, _, ok := shardlock.ParseHolder(holder)
	if !ok || peer == n.cfg.Name {
		return // nobody holds it: whoever wins it reads its lanes
	}
	for _, h := range heads {
		n.peers.Nudge(peer, shard, h)
	}
}

// held is the lock value of a shard while this node may trust it.
func (n *Node) held(shard int) (string, bool) {
	grip, ok := n.locks.Held(shard)
	return grip.Value, ok
}

// redisLatency is how long Redis takes to answer this node now.
func (n *Node) redisLatency() time.Duration { return n.latency.value(time.Now()) }

// slots adapts the dispatcher to what the admission asks for.
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

// gates adapts the admission to what the scheduler and the dispatcher ask for, both
// of which are built before it.
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

// CancelAttempt cancels an attempt wherever it is.
func (n *Node) CancelAttempt(record string, token uint64) {
	if !n.dispatcher.CancelAttempt(record, token) {
		n.peers.BroadcastCancel(record, token)
	}
}

// The methods below are what the peer links call.

// OnDemand takes a peer's free slots.
func (n *Node) OnDemand(peer string, demand []job.QueueDemand) {
	n.telemetry.PeerServes(peer, demand)
	n.scheduler.PeerDemand(peer, demand)
}

// OnLinkDown forgets a peer's free slots.
func (n *Node) OnLinkDown(peer string) { n.OnDemand(peer, nil) }

// OnGone moves the shards of a node whose process has ended.
func (n *Node) OnGone(peer string) {
	n.locks.Gone(peer)
	n.dispatcher.AddressesChanged()
}

// OnBack takes OnGone back.
func (n *Node) OnBack(peer string) {
	n.locks.Back(peer)
	n.dispatcher.AddressesChanged()
}

// OnAddress has workers hear of a node that has confirmed its address.
func (n *Node) OnAddress(string) { n.dispatcher.AddressesChanged() }

// OnNudge takes a peer's word that a lane became due earlier.
func (n *Node) OnNudge(shard int, head job.LaneHead) {
	n.scheduler.Nudge(shard, []job.LaneHead{head})
}

// OnPermit queues a peer's permit. A node that stops has no slots, nor has one with too
// many permits, and says so: the jobs need not wait until the permit expires.
func (n *Node) OnPermit(peer string, p job.Permit) {
	if n.ctx.Err() == nil {
		select {
		case n.permits <- permit{peer, p, time.Now()}:
			return
		default:
			n.wakeDemand() // the peer is to hear of free slots again
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
	// permitLeasers is the number of leasing calls under permits at once.
	permitLeasers = 8
	// permitQueue is how many wait for slots: as many as a peer sends at once where a great
	// many lanes fall due. Those that have waited too long are not used.
	permitQueue = 4096
)

// permitLoop has peers' permits get slots, one after the other, and leases under them.
func (n *Node) permitLoop(ctx context.Context) {
	accepted := make(chan acceptedPermit)
	var leasers sync.WaitGroup
	for range permitLeasers {
		leasers.Go(func() { n.leasePermitted(ctx, accepted) })
	}
	defer leasers.Wait()
	defer close(accepted)
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-n.permits:
			turns := n.scarce(p.permit.Lane)
			now := time.Now()
			for _, s := range turns {
				s.ask(now)
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

// acceptedPermit is a permit that has slots, and whose turns it may be a part of.
type acceptedPermit struct {
	*scheduler.Accepted
	turns []*share
}

// leasePermitted leases under permits that have slots, until there will be no more.
func (n *Node) leasePermitted(ctx context.Context, accepted <-chan acceptedPermit) {
	for a := range accepted {
		leased := a.Lease(ctx)
		for _, s := range a.turns {
			s.took(leased)
		}
		n.wakeDemand() // the peer may have used up what it knew of
	}
}

// OnPermitResult takes a peer's answer to a permit.
func (n *Node) OnPermitResult(peer string, r job.PermitResult) { n.scheduler.PermitResult(peer, r) }

// OnHandOver takes a peer's word that it released shards.
func (n *Node) OnHandOver(shards []int) { n.locks.Wake(shards...) }

// OnCancel cancels an attempt of a worker of this node.
func (n *Node) OnCancel(record string, token uint64) { n.dispatcher.CancelAttempt(record, token) }

// Describe is what this node tells peers of itself.
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
		Durability: n.durability(), Workers: n.dispatcher.Workers(), Queues: n.telemetry.Recent(),
	}
}

const (
	// demandGap is the least pause between two words about free slots. Slots come
	// free one by one; peers need not hear of each.
	demandGap = 2 * time.Millisecond
	// demandEvery is when all peers hear of them anyway.
	demandEvery = time.Second
)

// demandLoop tells the peers what this node's workers could take.
func (n *Node) demandLoop(ctx context.Context) {
	again := time.NewTimer(n.until(demandEvery))
	defer again.Stop()
	gap := time.NewTimer(demandGap)
	defer gap.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.demand:
			if n.peers.Linked() && n.peers.Offer(n.offered()) {
				n.wakeDemand()
			}
		case <-again.C:
			again.Reset(n.until(demandEvery))
			n.shares.prune(time.Now())
			if !n.peers.Linked() {
				continue
			}
			n.peers.Restate(n.offered())
		}
		gap.Reset(demandGap)
		select {
		case <-ctx.Done():
			return
		case <-gap.C:
		}
	}
}

// offered are the free slots that peers may send permits for. A node that Redis does
// not answer could not use one.
func (n *Node) offered() []job.QueueDemand {
	if n.dark.Load() {
		return nil
	}
	return n.dispatcher.Demand()
}

// demandChanged wakes whoever waits for slots that have come free and has its turn. What peers
// leave in theirs is for this node's own shards when it ends.
func (n *Node) demandChanged(freed []dispatch.Freed) {
	for _, x := range freed {
		f := x.Fleet
		wanting := n.peers.Wanting(f.Namespace, f.Queues)
		s := n.shares.of(f, wanting > 0)
		if s == nil {
			n.scheduler.DemandChanged(f.Namespace, f.Queues)
			continue
		}
		if wanting > 0 && !n.scheduler.Waits(f.Namespace, f.Queues) {
			wanting = 0 // nobody takes anything from them
		}
		switch whose, length := s.came(time.Now(), wanting, x.N); whose {
		case ownTurn:
			n.scheduler.DemandChanged(f.Namespace, f.Queues)
		case peersBegin:
			time.AfterFunc(length, func() {
				s.over()
				n.scheduler.DemandChanged(f.Namespace, f.Queues)
			})
		}
	}
	n.wakeDemand()
}

// scarce are the shares of the fleets that serve a lane, if this node's own shards wait for
// their slots: of others it says nothing that a peer comes for one.
func (n *Node) scarce(l job.Lane) []*share {
	return slices.DeleteFunc(n.shares.serving(l.Namespace, l.Queue), func(s *share) bool {
		return !n.scheduler.Waits(s.fleet.Namespace, s.fleet.Queues)
	})
}

// wakeDemand has demandLoop look who needs to hear of free slots.
func (n *Node) wakeDemand() {
	select {
	case n.demand <- struct{}{}:
	default:
	}
}
