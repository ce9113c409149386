package guard

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	"github.com/fermata-io/fermata/internal/lib/memorybudget"
)

// gRPC takes a whole message in before it calls anything of ours: of each stream 16 MiB, on 250 streams of each
// connection. So the handlers of a server read messages themselves. They read the length of a message first, and take
// its bytes from a budget before the rest: only then does the client get the room to send more than the window of the
// stream. A message of two bytes takes hundreds once it is decoded. So the memory that a request takes is estimated
// before it is decoded, and taken from the budget, too. The caller of a request that takes more than a little is
// identified before that, and has to have a role that allows the method.

const (
	// maxRequestMemory bounds the large requests of a node that arrive or are served, or a quarter of the memory that
	// the process is to keep to. In the smallest process one identity leaves room for a largest request of another.
	maxRequestMemory = 256 << 20
	minRequestMemory = 88 << 20
	// maxDecodedMemory bounds the additional memory of decoded requests, or an eighth of the memory of the process if
	// that is less. It is a budget of its own, so that requests that have arrived never wait for one that has not.
	maxDecodedMemory = 128 << 20
	minDecodedMemory = 48 << 20
	// maxListLength bounds the lists in the request of a call. Handlers refuse longer lists, too, but only after the
	// call has waited for its turn.
	maxListLength = 1000
	// Requests up to smallRequest bytes, encoded and decoded, take no memory of the budgets. The number of calls bounds
	// them.
	smallRequest = 16 << 10
	// A request of up to tinyRequest bytes takes at most smallRequest bytes once it is decoded.
	tinyRequest = 128
	// partBytes is how much of a message is read at a time. While gRPC reads, it keeps some fifty bytes for each frame,
	// and a frame may contain a single byte.
	partBytes = 1 << 10
	// growthFactor is how many times the bytes that have arrived of a small message may be in memory.
	growthFactor = 4
	// StreamWindow is what a client may send of a stream ahead of being read. A waiting call keeps so much.
	StreamWindow = 256 << 10
	// requestPatience bounds the wait for memory that others have. Waiting calls share an eighth of the memory.
	requestPatience = 20 * time.Second
	// The request of a call has to arrive within requestTime, and a second more for each requestRate bytes of a large
	// one. So has a message of a stream of more than partBytes, once it has begun.
	requestTime = 10 * time.Second
	requestRate = 256 << 10
)

// requestMemory is what large requests share.
type requestMemory struct {
	taken   *memorybudget.Budget // as they arrive
	decoded *memorybudget.Budget // more than that, once they are decoded
	waiting *memorybudget.Budget
}

func newRequestMemory(memory int64) requestMemory {
	most := int(min(maxRequestMemory, max(minRequestMemory, memory/4)))
	decoded := int(min(maxDecodedMemory, max(minDecodedMemory, memory/8)))
	return requestMemory{
		taken: memorybudget.New(most), decoded: memorybudget.New(decoded), waiting: memorybudget.New(most / 8),
	}
}

// take takes the memory of a request for an identity, or waits for it; false: there is none.
func (m *requestMemory) take(ctx context.Context, share string, n int) bool {
	if m.taken.TryTake(share, n) {
		return true
	}
	if !m.waiting.TryTake(share, StreamWindow) {
		return false
	}
	defer m.waiting.Give(share, StreamWindow)
	return m.taken.Take(ctx, share, n, requestPatience)
}

// Services registers services of a server, so that its large requests take memory of the budget of the gate. Messages
// have at most so many bytes.
func (g *Gate) Services(server grpc.ServiceRegistrar, codec encoding.CodecV2, maxBytes int) grpc.ServiceRegistrar {
	return boundServices{ServiceRegistrar: server, reader: &messageReader{gate: g, codec: codec, maxBytes: maxBytes}}
}

type boundServices struct {
	grpc.ServiceRegistrar
	reader *messageReader
}

// RegisterService replaces the handlers of the methods.
func (s boundServices) RegisterService(desc *grpc.ServiceDesc, impl any) {
	bound := *desc
	bound.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		bound.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: s.reader.boundMethod(m.Handler)}
	}
	bound.Streams = make([]grpc.StreamDesc, len(desc.Streams))
	for i, d := range desc.Streams {
		bound.Streams[i] = d
		bound.Streams[i].Handler = s.reader.boundStream(d.Handler, d.ClientStreams)
	}
	s.ServiceRegistrar.RegisterService(&bound, impl)
}

