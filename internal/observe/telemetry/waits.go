package telemetry

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// minExplainedLag is the least lag whose cause is looked for: a start itself takes less.
	minExplainedLag = 20 * time.Millisecond
	// spellJoinGap joins refusals that are no further apart: a queue at its limit is asked
	// for again and again.
	spellJoinGap = time.Second
	// maxWaits bounds the queues whose waits are remembered.
	maxWaits = 2000
)

// Reasons of a wait before the lease, as fermata_held_seconds_total has them. Those of limits
// that are asked for before the lease are the same as where a gate finds them.
const (
	heldWorker = "no_worker"
	heldSlot   = "slot"
	heldRate   = "rate"
	heldPaused = "queue_paused"
)

// waitTracker remembers for each queue when it was last without a worker anywhere in the cluster, as far as this
// node knows, and when a limit last kept this node from leasing. So the cause of a run's wait is known when it
// starts.
type waitTracker struct {
	now func() time.Time

	mu       sync.RWMutex
	since    time.Time                     // earlier states are unknown
	services map[job.QueueKey]queueService // all queues that a worker of some node serves, and no others
	peers    map[string][]job.QueueKey     // what their workers serve
	queues   map[job.QueueKey]*queueWaits  // at most maxWaits
	served   int                           // those of queues that have a service
}

// queueService is who serves a queue. It is kept apart from the waits of the queue, which may have no room at first and
// get it later.
type queueService struct {
	here  bool // a worker of this node
	peers int  // workers of as many peers
}

// queueWaits are the last spell of each kind.
type queueWaits struct {
	unserved   idleSpell
	paused     idleSpell // as far as this node knows
	room, rate idleSpell
}

// idleSpell is a time in which a queue started nothing, for one reason. It lasts while until is zero; without a
// beginning there was none.
type idleSpell struct{ from, until time.Time }

// overlapWith is how much of a wait lies in the spell.
func (s idleSpell) overlapWith(from, to time.Time) time.Duration {
	if s.from.IsZero() {
		return 0
	}
	if from.Before(s.from) {
		from = s.from
	}
	if !s.until.IsZero() && s.until.Before(to) {
		to = s.until
	}
	return max(0, to.Sub(from))
}

// intersect is the time in which both spells lasted.
func (s idleSpell) intersect(o idleSpell) idleSpell {
	if s.from.IsZero() || o.from.IsZero() {
		return idleSpell{}
	}
	if s.from.Before(o.from) {
		s.from = o.from
	}
	if s.until.IsZero() || !o.until.IsZero() && o.until.Before(s.until) {
		s.until = o.until
	}
	return s
}

func newWaits(now func() time.Time) *waitTracker {
	return &waitTracker{now: now, since: now(), services: make(map[job.QueueKey]queueService),
		peers: make(map[string][]job.QueueKey), queues: make(map[job.QueueKey]*queueWaits)}
}

// QueueServed is called when the first worker of a queue has come to this node, or the last one has left it. It
// does not block. The series of a queue exist from its first worker on: this node will start attempts of it, and
// the first value of a series is no increase.
func (t *Telemetry) QueueServed(namespace, queue string, served bool) {
	if served {
		t.queues.ensureSeries(queueKey{namespace, queue})
	}
	w := t.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	k := job.QueueKey{Namespace: namespace, Queue: queue}
	if served {
		w.waitsOf(k) // adds it, if there is room
	}
	w.updateService(k, func(s *queueService) { s.here = served })
}

// PeerServes replaces the set of queues that the workers of another node serve, with free slots or without. It
// is called often, and usually without a change.
func (t *Telemetry) PeerServes(peer string, demand []job.QueueDemand) {
	w := t.waits
	if w.peerUnchanged(peer, demand) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.peers[peer]
	delete(w.peers, peer)
	for _, d := range demand {
		k := job.QueueKey{Namespace: d.Namespace, Queue: d.Queue}
		w.peers[peer] = append(w.peers[peer], k)
		w.waitsOf(k)
		w.updateService(k, func(s *queueService) { s.peers++ })
	}
	for _, k := range before {
		w.updateService(k, func(s *queueService) { s.peers-- })
	}
}

