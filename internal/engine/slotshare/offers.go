package slotshare

import (
	"context"
	"time"
)

const (
	// minOfferInterval is the minimum pause between two offers of free slots. Slots become free one by one; peers
	// need not be notified of each.
	minOfferInterval = 2 * time.Millisecond
	// offerIntervalPerQueue lengthens it: it is some twenty times what listing the free slots of a queue takes.
	offerIntervalPerQueue = 2 * time.Microsecond
	// maxOfferInterval is the interval after which all peers are notified in any case.
	maxOfferInterval = time.Second
)

// NotifyPeers makes the offer loop notify the peers that need to know of free slots.
func (a *Allocator) NotifyPeers() {
	select {
	case a.changed <- struct{}{}:
	default: // the loop is already signalled
	}
}

// offerLoop notifies the peers of free slots of this node's workers.
func (a *Allocator) offerLoop(ctx context.Context) {
	restate := time.NewTimer(a.untilRestate())
	defer restate.Stop()
	pause := time.NewTimer(minOfferInterval)
	defer pause.Stop()
	for {
		queues := 0
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
			queues = a.offerSlots()
		case <-restate.C:
			restate.Reset(a.untilRestate())
			a.turns.removeUnused(time.Now())
			if !a.options.Peers.HasPeers() {
				continue
			}
			free := a.options.FreeSlots()
			queues = len(free)
			a.options.Peers.ResendDemand(free)
		}
		pause.Reset(max(minOfferInterval, time.Duration(queues)*offerIntervalPerQueue))
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// offerSlots offers the free slots to the peers that need to know of them. It returns the number of queues.
func (a *Allocator) offerSlots() (queues int) {
	if !a.options.Peers.HasPeers() {
		return 0
	}
	free := a.options.FreeSlots()
	if a.options.Peers.OfferSlots(free) {
		a.NotifyPeers()
	}
	return len(free)
}

func (a *Allocator) untilRestate() time.Duration {
	return a.options.Cadence.UntilNext(time.Now(), maxOfferInterval)
}