// messageReader reads the messages of a server.
type messageReader struct {
	gate     *Gate
	codec    encoding.CodecV2
	maxBytes int
}

func (r *messageReader) boundMethod(next grpc.MethodHandler) grpc.MethodHandler {
	return func(impl any, ctx context.Context, _ func(any) error,
		intercept grpc.UnaryServerInterceptor) (any, error) {
		wire, ok := grpc.ServerTransportStreamFromContext(ctx).(wireStream)
		if !ok {
			return nil, errOtherTransport
		}
		q := incoming{messageReader: r, wire: wire, ctx: ctx}
		defer q.end()
		if err := q.beginReading(); err != nil {
			return nil, err
		}
		return next(impl, ctx, q.readOnly, intercept)
	}
}

func (r *messageReader) boundStream(next grpc.StreamHandler, clientStreams bool) grpc.StreamHandler {
	return func(impl any, stream grpc.ServerStream) error {
		wire, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(wireStream)
		if !ok {
			return errOtherTransport
		}
		s := &readingStream{ServerStream: stream, ctx: r.gate.withUnreadShare(stream.Context()), clientStreams: clientStreams,
			q: incoming{messageReader: r, wire: wire, ctx: stream.Context(), caller: CallerFrom(stream.Context()),
				ofStream: clientStreams}}
		memory, err := s.q.takeStreamMemory()
		if err != nil {
			return err
		}
		defer memory.Release()
		s.ctx = WithStreamMemory(s.ctx, memory)
		defer s.q.end()
		if err := s.q.beginReading(); err != nil {
			return err
		}
		s.queued = newQueuedMessages(s.ctx)
		if s.queued != nil {
			defer s.queued.end()
		}
		return next(impl, s)
	}
}

// errOtherTransport refuses calls of a transport whose requests cannot be bounded.
var errOtherTransport = status.Error(codes.Internal, "rpc: the transport does not let the server bound its requests")

// readingStream is a stream whose messages take memory from when they arrive until the next one is read.
type readingStream struct {
	grpc.ServerStream
	ctx           context.Context
	q             incoming
	clientStreams bool
	begun         bool            // its first message has arrived
	queued        *queuedMessages // nil: its connection is not known, or has ended
}

func (s *readingStream) Context() context.Context { return s.ctx }

func (s *readingStream) RecvMsg(m any) error {
	s.q.release()
	if s.clientStreams {
		err := s.q.read(m)
		s.q.stopTimer()
		if !s.begun {
			s.begun = true
			s.q.endReading()
		}
		return s.q.ended(err)
	}
	return s.q.readOnly(m)
}

// wireStream is a stream of gRPC's transport. Its methods are those that gRPC itself reads messages with.
type wireStream interface {
	grpc.ServerTransportStream
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	WriteStatus(st *status.Status) error
}

// incoming reads the messages of a stream.
type incoming struct {
	*messageReader
	wire   wireStream
	ctx    context.Context
	caller *Caller // nil: not known yet; of a stream, who began it
	// ofStream: the messages are of a stream of the client, and not the request of a call.
	ofStream bool
	header   [5]byte // of a message: its form, and its length

	late atomic.Bool // a message has arrived too slowly

	// A stream may end while another goroutine reads it.
	mu      sync.Mutex
	reading *quota // counts the call until its request has arrived
	share   string // identity or host whose share of the budgets is used
	bytes   int    // taken for the encoded message
	decoded int    // taken for the decoded message, in addition
	timer   *time.Timer
	over    bool
}

// release gives back what the last message has taken.
func (q *incoming) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil {
		q.timer.Stop()
	}
	q.gate.requests.taken.Give(q.share, q.bytes)
	q.gate.requests.decoded.Give(q.share, q.decoded)
	q.timer, q.bytes, q.decoded = nil, 0, 0
}

// end is for a stream whose handler has returned.
func (q *incoming) end() {
	q.endReading()
	q.release()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
}

// ended has the client know at once why a stream is not read any more, and returns the reason.
func (q *incoming) ended(err error) error {
	if err != nil && err != io.EOF {
		_ = q.wire.WriteStatus(status.Convert(err)) // it is over in any case
	}
	return err
}

// quota is that of the caller. A call whose caller is not known yet counts for the identity that called last on the
// connection. It is nil if nothing but the bounds of strangers holds.
func (q *incoming) quota() *quota {
	conn := connectionFrom(q.ctx)
	switch {
	case conn == nil:
		return nil // the gate refuses it
	case q.caller != nil && conn.isAuthenticated():
		return q.caller.quota
	}
	return conn.lastQuota()
}

