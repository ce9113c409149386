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

// Bounds of what waits for a worker.
const (
	// spareItems are the items that may wait beyond two for each lease that the worker may have.
	spareItems = 4096
	// bytesPerItem is what an item may have on average.
	bytesPerItem = 256
	// freeBytes of a stream take nothing of the memory for unread responses: about a message, so that a worker that
	// reads never asks for some. Beyond that they take it in steps.
	freeBytes   = 32 << 10
	memoryStep  = 64 << 10
	idOverhead  = 32 // of a lease id in a list
	msgOverhead = 64 // of a message in the queue
)

var (
	errOutboxFull   = errors.New("the stream's queue is full")
	errUnreadMemory = errors.New("the unread answers to this identity take too much memory")
	errOutboxClosed = errors.New("the stream has ended")
)

// unreadMemory is the memory that unread answers to an identity share, over all its streams.
type unreadMemory interface {
	TryTake(bytes int) bool
	Give(bytes int)
}

// load is what messages take in the queue. Leases count as items alone: their number follows from the slots, and the
// dispatcher has their records in any case.
type load struct {
	items int // leases, acknowledgements, cancelled leases, and other messages
	bytes int
}

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
	waiting      load // including the message that is being sent
	limit        load
	memory       unreadMemory  // nil: the limit alone bounds the bytes
	taken        int           // bytes of memory
	sending      load          // the message that is being sent
	sendingSince time.Time     // when it was taken; zero: none is
	writing      bool          // a goroutine takes messages
	drained      chan struct{} // closed when messages are no longer taken; nil: flush was not called
	closed       bool
}

func newOutbox(write func()) *outbox {
	return &outbox{startWriter: write, limit: load{items: 1, bytes: bytesPerItem}}
}

// setLimit sets the limits. The leases of a worker that reads are bounded by its slots, and so are the answers to what
// it says of them, so only one that does not read gets there.
func (o *outbox) setLimit(h job.Hello) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit.items = spareItems + 2*h.MaxLive()
	o.limit.bytes = o.limit.items * bytesPerItem
}

// enqueue queues a message.
func (o *outbox) enqueue(m job.WorkerMessage) error {
	n := loadOf(m)
	o.mu.Lock()
	defer o.mu.Unlock()
	n.items, n.bytes = n.items+o.waiting.items, n.bytes+o.waiting.bytes
	switch {
	case o.closed:
		return errOutboxClosed
	case n.items > o.limit.items || n.bytes > o.limit.bytes:
		return errOutboxFull
	case !o.takeMemory(n.bytes):
		return errUnreadMemory
	}
	o.waiting = n
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

// takeMemory takes the memory for so many bytes; false: there is none.
func (o *outbox) takeMemory(bytes int) bool {
	more := bytes - freeBytes - o.taken
	if more <= 0 || o.memory == nil {
		return true
	}
	more = (more + memoryStep - 1) / memoryStep * memoryStep
	if !o.memory.TryTake(more) {
		return false
	}
	o.taken += more
	return true
}

// endSending gives back what the message that was sent has taken.
func (o *outbox) endSending() {
	o.waiting.items -= o.sending.items
	o.waiting.bytes -= o.sending.bytes
	o.sending, o.sendingSince = load{}, time.Time{}
	if o.taken == 0 {
		return
	}
	needed := max(0, o.waiting.bytes-freeBytes)
	if spare := (o.taken - needed) / memoryStep * memoryStep; spare > memoryStep || needed == 0 {
		o.giveMemory(spare)
	}
}

func (o *outbox) giveMemory(bytes int) {
	if bytes > 0 {
		o.memory.Give(bytes)
		o.taken -= bytes
	}
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
	o.endSending()
	m := o.nextMessage()
	o.writing = m != nil
	if o.writing {
		o.sending, o.sendingSince = loadOf(m), time.Now()
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
		n := countFitting(o.heldAcks, ackBytes)
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
	o.endSending()
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
	o.giveMemory(o.taken)
	if o.ackTimer != nil {
		o.ackTimer.Stop()
	}
	return unsent
}

// loadOf is what a message takes while it waits.
func loadOf(m job.WorkerMessage) load {
	switch m := m.(type) {
	case job.Assignments:
		return load{items: len(m)}
	case job.ResultAcks:
		n := load{items: len(m), bytes: idOverhead * len(m)}
		for i := range m {
			n.bytes += len(m[i].LeaseID)
		}
		return n
	case job.Cancellation:
		return load{items: len(m.LeaseIDs), bytes: bytesOfIDs(m.LeaseIDs)}
	case foreignLeases:
		return load{items: len(m.ids), bytes: bytesOfIDs(m.ids)}
	}
	return load{items: 1, bytes: msgOverhead}
}

func bytesOfIDs(ids []string) int {
	n := idOverhead * len(ids)
	for _, id := range ids {
		n += len(id)
	}
	return n
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
	case foreignLeases:
		if b, ok := b.(foreignLeases); ok && a.live == b.live {
			a.ids = append(a.ids, b.ids...)
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
		if n := countFitting(m.LeaseIDs, idBytes); n < len(m.LeaseIDs) {
			return job.Cancellation{LeaseIDs: m.LeaseIDs[:n:n], Reason: m.Reason},
				job.Cancellation{LeaseIDs: m.LeaseIDs[n:], Reason: m.Reason}
		}
	case foreignLeases:
		if n := countFitting(m.ids, idBytes); n < len(m.ids) {
			return foreignLeases{ids: m.ids[:n:n], live: m.live}, foreignLeases{ids: m.ids[n:], live: m.live}
		}
	}
	return m, nil
}

func idBytes(id string) int          { return len(id) }
func ackBytes(ack job.ResultAck) int { return len(ack.LeaseID) }

// wireOverhead is what an id takes in a message beside its bytes, at most, with a signature.
var wireOverhead = 10 + signatureLength

// countFitting is how many ids, or acknowledgements, go into one message, at least one.
func countFitting[T any](list []T, bytesOf func(T) int) int {
	size := 0
	for i := range list {
		size += bytesOf(list[i]) + wireOverhead
		if i > 0 && (i == maxMessageItems || size > maxMessageBytes) {
			return i
		}
	}
	return len(list)
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
