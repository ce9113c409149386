package rpc

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Bounds of one message to a worker. Several small messages are cheaper than a large
// one: gRPC keeps buffers of 32 KiB and of 1 MiB, and clears the whole of one for each
// message, at either end.
const (
	maxMessageItems = 300
	maxMessageBytes = 31 << 10
)

// ackPause is how long acknowledgements wait for a message to go along with. Nobody
// waits for them: a slot is free with the result.
const ackPause = 5 * time.Millisecond

var (
	errOutboxFull   = errors.New("the stream's queue is full")
	errOutboxClosed = errors.New("the stream has ended")
)

// outbox queues messages for one worker. It joins neighbours of one kind, so
// that what waits while a message is being written goes out as the next one.
type outbox struct {
	// write is told when there is something to take and nobody who does: it has a writer
	// take messages until there are none. It must not wait.
	write func()

	mu    sync.Mutex
	queue []job.WorkerMessage
	// acks wait until they are due: another message goes out, they are many, or late
	// rings, which is set.
	acks   job.ResultAcks
	due    bool
	late   *time.Timer
	set    bool
	items  int
	limit  int
	taken  time.Time     // when the message that is being sent was taken; zero: none is
	writes bool          // somebody takes
	empty  chan struct{} // closed when nobody takes any more; nil: flush was not called
	closed bool
}

func newOutbox(write func()) *outbox { return &outbox{write: write, limit: 1} }

// bound sets the limit in items (leases, acknowledgements). The leases of a
// worker that reads are bounded by its slots, so only one that does not read
// gets there.
func (o *outbox) bound(h job.Hello) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit = 4096 + 2*h.MaxLive()
}

// put queues a message.
func (o *outbox) put(m job.WorkerMessage) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := items(m)
	switch {
	case o.closed:
		return errOutboxClosed
	case o.items+n > o.limit:
		return errOutboxFull
	}
	o.items += n
	if acks, ok := m.(job.ResultAcks); ok {
		o.hold(acks)
		return nil
	}
	if _, ok := m.(job.HeartbeatAck); ok {
		o.insert(m)
		o.signal()
		return nil
	}
	if last := len(o.queue) - 1; last >= 0 {
		if joined := join(o.queue[last], m); joined != nil {
			o.queue[last] = joined
			return nil
		}
	}
	o.queue = append(o.queue, m)
	o.signal()
	return nil
}

// insert puts a message before the leases that wait: these may be large, and must not make
// a worker believe that its node is gone. Other messages keep their order.
func (o *outbox) insert(m job.WorkerMessage) {
	at := len(o.queue)
	for ; at > 0; at-- {
		if _, leases := o.queue[at-1].(job.Assignments); !leases {
			break
		}
	}
	o.queue = slices.Insert(o.queue, at, m)
}

// hold has acknowledgements wait.
func (o *outbox) hold(acks job.ResultAcks) {
	if o.acks == nil {
		o.acks = acks
	} else {
		o.acks = append(o.acks, acks...)
	}
	switch {
	case o.due:
	case len(o.acks) >= maxMessageItems:
		o.due = true
		o.signal()
	case o.late == nil:
		o.late, o.set = time.AfterFunc(ackPause, o.ring), true
	case !o.set:
		o.late.Reset(ackPause)
		o.set = true
	}
}

// ring is the call of the timer.
func (o *outbox) ring() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.set = false; len(o.acks) > 0 && !o.closed {
		o.due = true
		o.signal()
	}
}

func (o *outbox) signal() {
	if !o.writes {
		o.writes = true
		o.write()
	}
}

// take returns the next message, of bounded size; nil when none waits or the outbox is
// closed, with which the writer ends.
func (o *outbox) take() job.WorkerMessage {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := o.next()
	if o.writes = m != nil; o.writes {
		o.items -= items(m)
		o.taken = time.Now()
	} else if o.empty != nil {
		close(o.empty)
		o.empty = nil
	}
	return m
}

// flush has all that is queued go out without delay. What it returns is closed when it has.
// Call it once.
func (o *outbox) flush() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.acks) > 0 {
		o.due = true
		o.signal()
	}
	empty := make(chan struct{})
	if o.writes {
		o.empty = empty
	} else {
		close(empty)
	}
	return empty
}

// next takes the next message. After each of the queue come the acknowledgements that
// wait, so that neither keeps the other waiting for long.
func (o *outbox) next() job.WorkerMessage {
	switch {
	case o.due:
		n := min(len(o.acks), maxMessageItems)
		m := o.acks[:n:n]
		if o.acks = o.acks[n:]; len(o.acks) == 0 {
			o.acks, o.due = nil, false
		}
		return m
	case len(o.queue) == 0:
		return nil
	}
	m, rest := split(o.queue[0])
	if rest != nil {
		o.queue[0] = rest
	} else {
		o.queue[0] = nil
		o.queue = o.queue[1:]
	}
	if len(o.queue) == 0 {
		o.queue = nil
	}
	o.due = len(o.acks) > 0
	return m
}

// sent says that the message taken last has gone out.
func (o *outbox) sent() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken = time.Time{}
}

// stuck tells whether a message has been on its way for longer than that: the worker
// answers pings, or its connection would have ended, and yet does not read.
func (o *outbox) stuck(limit time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.taken.IsZero() && time.Since(o.taken) > limit
}

// close refuses further messages and returns those that were not taken. The
// first call has them.
func (o *outbox) close() []job.WorkerMessage {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	unsent := o.queue
	if len(o.acks) > 0 {
		unsent = append(unsent, o.acks)
	}
	o.queue, o.acks, o.due = nil, nil, false
	if o.late != nil {
		o.late.Stop()
	}
	return unsent
}

func items(m job.WorkerMessage) int {
	switch m := m.(type) {
	case job.Assignments:
		return len(m)
	case job.ResultAcks:
		return len(m)
	case job.Cancellation:
		return len(m.LeaseIDs)
	}
	return 1
}

// join makes one message of two neighbours, nil if they do not go together.
func join(a, b job.WorkerMessage) job.WorkerMessage {
	switch a := a.(type) {
	case job.Assignments:
		if b, ok := b.(job.Assignments); ok {
			return append(a, b...)
		}
	case job.Cancellation:
		if b, ok := b.(job.Cancellation); ok && a.Reason == b.Reason {
			a.LeaseIDs = append(a.LeaseIDs, b.LeaseIDs...)
			return a
		}
	}
	return nil
}

// split cuts a message to its bounds; rest is nil if it is within them.
func split(m job.WorkerMessage) (head, rest job.WorkerMessage) {
	switch m := m.(type) {
	case job.Assignments:
		if n := fitting(m); n < len(m) {
			return m[:n:n], m[n:]
		}
	case job.Cancellation:
		if n := maxMessageItems; n < len(m.LeaseIDs) {
			return job.Cancellation{LeaseIDs: m.LeaseIDs[:n:n], Reason: m.Reason},
				job.Cancellation{LeaseIDs: m.LeaseIDs[n:], Reason: m.Reason}
		}
	}
	return m, nil
}

// fitting is how many leases go into one message, at least one.
func fitting(leases job.Assignments) int {
	size := 0
	for i, l := range leases {
		size += len(l.Payload()) + 256
		for k, v := range l.Definition.Labels {
			size += len(k) + len(v)
		}
		if i > 0 && (i == maxMessageItems || size > maxMessageBytes) {
			return i
		}
	}
	return len(leases)
}
