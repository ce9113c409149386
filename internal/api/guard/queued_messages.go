package guard

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// A client that opens no window for a stream leaves the messages of the stream with gRPC, also after the handler has
// returned: the end of the stream waits behind them. By then the stream has given its places back. So each message is
// counted until gRPC frees its buffer, or its connection is closed.

const (
	// freeQueuedBytes of an open stream take no memory of the budget. The number of open streams bounds them.
	freeQueuedBytes = 32 << 10
	// queuedOverhead is what gRPC keeps of each message beside its bytes.
	queuedOverhead = 512
	// queuePatience bounds the wait for the memory of a message. Other streams of the identity give theirs back as they
	// are read.
	queuePatience = 10 * time.Second
	// maxLateStreams is how many ended streams of a connection may keep messages for unreadPatience while the identity
	// has more than its share.
	maxLateStreams = 8
)

// queuedMessages are the messages of one stream that gRPC has. They take memory of the caller's share.
type queuedMessages struct {
	share *UnreadShare
	conn  *connection

	mu       sync.Mutex
	messages int
	bytes    int
	taken    int         // of the share
	ended    bool        // the handler has returned
	late     bool        // it has returned before its messages were read
	freed    bool        // nothing is counted any more
	closing  *time.Timer // closes the connection if the messages stay unread; nil: the identity is within its share
}

// newQueuedMessages counts the messages of a stream; nil if the connection is not known or has ended.
func newQueuedMessages(ctx context.Context) *queuedMessages {
	conn, share := connectionFrom(ctx), UnreadShareFrom(ctx)
	if conn == nil || share == nil {
		return nil
	}
	q := &queuedMessages{share: share, conn: conn}
	if !conn.addUnread(q) {
		return nil
	}
	return q
}

// add counts a message. It waits for the memory that the message takes; false: the share has none.
func (q *queuedMessages) add(ctx context.Context, bytes int) bool {
	q.mu.Lock()
	q.messages, q.bytes = q.messages+1, q.bytes+bytes
	more := q.needed() - q.taken
	q.mu.Unlock()
	if more <= 0 {
		return true
	}
	if !q.share.budget.Take(ctx, q.share.share, more, queuePatience) {
		q.remove(bytes)
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken += more
	q.giveSpare() // of messages that were freed meanwhile
	return true
}

// remove is for a message that gRPC has freed.
func (q *queuedMessages) remove(bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.messages, q.bytes = q.messages-1, q.bytes-bytes
	q.giveSpare()
	if q.ended && q.messages == 0 {
		q.forget()
	}
}

// end is for a stream whose handler has returned. If messages remain, all that gRPC keeps of the stream takes memory,
// whether or not the share has it. If it has not, the connection is closed unless the client reads.
func (q *queuedMessages) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	if q.freed {
		return
	}
	if q.messages == 0 {
		q.giveSpare()
		q.forget()
		return
	}
	more := q.needed() - q.taken
	allowed := q.share.budget.Allows(q.share.share, more)
	q.share.budget.TakeAnyway(q.share.share, more)
	q.taken += more
	q.late = true
	late := q.conn.lateStreams.Add(1)
	switch {
	case allowed:
	case late > maxLateStreams:
		q.conn.closeUnread()
	default:
		q.closing = time.AfterFunc(unreadPatience, q.conn.closeUnread)
	}
}

// forget ends the counting of a stream that has ended.
func (q *queuedMessages) forget() {
	if q.freed {
		return
	}
	q.freed = true
	if q.late {
		q.conn.lateStreams.Add(-1)
	}
	if q.closing != nil {
		q.closing.Stop()
	}
	q.conn.removeUnread(q)
}

// free gives everything back when the connection is closed.
func (q *queuedMessages) free() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forget()
	q.giveSpare()
}

func (q *queuedMessages) needed() int {
	switch {
	case q.freed || q.messages == 0:
		return 0
	case q.ended:
		return q.bytes + unreadOverhead
	}
	return max(0, q.bytes-freeQueuedBytes)
}

func (q *queuedMessages) giveSpare() {
	if spare := q.taken - q.needed(); spare > 0 {
		q.share.Give(spare)
		q.taken -= spare
	}
}

// SendMsg counts a message until gRPC has freed it.
func (s *readingStream) SendMsg(m any) error {
	if s.queued == nil {
		return s.ServerStream.SendMsg(m)
	}
	data, err := s.q.codec.Marshal(m)
	if err != nil {
		return status.Errorf(codes.Internal, "failed to marshal the message: %v", err)
	}
	b := newCountedBuffer(data)
	if !s.queued.add(s.ctx, b.takes()) {
		b.recycle()
		return s.refuseUnread()
	}
	b.queue = s.queued
	return s.ServerStream.SendMsg(b)
}

// refuseUnread is the end of a stream whose messages stay unread while its caller has no memory left.
func (s *readingStream) refuseUnread() error {
	if err := s.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	c := CallerFrom(s.ctx)
	if c == nil {
		c = &Caller{gate: s.q.gate, method: s.q.wire.Method()}
	}
	return c.refuseOverLimit(s.ctx, "unread_bytes", time.Second)
}

var _ grpc.ServerStream = (*readingStream)(nil)

// countedBuffer is a message that is encoded already. It is the pool of its own buffer, so that gRPC reports that it is
// freed.
type countedBuffer struct {
	content []byte
	source  mem.BufferSlice // that content is of; nil: content is a copy
	queue   *queuedMessages
}

// smallBuffers are for messages that gRPC would not report as freed without more capacity.
var smallBuffers = sync.Pool{New: func() any { return new([smallBuffer]byte) }}

const smallBuffer = 1152 // bytes that Go allocates for minCountedBuffer

// newCountedBuffer takes over an encoded message. It copies what is in pieces, or in a buffer that is too small to be
// counted or many times as large.
func newCountedBuffer(data mem.BufferSlice) *countedBuffer {
	n := data.Len()
	if len(data) == 1 {
		content := data[0].ReadOnlyData()
		if cap(content) >= minCountedBuffer && cap(content) <= 2*n {
			return &countedBuffer{content: content, source: data}
		}
	}
	b := &countedBuffer{}
	if n <= smallBuffer {
		b.content = smallBuffers.Get().(*[smallBuffer]byte)[:n]
	} else {
		b.content = make([]byte, n)
	}
	data.CopyTo(b.content)
	data.Free()
	return b
}

// takes returns what the message takes of the memory.
func (b *countedBuffer) takes() int { return cap(b.content) + queuedOverhead }

// slice is the message as the codec returns it.
func (b *countedBuffer) slice() mem.BufferSlice {
	return mem.BufferSlice{mem.NewBuffer(&b.content, b)}
}

// Get is not called: buffers are only returned to the pool.
func (*countedBuffer) Get(length int) *[]byte { b := make([]byte, length); return &b }

// Put is called when gRPC has no more use for the buffer.
func (b *countedBuffer) Put(*[]byte) {
	bytes := b.takes()
	b.recycle()
	b.queue.remove(bytes)
}

func (b *countedBuffer) recycle() {
	switch {
	case b.source != nil:
		b.source.Free()
	case cap(b.content) == smallBuffer:
		smallBuffers.Put((*[smallBuffer]byte)(b.content[:smallBuffer]))
	}
}
