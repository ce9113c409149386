package slotshare

import (
	"context"
	"time"
)

const (
	// minOfferInterval is the minimum pause between two offers of free slots. Slots become free one by one; peers
	// need not be notified of each.
	minOfferInterval = 2 * time.Millisecond
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
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
			if a.options.Peers.HasPeers() && a.options.Peers.OfferSlots(a.options.FreeSlots()) {
				a.NotifyPeers()
			}
		case <-restate.C:
			restate.Reset(a.untilRestate())
			a.turns.removeUnused(time.Now())
			if !a.options.Peers.HasPeers() {
				continue
			}
			a.options.Peers.ResendDemand(a.options.FreeSlots())
		}
		pause.Reset(minOfferInterval)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

func (a *Allocator) untilRestate() time.Duration {
	return a.options.Cadence.UntilNext(time.Now(), maxOfferInterval)
}
