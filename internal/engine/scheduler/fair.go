package scheduler

import (
	"cmp"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/minheap"
)

// backlog has the lanes that are due and wait for slots, in the order in which they are
// served. It implements start-time fair queueing: the resource is slots, and a flow is one
// lane over all shards. A flow that gets n slots moves n/(priority+1) ahead on a virtual
// clock, and the flow that is least far ahead is next. Over time priority 9 gets ten slots
// for one of priority 0.
//
// A queue without free slots is starved: its flows are not considered until slotsAvailable
// is called, so that a backlog costs nothing while it waits. A queue at its limit rests in
// the same way, until an instant or until endRest is called.
type backlog struct {
	virtualTime  float64 // start of the service given last
	flows        map[job.Lane]*flow
	queues       map[queueKey]*queueFlows
	served       minheap.Heap[*queueFlows] // neither starved nor resting nor empty
	starved      map[*queueFlows]struct{}
	restingUntil map[*queueFlows]time.Time
}

// maxCredit bounds how much a flow can catch up after it had nothing due: one slot of priority 0, ten of
// priority 9.
const maxCredit = 1.0

// flow is one lane over all shards.
type flow struct {
	lane  job.Lane
	queue *queueFlows
	start float64             // on the virtual clock, of its next service
	due   minheap.Heap[*lane] // of the shards, oldest first
	pos   int
}

func (f *flow) Place() *int { return &f.pos }

func (f *flow) Before(other *flow) bool {
	return cmp.Or(
		cmp.Compare(f.start, other.start),
		cmp.Compare(other.lane.Priority, f.lane.Priority),
		cmp.Compare(f.lane.Namespace, other.lane.Namespace),
		cmp.Compare(f.lane.Queue, other.lane.Queue),
	) < 0
}

// weight is a flow's share.
func (f *flow) weight() float64 { return float64(f.lane.Priority) + 1 }

// queueFlows are the flows that the same slots can serve.
type queueFlows struct {
	name      queueKey
	flowCount int                 // flows of this queue
	waiting   minheap.Heap[*flow] // those with something due
	pos       int
}

func (q *queueFlows) Place() *int { return &q.pos }
func (q *queueFlows) Before(other *queueFlows) bool {
	return q.waiting.Top().Before(other.waiting.Top())
}

func newBacklog() backlog {
	return backlog{
		flows: make(map[job.Lane]*flow), queues: make(map[queueKey]*queueFlows),
		starved:      make(map[*queueFlows]struct{}),
		restingUntil: make(map[*queueFlows]time.Time),
	}
}

// nextLane returns the lane to serve next; nil if no lane can be served.
func (b *backlog) nextLane() *lane {
	if len(b.served) == 0 {
		return nil
	}
	return b.served.Top().waiting.Top().due.Top()
}

// addLane adds a lane that became due, or that may be leased from in advance.
func (b *backlog) addLane(l *lane) {
	f := b.flowOf(l.key)
	if len(f.due) == 0 {
		f.queue.waiting.Push(f)
	}
	l.lookAt = l.due
	f.due.Push(l)
	l.flow = f
	b.requeue(f.queue)
}

// removeLane removes a lane.
func (b *backlog) removeLane(l *lane) {
	f := l.flow
	f.due.Remove(l)
	l.flow = nil
	if len(f.due) == 0 {
		f.queue.waiting.Remove(f)
	}
	b.requeue(f.queue)
}

// chargeFlow moves a flow ahead by n slots; a negative n returns slots that it could not use.
func (b *backlog) chargeFlow(key job.Lane, n int) {
	if n == 0 {
		return
	}
	f := b.flowOf(key)
	if n > 0 {
		f.start = max(f.start, b.virtualTime-maxCredit)
		b.virtualTime = max(b.virtualTime, f.start)
	}
	f.start += float64(n) / f.weight()
	if len(f.due) > 0 {
		f.queue.waiting.Fix(f)
		b.requeue(f.queue)
	}
}

// markStarved marks a lane's queue as starved.
func (b *backlog) markStarved(l *lane) {
	b.starved[l.flow.queue] = struct{}{}
	b.requeue(l.flow.queue)
}

// slotsAvailable notes that a queue may have slots. It reports whether a lane waited for them.
func (b *backlog) slotsAvailable(name queueKey) bool {
	q := b.queues[name]
	if _, dry := b.starved[q]; !dry {
		return false
	}
	delete(b.starved, q)
	b.requeue(q)
	return len(q.waiting) > 0
}

// isStarved reports whether a queue has lanes that wait for a slot.
func (b *backlog) isStarved(name queueKey) bool {
	q := b.queues[name]
	_, dry := b.starved[q]
	return dry && len(q.waiting) > 0
}

// allSlotsAvailable notes that any queue may have slots.
func (b *backlog) allSlotsAvailable() (waited bool) {
	for q := range b.starved {
		waited = b.slotsAvailable(q.name) || waited
	}
	return waited
}

// restUntil excludes a queue from service until an instant.
func (b *backlog) restUntil(key job.Lane, until time.Time) {
	q := b.flowOf(key).queue
	b.restingUntil[q] = until
	b.requeue(q)
}

// endRest ends the rest of a queue. It reports whether a lane waited.
func (b *backlog) endRest(name queueKey) bool {
	q := b.queues[name]
	if _, rests := b.restingUntil[q]; !rests {
		return false
	}
	delete(b.restingUntil, q)
	b.requeue(q)
	return len(q.waiting) > 0
}

// endRestsDue ends the rests that are over.
func (b *backlog) endRestsDue(now time.Time) {
	for q, until := range b.restingUntil {
		if !now.Before(until) {
			b.endRest(q.name)
		}
	}
}

// nextRestEnd returns when the next queue with waiting lanes has rested; zero is never.
func (b *backlog) nextRestEnd() (next time.Time) {
	for q, until := range b.restingUntil {
		if len(q.waiting) > 0 {
			next = earlierOf(next, until)
		}
	}
	return next
}

// requeue puts a queue in its place after a change.
func (b *backlog) requeue(q *queueFlows) {
	_, dry := b.starved[q]
	_, rests := b.restingUntil[q]
	switch belongs := !dry && !rests && len(q.waiting) > 0; {
	case belongs && q.pos > 0:
		b.served.Fix(q)
	case belongs:
		b.served.Push(q)
	case q.pos > 0:
		b.served.Remove(q)
	}
}

func (b *backlog) flowOf(key job.Lane) *flow {
	if f, known := b.flows[key]; known {
		return f
	}
	name := queueKey{key.Namespace, key.Queue}
	q, known := b.queues[name]
	if !known {
		q = &queueFlows{name: name}
		b.queues[name] = q
	}
	q.flowCount++
	f := &flow{lane: key, queue: q}
	b.flows[key] = f
	return f
}

// pruneFlows drops flows that have nothing due and are not ahead of the virtual clock: they equal new flows. If
// no lane waits at all, that is every flow.
func (b *backlog) pruneFlows() {
	waiting := false
	for _, q := range b.queues {
		waiting = waiting || len(q.waiting) > 0
	}
	for key, f := range b.flows {
		if len(f.due) > 0 || (waiting && f.start > b.virtualTime-maxCredit) {
			continue
		}
		delete(b.flows, key)
		f.queue.flowCount--
		if f.queue.flowCount == 0 {
			delete(b.queues, f.queue.name)
			delete(b.starved, f.queue)
			delete(b.restingUntil, f.queue)
		}
	}
	if len(b.flows) == 0 {
		b.virtualTime = 0
	}
}
