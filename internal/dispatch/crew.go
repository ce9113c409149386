package dispatch

import (
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/minheap"
)

// crew are the sessions that serve a queue. Those that can take an attempt wait in
// heaps, the least loaded first, so that to find one costs the same however many there
// are.
type crew struct {
	queue queueKey
	seats []*seat
	stale []*seat             // whose sessions have changed since they were looked at
	slots minheap.Heap[*turn] // sessions with free slots
	ahead minheap.Heap[*turn] // those with places to wait for a slot
	free  int                 // slots of all
	wait  int                 // places of all to wait for one
}

// seat is a session's in one of its crews.
type seat struct {
	s     *Session
	crew  *crew
	place int // in the crew's seats
	free  int // counted in the crew
	wait  int // the same
	slots turn
	ahead turn
}

// turn is a seat's place in a heap. The key is that of the last time it was looked at:
// if it has changed since, the seat is among the crew's stale ones.
type turn struct {
	s    *Session
	load float64 // part of the slots that is taken
	last uint64  // when the session was last given something, in turns of the dispatcher
	at   int
	part int // of the reservation that is being made, see partOf
}

// Before orders sessions by load, and those of equal load by when they had their last
// turn: a worker that fails everything at once is always idle, and must not get all.
func (t *turn) Before(other *turn) bool {
	if t.load != other.load {
		return t.load < other.load
	}
	return t.last < other.last
}

// Place is that in the heap.
func (t *turn) Place() *int { return &t.at }

// join gives the session a seat in the crew.
func (c *crew) join(s *Session) {
	x := &seat{s: s, crew: c, place: len(c.seats), slots: turn{s: s}, ahead: turn{s: s}}
	c.seats = append(c.seats, x)
	s.seats = append(s.seats, x)
	s.fresh = append(s.fresh, x)
}

// leave ends a seat of a session that is closed.
func (c *crew) leave(x *seat) {
	c.look() // which forgets it, should it be stale
	x.put(&c.slots, &x.slots, 0)
	x.put(&c.ahead, &x.ahead, 0)
	c.free -= x.free
	c.wait -= x.wait
	last := len(c.seats) - 1
	c.seats[x.place] = c.seats[last]
	c.seats[x.place].place = x.place
	c.seats[last] = nil
	c.seats = c.seats[:last]
}

// look brings the seat in line with its session.
func (x *seat) look() {
	free, ahead := x.s.free(), x.s.ahead()
	wait := max(0, ahead-free)
	x.crew.free += free - x.free
	x.crew.wait += wait - x.wait
	x.free, x.wait = free, wait
	x.put(&x.crew.slots, &x.slots, free)
	x.put(&x.crew.ahead, &x.ahead, ahead)
}

// put brings a turn in line with its session, which has room for so many.
func (x *seat) put(h *minheap.Heap[*turn], t *turn, room int) {
	if room <= 0 {
		if t.at > 0 {
			h.Remove(t)
		}
		return
	}
	t.load, t.last = x.s.load(), x.s.last
	if t.at > 0 {
		h.Fix(t)
	} else {
		h.Push(t)
	}
}

// changed notes that the session's room or load is not what its crews have. Each of them
// looks at it when it is asked: of a session's many queues few are, between two changes.
// The caller holds the mutex.
func (s *Session) changed() {
	for _, x := range s.fresh {
		x.crew.stale = append(x.crew.stale, x)
	}
	s.fresh = s.fresh[:0]
}

// look brings the crew in line with its sessions.
func (c *crew) look() {
	for _, x := range c.stale {
		if !x.s.closed {
			x.look()
			x.s.fresh = append(x.s.fresh, x)
		}
	}
	clear(c.stale)
	c.stale = c.stale[:0]
}

// crewOf returns the sessions that serve a queue as they are now; nil if there are none.
// The caller holds the mutex.
func (d *Dispatcher) crewOf(k queueKey) *crew {
	c := d.mu.crews[k]
	if c != nil {
		c.look()
	}
	return c
}

// allCrews returns the sessions of all queues as they are now, sorted by queue. The caller
// holds the mutex.
func (d *Dispatcher) allCrews() []*crew {
	if d.mu.sorted == nil {
		d.mu.sorted = slices.SortedFunc(maps.Values(d.mu.crews), func(a, b *crew) int { return a.queue.compare(b.queue) })
	}
	for _, c := range d.mu.sorted {
		c.look()
	}
	return d.mu.sorted
}
