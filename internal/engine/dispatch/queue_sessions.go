package dispatch

import (
	"slices"

	"github.com/fermata-io/fermata/internal/lib/fairshare"
	"github.com/fermata-io/fermata/internal/lib/minheap"
)

// queueSessions are the sessions that serve a queue. Those that can take an attempt are in heaps, the least
// loaded first, so that finding one costs the same however many there are.
type queueSessions struct {
	queue      queueKey
	holder     fairshare.Holder // of the queue's place in queueShares
	entries    []*queueEntry
	outdated   []*queueEntry            // those whose sessions have changed since the last refresh
	bySlots    minheap.Heap[*heapEntry] // sessions with free slots
	byPlaces   minheap.Heap[*heapEntry] // sessions with places to wait for a slot
	freeSlots  int                      // slots of all
	waitPlaces int                      // places of all to wait for one
}

// queueEntry is the entry of a session in the sessions of one queue.
type queueEntry struct {
	s             *Session
	sessions      *queueSessions
	index         int // in members
	countedFree   int // counted in freeSlots
	countedPlaces int // counted in waitPlaces
	slotEntry     heapEntry
	placeEntry    heapEntry
}

// heapEntry is the part of a queueEntry that is in a heap. Its key is from the last refresh: if the session has changed
// since, the queueEntry is among the outdated ones.
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
	x := &queueEntry{s: s, sessions: c, index: len(c.entries), slotEntry: heapEntry{s: s},
		placeEntry: heapEntry{s: s}}
	c.entries = append(c.entries, x)
	s.queueEntries = append(s.queueEntries, x)
	s.upToDateEntries = append(s.upToDateEntries, x)
}

// removeEntry removes the entry of a closed session.
func (c *queueSessions) removeEntry(x *queueEntry) {
	c.refreshOutdated() // removes it from the outdated ones
	x.updateEntry(&c.bySlots, &x.slotEntry, 0)
	x.updateEntry(&c.byPlaces, &x.placeEntry, 0)
	c.freeSlots -= x.countedFree
	c.waitPlaces -= x.countedPlaces
	last := len(c.entries) - 1
	c.entries[x.index] = c.entries[last]
	c.entries[x.index].index = x.index
	c.entries[last] = nil
	c.entries = c.entries[:last]
}

// refreshCounts updates the entry from its session.
func (x *queueEntry) refreshCounts() {
	free, ahead := x.s.freeSlots(), x.s.placesToWait()
	wait := max(0, ahead-free)
	x.sessions.freeSlots += free - x.countedFree
	x.sessions.waitPlaces += wait - x.countedPlaces
	x.countedFree, x.countedPlaces = free, wait
	x.updateEntry(&x.sessions.bySlots, &x.slotEntry, free)
	x.updateEntry(&x.sessions.byPlaces, &x.placeEntry, ahead)
}

// updateEntry updates a heap entry from its session, which has room for that many attempts.
func (x *queueEntry) updateEntry(h *minheap.Heap[*heapEntry], t *heapEntry, room int) {
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
	for _, x := range s.upToDateEntries {
		x.sessions.outdated = append(x.sessions.outdated, x)
	}
	s.upToDateEntries = s.upToDateEntries[:0]
}

// refreshOutdated updates the outdated entries.
func (c *queueSessions) refreshOutdated() {
	for _, x := range c.outdated {
		if !x.s.closed {
			x.refreshCounts()
			x.s.upToDateEntries = append(x.s.upToDateEntries, x)
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
	for _, c := range d.mu.sortedQueues {
		c.refreshOutdated()
	}
	return d.mu.sortedQueues
}

// addQueue adds a queue without sessions, which has taken a place of the holder. The caller holds the mutex.
func (d *Dispatcher) addQueue(k queueKey, holder fairshare.Holder) *queueSessions {
	c := &queueSessions{queue: k, holder: holder}
	d.mu.queues[k] = c
	i, _ := d.findSorted(k)
	d.mu.sortedQueues = slices.Insert(d.mu.sortedQueues, i, c)
	d.o.OnServed(k.namespace, k.queue, true)
	return c
}

// removeQueue removes a queue that has no sessions any more, and returns its place. The caller holds the mutex.
func (d *Dispatcher) removeQueue(c *queueSessions) {
	delete(d.mu.queues, c.queue)
	i, _ := d.findSorted(c.queue)
	d.mu.sortedQueues = slices.Delete(d.mu.sortedQueues, i, i+1)
	d.mu.queueShares.Release(c.holder)
	d.o.OnServed(c.queue.namespace, c.queue.queue, false)
}

// findSorted returns the place of a queue among the sorted ones. The caller holds the mutex.
func (d *Dispatcher) findSorted(k queueKey) (int, bool) {
	return slices.BinarySearchFunc(d.mu.sortedQueues, k,
		func(c *queueSessions, k queueKey) int { return c.queue.compareTo(k) })
}
