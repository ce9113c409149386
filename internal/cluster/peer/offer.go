package peer

import (
	"cmp"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// demandState is what a peer has left of the free slots that it was last notified of.
type demandState int

const (
	// satisfied: the peer has not used up the slots that it knows of, or there are none to offer.
	satisfied demandState = iota
	// exhausted: the peer has used up the slots that it knows of, for a queue that has free ones. Where slots are
	// plenty, so that they take runs in advance, it has used up so many that it knows of less than half of them: it must
	// not wait for a message before it sends the next permits.
	exhausted
	// staleQueues: the set of served queues has changed since the peer was notified.
	staleQueues
)

// offersPerRound is the number of offers within which every exhausted peer is notified of free slots.
const offersPerRound = 8

// OfferSlots sets the free slots of this node's workers, and notifies the peers that need
// to know of them. A peer that has not used up the slots that it knows of is not notified.
// Of the exhausted peers the one that was notified longest ago is notified; more reports
// that there are others, which are notified when OfferSlots is called again. Where slots are
// scarce, free slots go to one peer at a time: notifying all of them would wake each for
// a small share, or for nothing. If more than 8 peers are exhausted, several are notified
// at once, so that each is notified within 8 calls.
//
// All peers are notified at once when the set of served queues changes. Links that come up
// later start with the latest offer. Demand is sorted by namespace and queue, without
// duplicates.
func (p *Peer) OfferSlots(demand []job.QueueDemand) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var waiting []exhaustedPeer
	p.applyOffer(demand, func(l *link, h demandState, notifiedAt time.Time) {
		switch {
		case h == staleQueues:
			l.queue.scheduleOffer()
		case h == exhausted && l.isUp():
			waiting = append(waiting, exhaustedPeer{l.queue, notifiedAt})
		}
	})
	// As many as at the start of the round, though fewer are left of it.
	p.notifiedAtOnce = max(p.notifiedAtOnce, (len(waiting)+offersPerRound-1)/offersPerRound)
	slices.SortFunc(waiting, func(a, b exhaustedPeer) int { return a.notifiedAt.Compare(b.notifiedAt) })
	for _, w := range waiting[:min(p.notifiedAtOnce, len(waiting))] {
		w.queue.scheduleOffer()
	}
	more = len(waiting) > p.notifiedAtOnce
	if !more {
		p.notifiedAtOnce = 0
	}
	return more
}

// applyOffer stores the offer and calls each with the state of every peer and the time of its last notification.
// The caller holds mu.
func (p *Peer) applyOffer(demand []job.QueueDemand, each func(*link, demandState, time.Time)) {
	demand = p.cutDemand(demand)
	p.latestOffer = p.latestOffer.withDemand(demand)
	p.starvedPeers = append(p.starvedPeers[:0], make([]int, len(demand))...)
	for _, l := range p.links {
		starved := p.starvedPeers
		if !l.isUp() {
			starved = nil
		}
		h, notifiedAt := l.queue.setOffer(p.latestOffer, starved)
		each(l, h, notifiedAt)
	}
}

// cutDemand leaves out queues that do not fit in a message.
func (p *Peer) cutDemand(demand []job.QueueDemand) []job.QueueDemand {
	if len(demand) <= maxDemandQueues {
		return demand
	}
	p.metrics.cut.WithLabelValues("demand").Inc()
	p.o.Logger.Warn("workers serve too many queues; some are left out of the demand for other nodes",
		"queues", len(demand), "sent", maxDemandQueues)
	return demand[:maxDemandQueues]
}

// PeersWithoutSlots returns how many peers knew of no free slot in one of these queues at the last [Peer.OfferSlots],
// whether there was one or not. It is the maximum over the queues.
func (p *Peer) PeersWithoutSlots(namespace string, queues []string) (most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range queues {
		if i, served := p.latestOffer.findQueue(job.Lane{Namespace: namespace, Queue: name}); served {
			most = max(most, p.starvedPeers[i])
		}
	}
	return min(most, len(p.links)) // of none there may be no offer
}

