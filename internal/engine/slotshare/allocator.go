package slotshare

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/ticks"
)

// WorkerGroup has the workers of this node that serve the same queues. Each group is one value, which can be a map key.
type WorkerGroup interface {
	Serves(namespace, queue string) bool
	ServedQueues() (namespace string, queues []string)
}

// Scheduler runs the jobs of this node's own shards.
type Scheduler interface {
	// DemandChanged notes that slots became free that serve these queues.
	DemandChanged(namespace string, queues []string)
	// HasWaitingLanes reports whether a due record in own shards waits for a slot of one of these queues.
	HasWaitingLanes(namespace string, queues []string) bool
}

// Peers are the links to other nodes.
type Peers interface {
	// HasPeers reports whether there are peers to notify of free slots.
	HasPeers() bool
	// PeersWithoutSlots returns how many peers know of no free slot in one of these queues.
	PeersWithoutSlots(namespace string, queues []string) int
	// OfferSlots notifies the peers that need to know of free slots. More reports that it has to be called again.
	OfferSlots(free []job.QueueDemand) (more bool)
	// ResendDemand notifies all peers of the free slots.
	ResendDemand(free []job.QueueDemand)
	// SendPermitResults sends a peer the results of permits that it sent in one message.
	SendPermitResults(peer string, results []job.LanePermitResult)
}

// PermittedLease leases under permits for which slots are reserved. Lease returns the number of leases in each lane.
type PermittedLease interface {
	Lease(context.Context) map[job.Lane]int
}

// Options configure an allocator. All are required except Cadence.
type Options struct {
	Scheduler Scheduler
	Peers     Peers
	// Accept reserves slots for permits that a peer sent in one message. It returns what leases under them: one call
	// for all, and others for those that may have to wait. It returns fewer, or none, if there are no slots, or if
	// permits are not to be used; it then sends their results.
	Accept func(peer string, permits []job.Permit) []PermittedLease
	// FreeSlots are the slots that peers may send permits for.
	FreeSlots func() []job.QueueDemand
	Cadence   ticks.Alignment
}

// Allocator divides free slots between this node's own shards and its peers.
type Allocator struct {
	options Options
	turns   turnTable
	changed chan struct{} // signals the offer loop that free slots, or the peers, have changed
	permits chan queuedPermits
	queued  atomic.Int64 // permits in it
	stopped atomic.Bool
}

// New returns an allocator. Its loops start with Run.
func New(o Options) *Allocator {
	return &Allocator{options: o, changed: make(chan struct{}, 1), permits: make(chan queuedPermits, maxQueuedPermits)}
}

// Run offers slots to peers and leases under their permits, until the context ends.
func (a *Allocator) Run(ctx context.Context) error {
	defer a.stopped.Store(true)
	context.AfterFunc(ctx, func() { a.stopped.Store(true) })
	var loops sync.WaitGroup
	loops.Go(func() { a.offerLoop(ctx) })
	loops.Go(func() { a.permitLoop(ctx) })
	loops.Wait()
	return nil
}

// AssignFreed gives n slots of a group that became free to own shards or to peers, by turns. Slots that peers leave
// in their turn go to own shards when it ends. The caller calls NotifyPeers afterwards.
func (a *Allocator) AssignFreed(f WorkerGroup, n int) {
	namespace, queues := f.ServedQueues()
	wanting := a.options.Peers.PeersWithoutSlots(namespace, queues)
	s := a.turns.turnsOf(f, wanting > 0)
	if s == nil {
		a.options.Scheduler.DemandChanged(namespace, queues)
		return
	}
	if wanting > 0 && !a.options.Scheduler.HasWaitingLanes(namespace, queues) {
		wanting = 0 // no turn: own shards do not compete for these slots
	}
	switch whose, length := s.assignFreed(time.Now(), wanting, n); whose {
	case ownTurn:
		a.options.Scheduler.DemandChanged(namespace, queues)
	case peersBegin:
		time.AfterFunc(length, func() {
			s.endPeersTurn()
			a.options.Scheduler.DemandChanged(namespace, queues)
		})
	}
}

// scarceTurns are the turns of the groups that serve a lane, if own shards wait for their slots. Without such a
// wait a peer's permit is not evidence about turns.
func (a *Allocator) scarceTurns(l job.Lane) []*groupTurns {
	return slices.DeleteFunc(a.turns.turnsForQueue(l.Namespace, l.Queue), func(s *groupTurns) bool {
		return !a.options.Scheduler.HasWaitingLanes(s.group.ServedQueues())
	})
}
