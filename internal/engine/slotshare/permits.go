package slotshare

import (
	"context"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// maxPermitCalls is the maximum number of concurrent leasing calls under permits.
	maxPermitCalls = 8
	// maxQueuedPermits is the number of permits that may wait for slots: as many as a peer sends at once when
	// very many lanes become due. Permits that have waited too long are not used.
	maxQueuedPermits = 4096
)

// queuedPermit is a peer's permit on its way to the scheduler.
type queuedPermit struct {
	peer    string
	permit  job.Permit
	arrived time.Time
}

// acceptedPermit is a permit that has slots, with the turns that it may belong to.
type acceptedPermit struct {
	lease func(context.Context) int
	turns []*groupTurns
}

// QueuePermit queues a peer's permit. A node that stops, or has too many queued permits, replies at once that it
// has no slots, so that the jobs need not wait until the permit expires.
func (a *Allocator) QueuePermit(peer string, p job.Permit) {
	if !a.stopped.Load() {
		select {
		case a.permits <- queuedPermit{peer, p, time.Now()}:
			return
		default:
			a.NotifyPeers() // notify the peer of free slots again
		}
	}
	a.options.Peers.SendPermitResult(peer, p.Lane, job.PermitResult{ID: p.ID})
}

// permitLoop reserves slots for peers' permits, one after the other, and leases under them.
func (a *Allocator) permitLoop(ctx context.Context) {
	accepted := make(chan acceptedPermit)
	var leasers sync.WaitGroup
	for range maxPermitCalls {
		leasers.Go(func() { a.leaseAccepted(ctx, accepted) })
	}
	defer leasers.Wait()
	defer close(accepted)
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-a.permits:
			turns := a.scarceTurns(p.permit.Lane)
			now := time.Now()
			for _, s := range turns {
				s.recordPeerRequest(now)
			}
			p.permit.ValidFor -= now.Sub(p.arrived)
			if lease := a.options.Accept(p.peer, p.permit); lease != nil {
				accepted <- acceptedPermit{lease, turns}
			} else {
				a.NotifyPeers()
			}
		}
	}
}

// leaseAccepted leases under permits that have slots, until the channel is closed.
func (a *Allocator) leaseAccepted(ctx context.Context, accepted <-chan acceptedPermit) {
	for p := range accepted {
		leased := p.lease(ctx)
		for _, s := range p.turns {
			s.recordTaken(leased)
		}
		a.NotifyPeers() // the peer may have used up the slots that it knows of
	}
}