func (w *waitTracker) peerUnchanged(peer string, demand []job.QueueDemand) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return slices.EqualFunc(w.peers[peer], demand, func(k job.QueueKey, d job.QueueDemand) bool {
		return k.Namespace == d.Namespace && k.Queue == d.Queue
	})
}

// QueueLimited is called when a limit of a queue allows no more starts for a while. It does not block.
func (t *Telemetry) QueueLimited(k job.QueueKey, by job.QueueLimit, again time.Duration) {
	w := t.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.waitsOf(k)
	if q == nil {
		return
	}
	s := &q.room
	if by == job.LimitRate {
		s = &q.rate
	}
	now := w.now()
	if s.from.IsZero() || now.Sub(s.until) > spellJoinGap {
		*s = idleSpell{from: now}
	}
	if until := now.Add(again); until.After(s.until) {
		s.until = until
	}
}

// QueuePaused is called when a queue is paused or resumed. It does not block.
func (t *Telemetry) QueuePaused(k job.QueueKey, paused bool) {
	w := t.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	switch q := w.waitsOf(k); {
	case q == nil:
	case paused:
		q.paused = idleSpell{from: w.now()}
	default:
		q.paused.until = w.now()
	}
}

// updateService changes who serves a queue, and notes when the queue loses its last worker in the cluster, or has one
// again. The caller holds mu.
func (w *waitTracker) updateService(k job.QueueKey, change func(*queueService)) {
	before := w.services[k]
	after := before
	change(&after)
	isServed, wasServed := after != queueService{}, before != queueService{}
	if isServed {
		w.services[k] = after
	} else {
		delete(w.services, k)
	}
	switch q := w.queues[k]; {
	case q == nil || isServed == wasServed:
	case isServed:
		w.served++
		q.unserved.until = w.now()
	default:
		w.served--
		q.unserved = idleSpell{from: w.now()}
	}
}

// waitsOf returns the waits of a queue. A new one that nobody serves was not served before; of one that is served, it
// is unknown since when. It returns nil if there is no room for it. The caller holds mu.
func (w *waitTracker) waitsOf(k job.QueueKey) *queueWaits {
	if q := w.queues[k]; q != nil {
		return q
	}
	if w.served >= maxWaits {
		return nil // not to be looked for again and again: a peer may name thousands of queues that have no room
	}
	if len(w.queues) >= maxWaits {
		maps.DeleteFunc(w.queues, func(o job.QueueKey, _ *queueWaits) bool { return !w.hasService(o) })
	}
	q := &queueWaits{}
	if w.hasService(k) {
		w.served++
	} else {
		q.unserved.from = w.since
	}
	w.queues[k] = q
	return q
}

// hasService reports whether a worker of some node serves a queue. The caller holds mu.
func (w *waitTracker) hasService(k job.QueueKey) bool {
	_, found := w.services[k]
	return found
}

// isServed reports whether a worker of some node serves a queue.
func (w *waitTracker) isServed(k job.QueueKey) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.hasService(k)
}

// isServedHere reports whether a worker of this node serves a queue.
func (w *waitTracker) isServedHere(k job.QueueKey) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.services[k].here
}

// waitParts is a lag by its causes.
type waitParts struct{ paused, worker, rate, room, slot time.Duration }

// splitWait returns the causes of a run's wait between two instants. While a queue is paused, other causes do
// not count.
func (w *waitTracker) splitWait(k job.QueueKey, from, to time.Time) (out waitParts) {
	lag := to.Sub(from)
	w.mu.RLock()
	defer w.mu.RUnlock()
	q := w.queues[k]
	if q == nil {
		return waitParts{slot: lag}
	}
	out.paused = q.paused.overlapWith(from, to)
	out.worker = q.unserved.overlapWith(from, to) - q.unserved.intersect(q.paused).overlapWith(from, to)
	left := lag - out.paused - out.worker
	out.rate = min(q.rate.overlapWith(from, to), left)
	out.room = min(q.room.overlapWith(from, to), left-out.rate)
	out.slot = left - out.rate - out.room
	return out
}
