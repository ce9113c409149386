package workerstream

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/eventrate"
)

// Bounds of one message to a worker. Several small messages are cheaper than a large
// one: gRPC keeps buffers of 32 KiB and of 1 MiB, and clears the whole of one for each
// message, at either end.
const (
	maxMessageItems = 300
	maxMessageBytes = 31 << 10
)

// How long acknowledgements wait for a message to share: longer where there are frequentAcks a second or more. Nothing
// depends on them: the result itself frees the slot.
const (
	maxAckDelay         = 5 * time.Millisecond
	maxFrequentAckDelay = 10 * time.Millisecond
	frequentAcks        = 250
)

var (
	errOutboxFull   = errors.New("the stream's queue is full")
	errOutboxClosed = errors.New("the stream has ended")
)

// outbox queues messages for one worker. It joins neighbours of one kind, so
// that what waits while a message is being written goes out as the next one.
type outbox struct {
	// startWriter is called when a message is queued and no writer runs. It starts a writer, which sends messages
	// until none is left. It must not block.
	startWriter func()

	mu    sync.Mutex
	queue []job.WorkerMessage
	// heldAcks wait until they are due: another message goes out, they are many, or late
	// rings, which is set.
	heldAcks     job.ResultAcks
	acksDue      bool
	ackRate      eventrate.Meter
	ackTimer     *time.Timer
	timerSet     bool
	itemCount    int
	limit        int
	sendingSince time.Time     // when the message that is being sent was taken; zero: none is
	writing      bool          // a goroutine takes messages
	drained      chan struct{} // closed when messages are no longer taken; nil: flush was not called
	closed       bool
}

func newOutbox(write func()) *outbox { return &outbox{startWriter: write, limit: 1} }

// setLimit sets the limit in items (leases, acknowledgements). The leases of a
// worker that reads are bounded by its slots, so only one that does not read
// gets there.
func (o *outbox) setLimit(h job.Hello) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit = 4096 + 2*h.MaxLive()
}

// enqueue queues a message.
func (o *outbox) enqueue(m job.WorkerMessage) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := countItems(m)
	switch {
	case o.closed:
		return errOutboxClosed
	case o.itemCount+n > o.limit:
		return errOutboxFull
	}
	o.itemCount += n
	if acks, ok := m.(job.ResultAcks); ok {
		o.holdAcks(acks)
		return nil
	}
	if _, ok := m.(job.HeartbeatAck); ok {
		o.insertBeforeLeases(m)
		o.wakeWriter()
		return nil
	}
	if last := len(o.queue) - 1; last >= 0 {
		if joined := mergeMessages(o.queue[last], m); joined != nil {
			o.queue[last] = joined
			return nil
		}
	}
	o.queue = append(o.queue, m)
	o.wakeWriter()
	return nil
}

// insertBeforeLeases puts a message before the leases that wait: these may be large, and must not make
// a worker believe that its node is gone. Other messages keep their order.
func (o *outbox) insertBeforeLeases(m job.WorkerMessage) {
	at := len(o.queue)
	for ; at > 0; at-- {
		if _, leases := o.queue[at-1].(job.Assignments); !leases {
			break
		}
	}
	o.queue = slices.Insert(o.queue, at, m)
}

// holdAcks has acknowledgements wait.
func (o *outbox) holdAcks(acks job.ResultAcks) {
	if o.heldAcks == nil {
		o.heldAcks = acks
	} else {
		o.heldAcks = append(o.heldAcks, acks...)
	}
	o.ackRate.Count(len(acks), time.Now())
	switch {
	case o.acksDue:
	case len(o.heldAcks) >= maxMessageItems:
		o.acksDue = true
		o.wakeWriter()
	case o.ackTimer == nil:
		o.ackTimer, o.timerSet = time.AfterFunc(o.ackDelay(), o.releaseAcks), true
	case !o.timerSet:
		o.ackTimer.Reset(o.ackDelay())
		o.timerSet = true
	}
}

// ackDelay is how long acknowledgements wait now.
func (o *outbox) ackDelay() time.Duration {
	if o.ackRate.PerSecond() >= frequentAcks {
		return maxFrequentAckDelay
	}
	return maxAckDelay
}

// releaseAcks is the call of the timer.
func (o *outbox) releaseAcks() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timerSet = false
	if len(o.heldAcks) > 0 && !o.closed {
		o.acksDue = true
		o.wakeWriter()
	}
}

func (o *outbox) wakeWriter() {
	if !o.writing {
		o.writing = true
		o.startWriter()
	}
}

// dequeue returns the next message, of bounded size; nil when none waits or the outbox is
// closed, with which the writer ends.
func (o *outbox) dequeue() job.WorkerMessage {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := o.nextMessage()
	o.writing = m != nil
	if o.writing {
		o.itemCount -= countItems(m)
		o.sendingSince = time.Now()
	} else if o.drained != nil {
		close(o.drained)
		o.drained = nil
	}
	return m
}

// flushAll has all that is queued go out without delay. What it returns is closed when it has.
// Call it once.
func (o *outbox) flushAll() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.heldAcks) > 0 {
		o.acksDue = true
		o.wakeWriter()
	}
	empty := make(chan struct{})
	if o.writing {
		o.drained = empty
	} else {
		close(empty)
	}
	return empty
}

// nextMessage takes the next message. After each of the queue come the acknowledgements that
// wait, so that neither keeps the other waiting for long.
func (o *outbox) nextMessage() job.WorkerMessage {
	switch {
	case o.acksDue:
		n := min(len(o.heldAcks), maxMessageItems)
		m := o.heldAcks[:n:n]
		o.heldAcks = o.heldAcks[n:]
		if len(o.heldAcks) == 0 {
			o.heldAcks, o.acksDue = nil, false
		}
		return m
	case len(o.queue) == 0:
		return nil
	}
	m, rest := splitMessage(o.queue[0])
	if rest != nil {
		o.queue[0] = rest
	} else {
		o.queue[0] = nil
		o.queue = o.queue[1:]
	}
	if len(o.queue) == 0 {
		o.queue = nil
	}
	o.acksDue = len(o.heldAcks) > 0
	return m
}

// markSent records that the last dequeued message has been sent.
func (o *outbox) markSent() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sendingSince = time.Time{}
}

// isStuck reports whether sending a message has taken longer than limit: the worker answers pings, or its connection
// would have ended, but it does not read.
func (o *outbox) isStuck(limit time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.sendingSince.IsZero() && time.Since(o.sendingSince) > limit
}

// closeAndDrain refuses further messages and returns those that were not taken. The
// first call has them.
func (o *outbox) closeAndDrain() []job.WorkerMessage {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	unsent := o.queue
	if len(o.heldAcks) > 0 {
		unsent = append(unsent, o.heldAcks)
	}
	o.queue, o.heldAcks, o.acksDue = nil, nil, false
	if o.ackTimer != nil {
		o.ackTimer.Stop()
	}
	return unsent
}

func countItems(m job.WorkerMessage) int {
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

// mergeMessages makes one message of two neighbours, nil if they do not go together.
func mergeMessages(a, b job.WorkerMessage) job.WorkerMessage {
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

// splitMessage cuts a message to its bounds; rest is nil if it is within them.
func splitMessage(m job.WorkerMessage) (head, rest job.WorkerMessage) {
	switch m := m.(type) {
	case job.Assignments:
		if n := countFittingLeases(m); n < len(m) {
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

// countFittingLeases is how many leases go into one message, at least one.
func countFittingLeases(leases job.Assignments) int {
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
