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

// queuedPermits are permits that a peer sent in one message, on their way to the scheduler.
type queuedPermits struct {
	peer    string
	permits []job.Permit
	arrived time.Time
}

// acceptedLease is a call under permits that have slots, with the turns that their lanes may belong to.
type acceptedLease struct {
	lease PermittedLease
	turns map[job.Lane][]*groupTurns
}

// QueuePermits queues permits that a peer sent in one message. A node that stops, or has too many queued permits,
// replies at once that it has no slots, so that the jobs need not wait until the permits expire.
func (a *Allocator) QueuePermits(peer string, permits []job.Permit) {
	n := int64(len(permits))
	if !a.stopped.Load() {
		if a.queued.Add(n) <= maxQueuedPermits {
			// There is room: each message has a permit at least.
			a.permits <- queuedPermits{peer, permits, time.Now()}
			return
		}
		a.queued.Add(-n)
		a.NotifyPeers() // notify the peer of free slots again
	}
	results := make([]job.LanePermitResult, len(permits))
	for i, p := range permits {
		results[i] = job.LanePermitResult{PermitResult: job.PermitResult{ID: p.ID}, Lane: p.Lane}
	}
	a.options.Peers.SendPermitResults(peer, results)
}

// permitLoop reserves slots for peers' permits, one message after the other, and leases under them.
func (a *Allocator) permitLoop(ctx context.Context) {
	accepted := make(chan acceptedLease)
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
		case q := <-a.permits:
			a.queued.Add(-int64(len(q.permits)))
			turns := a.recordRequests(q)
			leases := a.options.Accept(q.peer, q.permits)
			for _, lease := range leases {
				accepted <- acceptedLease{lease, turns}
			}
			if len(leases) == 0 {
				a.NotifyPeers()
			}
		}
	}
}

// recordRequests notes that a peer has come for slots, and returns the turns of each lane. It deducts from each permit
// the time that it has waited.
func (a *Allocator) recordRequests(q queuedPermits) map[job.Lane][]*groupTurns {
	turns, now := make(map[job.Lane][]*groupTurns, 1), time.Now()
	for i := range q.permits {
		p := &q.permits[i]
		p.ValidFor -= now.Sub(q.arrived)
		if _, known := turns[p.Lane]; known {
			continue
		}
		turns[p.Lane] = a.scarceTurns(p.Lane)
		for _, s := range turns[p.Lane] {
			s.recordPeerRequest(now)
		}
	}
	return turns
}

// leaseAccepted leases under permits that have slots, until the channel is closed.
func (a *Allocator) leaseAccepted(ctx context.Context, accepted <-chan acceptedLease) {
	for l := range accepted {
		for lane, leased := range l.lease.Lease(ctx) {
			for _, s := range l.turns[lane] {
				s.recordTaken(leased)
			}
		}
		a.NotifyPeers() // the peer may have used up the slots that it knows of
	}
}
