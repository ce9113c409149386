package peer

import (
	"cmp"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// hunger is what a peer makes of what it was told of free slots.
type hunger int

const (
	// sated: it has not permitted as much yet as it was told, or there is no more.
	sated hunger = iota
	// hungry: it has, for a queue with free slots.
	hungry
	// mistaken: it takes queues for served that are not, or the other way round.
	mistaken
)

// turns is the number of offers within which every hungry peer hears of free slots.
const turns = 8

// Offer takes what this node's workers could take by now, to be said to those peers that
// need to hear it. One that has permitted less than it was told can go on without. Of
// those that have used up what they knew, the one that was told longest ago hears of it;
// more tells that there are others, whose turn comes when Offer is called again. Where
// slots are scarce, what has come free goes to one peer at a time: to tell all of them
// would wake them all for a share each, or for nothing. Of more than 8 several hear at
// once, so that each has its turn within 8 calls.
//
// Peers hear at once which queues are served. What is offered is kept for links that come
// up later. Demand is sorted by namespace and queue, each of which it has once.
func (p *Peer) Offer(demand []job.QueueDemand) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var waiting []waiter
	p.take(demand, func(l *link, h hunger, told time.Time) {
		switch {
		case h == mistaken:
			l.queue.say()
		case h == hungry && l.up():
			waiting = append(waiting, waiter{l.queue, told})
		}
	})
	// As many as at the start of the round, though fewer are left of it.
	p.atOnce = max(p.atOnce, (len(waiting)+turns-1)/turns)
	slices.SortFunc(waiting, func(a, b waiter) int { return a.told.Compare(b.told) })
	for _, w := range waiting[:min(p.atOnce, len(waiting))] {
		w.queue.say()
	}
	if more = len(waiting) > p.atOnce; !more {
		p.atOnce = 0
	}
	return more
}

// take takes over an offer, and tells what each peer makes of what it was told, and when
// that was. The caller holds mu.
func (p *Peer) take(demand []job.QueueDemand, each func(*link, hunger, time.Time)) {
	p.offer = p.offer.next(demand)
	p.wanting = append(p.wanting[:0], make([]int, len(demand))...)
	for _, l := range p.links {
		wanting := p.wanting
		if !l.up() {
			wanting = nil
		}
		h, told := l.queue.offer(p.offer, wanting)
		each(l, h, told)
	}
}

// Wanting is how many peers knew of no free slot for one of these queues at the last
// [Peer.Offer], whether there was one or not: of that queue of which it is the most.
func (p *Peer) Wanting(namespace string, queues []string) (most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range queues {
		if i, served := p.offer.find(job.Lane{Namespace: namespace, Queue: name}); served {
			most = max(most, p.wanting[i])
		}
	}
	return min(most, len(p.links)) // of none there may be no offer
}

// waiter is a peer that is hungry, and when it was told last.
type waiter struct {
	queue *queue
	told  time.Time
}

// Restate says to all peers what this node's workers could take, as in Offer.
func (p *Peer) Restate(demand []job.QueueDemand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take(demand, func(l *link, _ hunger, _ time.Time) { l.queue.say() })
}

// offer is a demand that can be compared with others by what queues it is of.
type offer struct {
	demand []job.QueueDemand
	// queues is the same for demands of the same queues, as long as there are no others
	// in between.
	queues uint64
}

// next is the offer that follows.
func (o offer) next(demand []job.QueueDemand) offer {
	if !slices.EqualFunc(demand, o.demand, sameQueue) {
		o.queues++
	}
	o.demand = demand
	return o
}

func sameQueue(a, b job.QueueDemand) bool { return a.Namespace == b.Namespace && a.Queue == b.Queue }

// find returns the place of a lane's queue.
func (o offer) find(lane job.Lane) (int, bool) {
	return slices.BinarySearchFunc(o.demand, lane, func(d job.QueueDemand, l job.Lane) int {
		return cmp.Or(cmp.Compare(d.Namespace, l.Namespace), cmp.Compare(d.Queue, l.Queue))
	})
}

// offer takes the latest offer. It returns what the peer makes of what it was told, and
// when that was; and it counts the peer where wanting has a queue of which it knows of no
// free slot. A nil wanting counts nobody.
func (q *queue) offer(o offer, wanting []int) (hunger, time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.latest = o
	switch {
	case q.unsaid:
		return sated, q.lastSaid // it is about to hear of it
	case o.queues != q.said.queues:
		return mistaken, q.lastSaid
	}
	h := sated
	for i := range o.demand {
		if q.left[i] > 0 {
			continue
		}
		if wanting != nil {
			wanting[i]++
		}
		if o.demand[i].Places() > 0 {
			h = hungry
		}
	}
	return h, q.lastSaid
}

// say has the latest offer sent.
func (q *queue) say() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unsaid = true
	q.signal()
}

// saying notes that the latest offer is sent. The caller holds mu.
func (q *queue) saying(now time.Time) {
	q.unsaid, q.said, q.lastSaid = false, q.latest, now
	q.left = q.left[:0]
	for _, d := range q.said.demand {
		q.left = append(q.left, d.Places())
	}
}

// permitted notes that the peer made use of what it was told. What it permitted in vain
// it takes for free again: then it hears of free slots earlier than it has to.
func (q *queue) permitted(permit job.Permit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, told := q.said.find(permit.Lane); told {
		q.left[i] -= permit.N
	}
}

// disappointed notes that the peer hears of a lane's queue that it has no free slots.
func (q *queue) disappointed(lane job.Lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, told := q.said.find(lane); told {
		q.left[i] = 0
	}
}
