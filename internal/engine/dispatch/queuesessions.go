package dispatch

import (
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/lib/minheap"
)

// queueSessions are the sessions that serve a queue. Those that can take an attempt are in heaps, the least
// loaded first, so that finding one costs the same however many there are.
type queueSessions struct {
	queue      queueKey
	members    []*membership
	outdated   []*membership            // those whose sessions have changed since the last refresh
	bySlots    minheap.Heap[*heapEntry] // sessions with free slots
	byPlaces   minheap.Heap[*heapEntry] // sessions with places to wait for a slot
	freeSlots  int                      // slots of all
	waitPlaces int                      // places of all to wait for one
}

// membership is one session's membership in the sessions of a queue.
type membership struct {
	s             *Session
	group         *queueSessions
	memberIndex   int // in members
	countedFree   int // counted in freeSlots
	countedPlaces int // counted in waitPlaces
	slotEntry     heapEntry
	placeEntry    heapEntry
}

// heapEntry is a membership's entry in a heap. Its key is from the last refresh: if the session has changed
// since, the membership is among the outdated ones.
type heapEntry struct {
	s         *Session
	load      float64 // part of the slots that is taken
	lastGrant uint64  // grant counter when the session was last given a slot
	heapPlace int
	partIndex int // of the reservation that is being made, see partOfSession
}

// Before orders sessions by load, and those of equal load by their last grant: a worker that fails everything at
// once is always idle, and must not get all attempts.
func (t *heapEntry) Before(other *heapEntry) bool {
	if t.load != other.load {
		return t.load < other.load
	}
	return t.lastGrant < other.lastGrant
}

// Place is that in the heap.
func (t *heapEntry) Place() *int { return &t.heapPlace }

// addSession adds a session.
func (c *queueSessions) addSession(s *Session) {
	x := &membership{s: s, group: c, memberIndex: len(c.members), slotEntry: heapEntry{s: s},
		placeEntry: heapEntry{s: s}}
	c.members = append(c.members, x)
	s.memberships = append(s.memberships, x)
	s.upToDate = append(s.upToDate, x)
}

// removeMember removes the membership of a closed session.
func (c *queueSessions) removeMember(x *membership) {
	c.refreshOutdated() // removes it from the outdated ones
	x.updateEntry(&c.bySlots, &x.slotEntry, 0)
	x.updateEntry(&c.byPlaces, &x.placeEntry, 0)
	c.freeSlots -= x.countedFree
	c.waitPlaces -= x.countedPlaces
	last := len(c.members) - 1
	c.members[x.memberIndex] = c.members[last]
	c.members[x.memberIndex].memberIndex = x.memberIndex
	c.members[last] = nil
	c.members = c.members[:last]
}

// refreshCounts updates the membership from its session.
func (x *membership) refreshCounts() {
	free, ahead := x.s.freeSlots(), x.s.placesToWait()
	wait := max(0, ahead-free)
	x.group.freeSlots += free - x.countedFree
	x.group.waitPlaces += wait - x.countedPlaces
	x.countedFree, x.countedPlaces = free, wait
	x.updateEntry(&x.group.bySlots, &x.slotEntry, free)
	x.updateEntry(&x.group.byPlaces, &x.placeEntry, ahead)
}

// updateEntry updates a heap entry from its session, which has room for that many attempts.
func (x *membership) updateEntry(h *minheap.Heap[*heapEntry], t *heapEntry, room int) {
	if room <= 0 {
		if t.heapPlace > 0 {
			h.Remove(t)
		}
		return
	}
	t.load, t.lastGrant = x.s.loadRatio(), x.s.lastGrant
	if t.heapPlace > 0 {
		h.Fix(t)
	} else {
		h.Push(t)
	}
}

// markOutdated notes that the session's room or load has changed. Its queues update their counts when they are
// used: between two changes, few of a session's queues are. The caller holds the mutex.
func (s *Session) markOutdated() {
	for _, x := range s.upToDate {
		x.group.outdated = append(x.group.outdated, x)
	}
	s.upToDate = s.upToDate[:0]
}

// refreshOutdated updates the outdated memberships.
func (c *queueSessions) refreshOutdated() {
	for _, x := range c.outdated {
		if !x.s.closed {
			x.refreshCounts()
			x.s.upToDate = append(x.s.upToDate, x)
		}
	}
	clear(c.outdated)
	c.outdated = c.outdated[:0]
}

// sessionsOf returns the current sessions of a queue; nil if there are none. The caller holds the mutex.
func (d *Dispatcher) sessionsOf(k queueKey) *queueSessions {
	c := d.mu.queues[k]
	if c != nil {
		c.refreshOutdated()
	}
	return c
}

// sessionsByQueue returns the current sessions of all queues, sorted by queue. The caller holds the mutex.
func (d *Dispatcher) sessionsByQueue() []*queueSessions {
	if d.mu.sortedQueues == nil {
		d.mu.sortedQueues = slices.SortedFunc(maps.Values(d.mu.queues),
			func(a, b *queueSessions) int { return a.queue.compareTo(b.queue) })
	}
	for _, c := range d.mu.sortedQueues {
		c.refreshOutdated()
	}
	return d.mu.sortedQueues
}
