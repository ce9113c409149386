package scheduler

import (
	"cmp"
	"time"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/minheap"
)

// backlog has the lanes that are due and wait for slots, in the order in which
// they are to be served: start-time fair queueing. What is shared out is slots,
// and who shares are flows: a flow is one lane over all shards. A flow that gets n
// slots moves n/(priority+1) ahead on a virtual clock, and the one that is least
// far ahead is next: over time priority 9 gets ten slots for one of priority 0.
//
// A queue without free slots is dry: its flows are not looked at until somebody
// says that there are slots again, so that a backlog costs nothing while it waits.
// A queue that is at its limit rests likewise, until an instant or until somebody
// says that there is room.
type backlog struct {
	now    float64 // start of the service given last
	flows  map[job.Lane]*flow
	queues map[queue]*queueFlows
	open   minheap.Heap[*queueFlows] // neither dry nor resting nor empty
	dry    map[*queueFlows]struct{}
	rests  map[*queueFlows]time.Time
}

// credit bounds what a flow can make up for after it had nothing due: one slot of
// priority 0, ten of priority 9.
const credit = 1.0

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
	name    queue
	members int                 // flows of this queue
	waiting minheap.Heap[*flow] // those with something due
	pos     int
}

func (q *queueFlows) Place() *int { return &q.pos }
func (q *queueFlows) Before(other *queueFlows) bool {
	return q.waiting.Top().Before(other.waiting.Top())
}

func newBacklog() backlog {
	return backlog{
		flows: make(map[job.Lane]*flow), queues: make(map[queue]*queueFlows), dry: make(map[*queueFlows]struct{}),
		rests: make(map[*queueFlows]time.Time),
	}
}

// next is the lane to serve next; nil when nobody can be served.
func (b *backlog) next() *lane {
	if len(b.open) == 0 {
		return nil
	}
	return b.open.Top().waiting.Top().due.Top()
}

// add takes a lane that became due, or from which may be leased before.
func (b *backlog) add(l *lane) {
	f := b.flow(l.key)
	if len(f.due) == 0 {
		f.queue.waiting.Push(f)
	}
	l.at = l.due
	f.due.Push(l)
	l.flow = f
	b.settle(f.queue)
}

// remove takes a lane out.
func (b *backlog) remove(l *lane) {
	f := l.flow
	f.due.Remove(l)
	l.flow = nil
	if len(f.due) == 0 {
		f.queue.waiting.Remove(f)
	}
	b.settle(f.queue)
}

// charge moves a flow ahead by n slots; a negative n gives back those that it
// could not use.
func (b *backlog) charge(key job.Lane, n int) {
	if n == 0 {
		return
	}
	f := b.flow(key)
	if n > 0 {
		f.start = max(f.start, b.now-credit)
		b.now = max(b.now, f.start)
	}
	f.start += float64(n) / f.weight()
	if len(f.due) > 0 {
		f.queue.waiting.Fix(f)
		b.settle(f.queue)
	}
}

// parch marks a lane's queue as dry.
func (b *backlog) parch(l *lane) {
	b.dry[l.flow.queue] = struct{}{}
	b.settle(l.flow.queue)
}

// water says that a queue may have slots. It reports whether somebody waited.
func (b *backlog) water(name queue) bool {
	q := b.queues[name]
	if _, dry := b.dry[q]; !dry {
		return false
	}
	delete(b.dry, q)
	b.settle(q)
	return len(q.waiting) > 0
}

// thirsts tells whether a queue is dry, and somebody waits for it.
func (b *backlog) thirsts(name queue) bool {
	q := b.queues[name]
	_, dry := b.dry[q]
	return dry && len(q.waiting) > 0
}

// waterAll says that any queue may have slots.
func (b *backlog) waterAll() (waited bool) {
	for q := range b.dry {
		waited = b.water(q.name) || waited
	}
	return waited
}

// rest has a queue wait until an instant.
func (b *backlog) rest(key job.Lane, until time.Time) {
	q := b.flow(key).queue
	b.rests[q] = until
	b.settle(q)
}

// rouse ends the rest of a queue. It reports whether somebody waited.
func (b *backlog) rouse(name queue) bool {
	q := b.queues[name]
	if _, rests := b.rests[q]; !rests {
		return false
	}
	delete(b.rests, q)
	b.settle(q)
	return len(q.waiting) > 0
}

// rouseDue ends the rests that are over.
func (b *backlog) rouseDue(now time.Time) {
	for q, until := range b.rests {
		if !now.Before(until) {
			b.rouse(q.name)
		}
	}
}

// nextRouse is when the next queue that somebody waits for has rested; zero is
// never.
func (b *backlog) nextRouse() (next time.Time) {
	for q, until := range b.rests {
		if len(q.waiting) > 0 {
			next = earlier(next, until)
		}
	}
	return next
}

// settle puts a queue to where it belongs after it changed.
func (b *backlog) settle(q *queueFlows) {
	_, dry := b.dry[q]
	_, rests := b.rests[q]
	switch belongs := !dry && !rests && len(q.waiting) > 0; {
	case belongs && q.pos > 0:
		b.open.Fix(q)
	case belongs:
		b.open.Push(q)
	case q.pos > 0:
		b.open.Remove(q)
	}
}

func (b *backlog) flow(key job.Lane) *flow {
	if f, known := b.flows[key]; known {
		return f
	}
	name := queue{key.Namespace, key.Queue}
	q, known := b.queues[name]
	if !known {
		q = &queueFlows{name: name}
		b.queues[name] = q
	}
	q.members++
	f := &flow{lane: key, queue: q}
	b.flows[key] = f
	return f
}

// prune drops flows that have nothing due and are level with the present: they
// are as good as new. When nobody waits at all, everybody is.
func (b *backlog) prune() {
	waiting := false
	for _, q := range b.queues {
		waiting = waiting || len(q.waiting) > 0
	}
	for key, f := range b.flows {
		if len(f.due) > 0 || (waiting && f.start > b.now-credit) {
			continue
		}
		delete(b.flows, key)
		if f.queue.members--; f.queue.members == 0 {
			delete(b.queues, f.queue.name)
			delete(b.dry, f.queue)
			delete(b.rests, f.queue)
		}
	}
	if len(b.flows) == 0 {
		b.now = 0
	}
}
