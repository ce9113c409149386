package peer

import (
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// hunger is what a peer makes of what it was told of free slots.
type hunger int

const (
	// sated: it has not permitted as much yet as it was told.
	sated hunger = iota
	// hungry: it has, for a queue with free slots.
	hungry
	// mistaken: it takes queues for served that are not, or the other way round.
	mistaken
)

// Offer takes what this node's workers could take by now, to be said to those peers that
// need to hear it. One that has permitted less than it was told can go on without. Of
// those that have used up what they knew, the one that was told longest ago hears of it;
// more tells that there are others, whose turn comes when Offer is called again. Where
// slots are scarce, what has come free goes to one peer at a time: to tell all of them
// would wake them all for a share each, or for nothing.
//
// Peers hear at once which queues are served. What is offered is kept for links that come
// up later.
func (p *Peer) Offer(demand []job.QueueDemand) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.demand = demand
	var next *link
	var since time.Time
	waiting := 0
	for _, l := range p.links {
		h, told := l.queue.offer(demand)
		switch {
		case h == mistaken:
			l.queue.say()
		case h == hungry && l.up():
			if waiting++; next == nil || told.Before(since) {
				next, since = l, told
			}
		}
	}
	if next != nil {
		next.queue.say()
	}
	return waiting > 1
}

// Restate says to all peers what this node's workers could take.
func (p *Peer) Restate(demand []job.QueueDemand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.demand = demand
	for _, l := range p.links {
		l.queue.offer(demand)
		l.queue.say()
	}
}

// offer takes the latest demand. It returns what the peer makes of what it was told, and
// when that was.
func (q *queue) offer(demand []job.QueueDemand) (hunger, time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.demand = demand
	switch {
	case q.unsaid:
		return sated, q.lastSaid // it is about to hear of it
	case !slices.EqualFunc(demand, q.said, sameQueue):
		return mistaken, q.lastSaid
	}
	for _, d := range demand {
		if d.Free > 0 && q.left[keyOf(d)] <= 0 {
			return hungry, q.lastSaid
		}
	}
	return sated, q.lastSaid
}

func sameQueue(a, b job.QueueDemand) bool { return keyOf(a) == keyOf(b) }

func keyOf(d job.QueueDemand) job.QueueKey {
	return job.QueueKey{Namespace: d.Namespace, Queue: d.Queue}
}

// say has the latest demand sent.
func (q *queue) say() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unsaid = true
	q.signal()
}

// saying notes that the latest demand is sent. The caller holds mu.
func (q *queue) saying(now time.Time) {
	q.unsaid, q.said, q.lastSaid = false, q.demand, now
	clear(q.left)
	for _, d := range q.demand {
		q.left[keyOf(d)] = d.Free
	}
}

// permitted notes that the peer made use of what it was told. What it permitted in vain
// it takes for free again: then it hears of free slots earlier than it has to.
func (q *queue) permitted(permit job.Permit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left[job.QueueKey{Namespace: permit.Lane.Namespace, Queue: permit.Lane.Queue}] -= permit.N
}

// disappointed notes that the peer hears of a queue that it has no free slots.
func (q *queue) disappointed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.left)
}