// exhaustedPeer is a peer that has used up its slots, with the time of its last notification.
type exhaustedPeer struct {
	queue      *sendQueue
	notifiedAt time.Time
}

// ResendDemand notifies all peers of this node's free slots, as given to OfferSlots.
func (p *Peer) ResendDemand(demand []job.QueueDemand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applyOffer(demand, func(l *link, _ demandState, _ time.Time) { l.queue.scheduleOffer() })
}

// offer is a demand with a version of its set of queues.
type offer struct {
	demand []job.QueueDemand
	// queuesVersion is the same for demands of the same queues, as long as there are no others
	// in between.
	queuesVersion uint64
}

// withDemand is the offer that follows.
func (o offer) withDemand(demand []job.QueueDemand) offer {
	if !slices.EqualFunc(demand, o.demand, sameQueue) {
		o.queuesVersion++
	}
	o.demand = demand
	return o
}

func sameQueue(a, b job.QueueDemand) bool { return a.Namespace == b.Namespace && a.Queue == b.Queue }

// findQueue returns the place of a lane's queue.
func (o offer) findQueue(lane job.Lane) (int, bool) {
	return slices.BinarySearchFunc(o.demand, lane, func(d job.QueueDemand, l job.Lane) int {
		return cmp.Or(cmp.Compare(d.Namespace, l.Namespace), cmp.Compare(d.Queue, l.Queue))
	})
}

// setOffer stores the latest offer. It returns the state of the peer and the time of its last notification. For
// each queue in which the peer knows of no free slot, it increments that queue's count in starved; nil counts
// nothing.
func (q *sendQueue) setOffer(o offer, starved []int) (demandState, time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.latestOffer = o
	switch {
	case q.offerPending:
		return satisfied, q.offerSentAt // the offer is about to be sent
	case o.queuesVersion != q.sentOffer.queuesVersion:
		return staleQueues, q.offerSentAt
	}
	h := satisfied
	for i := range o.demand {
		d := o.demand[i]
		if !knowsTooFew(q.remaining[i], d) {
			continue
		}
		if starved != nil && q.remaining[i] <= 0 {
			starved[i]++
		}
		if d.Places() > 0 {
			h = exhausted
		}
	}
	return h, q.offerSentAt
}

// scheduleOffer makes the writer send the latest offer.
func (q *sendQueue) scheduleOffer() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.offerPending = true
	q.wakeWriter()
}

// offerPause is the minimum time from the latest demand message to the next one. All queues are in each, so it grows
// with their number. The caller holds mu.
func (q *sendQueue) offerPause() time.Duration {
	return max(demandPause, time.Duration(len(q.sentOffer.demand))*demandPausePerQueue)
}

// markOfferSent notes that the latest offer is sent. The caller holds mu.
func (q *sendQueue) markOfferSent(now time.Time) {
	q.offerPending, q.sentOffer, q.offerSentAt = false, q.latestOffer, now
	q.remaining = q.remaining[:0]
	for _, d := range q.sentOffer.demand {
		q.remaining = append(q.remaining, d.Places())
	}
}

// knowsTooFew reports whether a peer that has so many slots left of those that it knows of should be notified when
// there are more: if it has none, and where slots are plenty, if it has less than half.
func knowsTooFew(left int, d job.QueueDemand) bool {
	return left <= 0 || d.InAdvance && 2*left < d.Free
}

// deductPermits subtracts permits of the peer from the slots that it knows of. The peer counts slots of an
// unused permit as free again, so it may be notified earlier than necessary.
func (q *sendQueue) deductPermits(permits []job.Permit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range permits {
		if i, offered := q.sentOffer.findQueue(p.Lane); offered {
			q.remaining[i] -= p.N
		}
	}
}

// clearFreeSlots notes for which queues the peer is sent a result without free slots.
func (q *sendQueue) clearFreeSlots(results []job.LanePermitResult) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range results {
		if !r.HasNoSlots() {
			continue
		}
		if i, offered := q.sentOffer.findQueue(r.Lane); offered {
			q.remaining[i] = 0
		}
	}
}
