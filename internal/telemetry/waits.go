package telemetry

import (
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

const (
	// noticeable is the least lag whose cause is looked for: less is what a start takes.
	noticeable = 20 * time.Millisecond
	// sameSpell joins refusals that are no further apart: a queue at its limit is asked
	// for again and again.
	sameSpell = time.Second
	// maxWaits bounds the queues of which it is remembered who served them when.
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

// waits remembers for each queue since when it was last without a worker anywhere in the
// cluster, as far as this node heard, and when a limit last kept this node from leasing. So
// what a run waited for can be told when it starts.
type waits struct {
	now func() time.Time

	mu     sync.RWMutex
	since  time.Time // what was before is not known
	queues map[job.QueueKey]*queueWaits
	peers  map[string][]job.QueueKey // what their workers serve
}

// queueWaits are the last spell of each kind.
type queueWaits struct {
	here       bool // a worker of this node serves it
	peers      int  // as many peers have one
	unserved   spell
	paused     spell // as this node heard
	room, rate spell
}

// spell is a time in which a queue started nothing, for one reason. It lasts while until is
// zero; without a beginning there was none.
type spell struct{ from, until time.Time }

// within is how much of a wait lies in the spell.
func (s spell) within(from, to time.Time) time.Duration {
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

// both is the time in which two spells lasted.
func (s spell) both(o spell) spell {
	if s.from.IsZero() || o.from.IsZero() {
		return spell{}
	}
	if s.from.Before(o.from) {
		s.from = o.from
	}
	if s.until.IsZero() || !o.until.IsZero() && o.until.Before(s.until) {
		s.until = o.until
	}
	return s
}

func newWaits(now func() time.Time) *waits {
	return &waits{now: now, since: now(), queues: make(map[job.QueueKey]*queueWaits), peers: make(map[string][]job.QueueKey)}
}

// QueueServed says that the first worker of a queue has come to this node, or that the last
// one has left it. It does not block. The series of a queue are there from its first worker on:
// this node will start attempts of it, and the first value of a series is no increase.
func (t *Telemetry) QueueServed(namespace, queue string, served bool) {
	if served {
		t.queues.touch(queueKey{namespace, queue})
	}
	w := t.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	w.change(job.QueueKey{Namespace: namespace, Queue: queue}, func(q *queueWaits) { q.here = served })
}

// PeerServes replaces what is known of the queues that the workers of another node serve,
// with free slots or without. It is called often, and mostly with what is known.
func (t *Telemetry) PeerServes(peer string, demand []job.QueueDemand) {
	w := t.waits
	if w.knows(peer, demand) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.peers[peer]
	delete(w.peers, peer)
	for _, d := range demand {
		k := job.QueueKey{Namespace: d.Namespace, Queue: d.Queue}
		w.peers[peer] = append(w.peers[peer], k)
		w.change(k, func(q *queueWaits) { q.peers++ })
	}
	for _, k := range before {
		w.change(k, func(q *queueWaits) { q.peers = max(0, q.peers-1) })
	}
}

func (w *waits) knows(peer string, demand []job.QueueDemand) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return slices.EqualFunc(w.peers[peer], demand, func(k job.QueueKey, d job.QueueDemand) bool {
		return k.Namespace == d.Namespace && k.Queue == d.Queue
	})
}

// QueueLimited says that a limit of a queue allows no more starts for a while. It does not
// block.
func (t *Telemetry) QueueLimited(k job.QueueKey, by job.QueueLimit, again time.Duration) {
	w := t.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.of(k)
	if q == nil {
		return
	}
	s := &q.room
	if by == job.LimitRate {
		s = &q.rate
	}
	now := w.now()
	if s.from.IsZero() || now.Sub(s.until) > sameSpell {
		*s = spell{from: now}
	}
	if until := now.Add(again); until.After(s.until) {
		s.until = until
	}
}

// QueuePaused says that a queue is paused, or that it goes on. It does not block.
func (t *Telemetry) QueuePaused(k job.QueueKey, paused bool) {
	w := t.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	switch q := w.of(k); {
	case q == nil:
	case paused:
		q.paused = spell{from: w.now()}
	default:
		q.paused.until = w.now()
	}
}

// change notes who serves a queue, and when that is nobody any more, or somebody again. The
// caller holds mu.
func (w *waits) change(k job.QueueKey, do func(*queueWaits)) {
	q := w.of(k)
	if q == nil {
		return
	}
	before := q.here || q.peers > 0
	do(q)
	switch after := q.here || q.peers > 0; {
	case after && !before:
		q.unserved.until = w.now()
	case before && !after:
		q.unserved = spell{from: w.now()}
	}
}

// of is what is known of a queue. A new one was not served before; nil where there is no
// room for it. The caller holds mu.
func (w *waits) of(k job.QueueKey) *queueWaits {
	if q := w.queues[k]; q != nil {
		return q
	}
	if len(w.queues) >= maxWaits {
		for other, o := range w.queues {
			if !o.here && o.peers == 0 {
				delete(w.queues, other)
			}
		}
		if len(w.queues) >= maxWaits {
			return nil
		}
	}
	q := &queueWaits{unserved: spell{from: w.since}}
	w.queues[k] = q
	return q
}

// served tells whether a worker of some node serves a queue. Where there are too many queues
// to know, it does.
func (w *waits) served(k job.QueueKey) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	q := w.queues[k]
	if q == nil {
		return len(w.queues) >= maxWaits
	}
	return q.here || q.peers > 0
}

// servedHere reports whether a worker of this node serves a queue.
func (w *waits) servedHere(k job.QueueKey) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	q := w.queues[k]
	return q != nil && q.here
}

// waited is a lag by what made it.
type waited struct{ paused, worker, rate, room, slot time.Duration }

// split tells what a run has waited for between two instants. Whatever else a paused queue
// lacked made no difference.
func (w *waits) split(k job.QueueKey, from, to time.Time) (out waited) {
	lag := to.Sub(from)
	w.mu.RLock()
	defer w.mu.RUnlock()
	q := w.queues[k]
	if q == nil {
		return waited{slot: lag}
	}
	out.paused = q.paused.within(from, to)
	out.worker = q.unserved.within(from, to) - q.unserved.both(q.paused).within(from, to)
	left := lag - out.paused - out.worker
	out.rate = min(q.rate.within(from, to), left)
	out.room = min(q.room.within(from, to), left-out.rate)
	out.slot = left - out.rate - out.room
	return out
}