// callerOrUnknown is the caller, or one of the same method whose identity is not known.
func (q *incoming) callerOrUnknown() *Caller {
	if q.caller != nil {
		return q.caller
	}
	return &Caller{gate: q.gate, method: q.wire.Method()}
}

// beginReading counts a call whose request, or a stream whose first message, has not arrived.
func (q *incoming) beginReading() error {
	quota := q.quota()
	if quota == nil {
		return nil
	}
	if !quota.beginReading() {
		return q.ended(q.callerOrUnknown().refuseOverLimit(q.ctx, "calls", time.Second))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reading = quota
	return nil
}

func (q *incoming) endReading() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.reading != nil {
		q.reading.endReading()
		q.reading = nil
	}
}

// readOnly reads the only message of a stream.
func (q *incoming) readOnly(m any) error {
	defer q.endReading()
	q.startTimer(0)
	err := q.read(m)
	if err == io.EOF {
		return q.ended(status.Error(codes.Internal, "the call has no request"))
	}
	if err == nil {
		q.startTimer(0)
		err = q.readEnd()
	}
	q.stopTimer()
	return q.ended(err)
}

// readEnd reads that nothing follows.
func (q *incoming) readEnd() error {
	switch err := q.wire.ReadMessageHeader(q.header[:]); {
	case err == io.EOF:
		return nil
	case err != nil:
		return q.readError(err)
	}
	return status.Error(codes.Internal, "the call has more than one request")
}

// stopTimer is for a message that has arrived.
func (q *incoming) stopTimer() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil {
		q.timer.Stop()
	}
}

// read reads a message; io.EOF: there are no more.
func (q *incoming) read(m any) error {
	if err := q.wire.ReadMessageHeader(q.header[:]); err != nil {
		return q.readError(err)
	}
	length := binary.BigEndian.Uint32(q.header[1:])
	switch {
	case q.header[0] != 0:
		return status.Errorf(codes.Internal, "failed to decompress the request: %v", errCompressed)
	case int64(length) > int64(q.maxBytes):
		return status.Errorf(codes.ResourceExhausted, "the request has %d bytes, at most %d are allowed", length, q.maxBytes)
	case length > smallRequest:
		q.stopTimer() // it may have to wait
		if err := q.takeMemory(int(length)); err != nil {
			return err
		}
	}
	if length > partBytes {
		q.startTimer(int(length))
	}
	data, err := q.readBytes(int(length))
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return q.readError(err)
	}
	q.stopTimer()
	return q.decode(data, m)
}

// readBytes reads the bytes of a message. It copies them in parts, because bytes that arrive in small frames take many
// times their size until they are copied. A message that has taken no memory of the budget gets room as it arrives.
func (q *incoming) readBytes(n int) (mem.BufferSlice, error) {
	if n <= partBytes {
		return q.wire.Read(n)
	}
	var whole []byte
	if n > smallRequest {
		whole = make([]byte, 0, n)
	}
	for len(whole) < n {
		part, err := q.wire.Read(min(n-len(whole), partBytes))
		if err != nil {
			return nil, err
		}
		whole = appendPart(whole, part, n)
		part.Free()
	}
	return mem.BufferSlice{mem.SliceBuffer(whole)}, nil
}

// appendPart appends a part of a message of n bytes. What has arrived gets at most room for growthFactor times as much.
func appendPart(whole []byte, part mem.BufferSlice, n int) []byte {
	have := len(whole) + part.Len()
	if have > cap(whole) {
		whole = append(make([]byte, 0, min(n, growthFactor*have)), whole...)
	}
	part.CopyTo(whole[len(whole):have])
	return whole[:have]
}

// decode decodes a message that has arrived, once it has the memory that it takes then.
func (q *incoming) decode(data mem.BufferSlice, into any) error {
	defer data.Free()
	if m, ok := into.(proto.Message); ok && data.Len() > tinyRequest {
		whole := joinBuffers(data)
		data = mem.BufferSlice{mem.SliceBuffer(whole)}
		budget := q.gate.requests.decoded
		e := grpccodec.EstimateDecoded(whole, m, len(whole)+budget.Largest())
		if err := q.checkForm(e); err != nil {
			return err
		}
		if err := q.takeDecodedMemory(e.Size, len(whole)); err != nil {
			return err
		}
	}
	if err := q.codec.Unmarshal(data, into); err != nil {
		return status.Errorf(codes.Internal, "failed to unmarshal the request: %v", err)
	}
	return nil
}

// joinBuffers returns the bytes of a message in one piece, without a copy if they are in one piece already.
func joinBuffers(data mem.BufferSlice) []byte {
	if len(data) == 1 {
		return data[0].ReadOnlyData()
	}
	return data.Materialize()
}

// checkForm refuses a message with groups or too many levels, and the request of a call with too long a list.
func (q *incoming) checkForm(e grpccodec.Estimate) error {
	if e.HasGroup {
		return status.Error(codes.InvalidArgument, "the request has a group: no message of this API has any")
	}
	if e.TooDeep {
		return status.Error(codes.InvalidArgument, "the request is nested too deeply: use at most 100 levels in payload_json")
	}
	if q.ofStream || e.Length <= maxListLength {
		return nil
	}
	invalid := job.Invalid(e.List, "has %d entries or more, at most %d are allowed", e.Length, maxListLength)
	st, _ := apierror.ToStatus(invalid)
	return st.Err()
}

// takeDecodedMemory takes the additional memory of a message of length bytes that takes size bytes once it is decoded.
func (q *incoming) takeDecodedMemory(size, length int) error {
	budget := q.gate.requests.decoded
	more := size - length
	switch {
	case more > budget.Largest():
		return status.Errorf(codes.ResourceExhausted,
			"the request of %d KiB takes more than %d MiB more once it is decoded", length>>10, budget.Largest()>>20)
	case size <= smallRequest || more <= 0:
		return nil
	}
	return q.takeFor(func(share string) bool { return budget.Take(q.ctx, share, more, requestPatience) },
		budget, more, &q.decoded)
}

// takeMemory takes the memory of a large message before it arrives.
func (q *incoming) takeMemory(n int) error {
	m := &q.gate.requests
	return q.takeFor(func(share string) bool { return m.take(q.ctx, share, n) }, m.taken, n, &q.bytes)
}

// takeFor authenticates the caller, if that has not happened, and takes n bytes of a budget for it.
func (q *incoming) takeFor(take func(share string) bool, budget *memorybudget.Budget, n int, taken *int) error {
	conn := connectionFrom(q.ctx)
	if conn == nil {
		return errors.New("rpc: the server's credentials do not watch connections")
	}
	if q.caller == nil {
		c := &Caller{gate: q.gate, method: q.wire.Method()}
		if err := c.admitLargeRequest(q.ctx); err != nil {
			return err
		}
		q.caller = c
	}
	share := q.caller.memoryShare(conn)
	if !take(share) {
		return q.caller.refuseOverLimit(q.ctx, "request_bytes", time.Second)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		budget.Give(share, n)
		return status.Error(codes.Canceled, "the stream has ended")
	}
	q.share, *taken = share, n
	return nil
}

// startTimer gives the client time to send a message of so many bytes, or its end.
func (q *incoming) startTimer(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return
	}
	patience := requestTime + time.Duration(n)*time.Second/requestRate
	if q.timer != nil {
		q.timer.Reset(patience)
		return
	}
	q.timer = time.AfterFunc(patience, func() {
		q.late.Store(true)
		_ = q.wire.WriteStatus(status.New(codes.DeadlineExceeded, "the request has arrived too slowly"))
	})
}

// admitLargeRequest authenticates a caller, and refuses one without a role that allows the method for anything.
// Methods that are open to everybody have no large requests.
func (c *Caller) admitLargeRequest(ctx context.Context) error {
	d, known := methodPermissions[c.method]
	if known && d.open {
		return status.Errorf(codes.ResourceExhausted, "requests of this method have at most %d bytes", smallRequest)
	}
	if c.gate.authority == nil || !known {
		return nil
	}
	if err := c.authenticate(ctx); err != nil {
		return err
	}
	if d.decidedByHandler {
		return nil
	}
	return c.authorizeAnywhere(ctx, d.permission)
}

// memoryShare names the share from which a call takes memory. An identity without a role has no share of its own,
// because a caller may have many such identities.
func (c *Caller) memoryShare(conn *connection) string {
	if c.hasRole {
		return c.Identity.Subject
	}
	return conn.memoryShare()
}

// readError is the error of a call whose message cannot be read.
func (q *incoming) readError(err error) error {
	switch {
	case q.late.Load():
		return status.Error(codes.DeadlineExceeded, "the request has arrived too slowly")
	case err == io.EOF:
		return err
	case err == io.ErrUnexpectedEOF:
		return status.Error(codes.Internal, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Unavailable, err.Error()) // of the connection
}
