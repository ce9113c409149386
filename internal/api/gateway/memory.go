package gateway

import (
	"context"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	"github.com/fermata-io/fermata/internal/lib/memorybudget"
)

// Bodies of requests, responses and events that wait to be read share one budget of memory, in equal parts for the
// identities that use it. What a caller does not send or read to its end therefore costs others nothing.

const (
	// maxMemory bounds the budget, and minMemory is what it has in the smallest process. It is two fifths of the memory
	// that the process is to keep to; connections, and what is under way in them, have the rest.
	maxMemory = 256 << 20
	minMemory = 32 << 20

	// callMemory is what a call takes until its response has come, beside the body of the request.
	callMemory = 256 << 10
	// memoryPerReplyByte is what a byte of a node's response takes as it arrives and as JSON, beside what it is decoded to.
	memoryPerReplyByte = 6
	// memoryPerEventByte is what a byte of an event takes that waits to be written.
	memoryPerEventByte = 3

	// writeTime is how long a response may take to be read, beside a second for each bodyRate bytes that were read.
	writeTime  = 10 * time.Second
	writeChunk = 64 << 10
)

// errMemoryTaken refuses what others leave no memory for.
var errMemoryTaken = exhausted("other requests of this caller, or of others, take the memory for this one")

// newMemory makes the budget of this process.
func newMemory() *memorybudget.Budget { return memorybudget.New(memoryFor(debug.SetMemoryLimit(-1))) }

// memoryFor is the budget of a process that is to keep to so many bytes.
func memoryFor(limit int64) int { return int(min(maxMemory, max(minMemory, limit/5*2))) }

// takeCallMemory takes the memory of a call. release gives back that, and what the response has taken.
func (g *Gateway) takeCallMemory(ctx context.Context, c *call) (release func(), err error) {
	c.memory = g.memory
	if err := c.takeMemory(ctx, callMemory); err != nil {
		g.metrics.refuse("memory")
		return nil, err
	}
	return func() { g.memory.Give(c.share, c.taken) }, nil
}

// takeMemory has the call have so many bytes.
func (c *call) takeMemory(ctx context.Context, n int) error {
	if n <= c.taken {
		return nil
	}
	if !c.memory.Take(ctx, c.share, n-c.taken, placeWait) {
		return errMemoryTaken
	}
	c.taken = n
	return nil
}

// takeReplyMemory takes the memory of a response before it is decoded. A single one takes at most half of what an identity
// may have while no other has anything, so that it is not refused because of what little others have. Who has changed
// something gets its response in any case.
func (c *call) takeReplyMemory(ctx context.Context, encoded []byte, reply proto.Message) error {
	if c.memory == nil {
		return nil
	}
	most := c.memory.Largest() / 2
	n := min(grpccodec.EstimateDecoded(encoded, reply, most).Size+memoryPerReplyByte*len(encoded), most)
	if !c.onlyReads && n > c.taken {
		c.memory.TakeAnyway(c.share, n-c.taken)
		c.taken = n
	}
	return c.takeMemory(ctx, n)
}

// replyCodec decodes the response of a call once there is memory for it.
type replyCodec struct {
	encoding.CodecV2
	call *call
	ctx  context.Context
	err  error // why there is none
}

func newReplyCodec(ctx context.Context, c *call) *replyCodec {
	return &replyCodec{CodecV2: encoding.GetCodecV2(grpcproto.Name), call: c, ctx: ctx}
}

// Unmarshal implements [encoding.CodecV2].
func (r *replyCodec) Unmarshal(data mem.BufferSlice, v any) error {
	reply, ok := v.(proto.Message)
	if !ok {
		return r.CodecV2.Unmarshal(data, v)
	}
	encoded := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer encoded.Free()
	r.err = r.call.takeReplyMemory(r.ctx, encoded.ReadOnlyData(), reply)
	if r.err != nil {
		return r.err
	}
	return proto.Unmarshal(encoded.ReadOnlyData(), reply)
}

// pacedWriter ends a response that is read too slowly.
type pacedWriter struct {
	http.ResponseWriter
	began   time.Time
	written int
}

func newPacedWriter(w http.ResponseWriter) *pacedWriter { return &pacedWriter{ResponseWriter: w} }

// Write writes a part at a time. The time of a reader begins with the first one.
func (w *pacedWriter) Write(p []byte) (n int, err error) {
	control := http.NewResponseController(w.ResponseWriter)
	if w.began.IsZero() {
		w.began = time.Now()
	}
	for {
		allowed := writeTime + time.Duration(w.written)*time.Second/bodyRate
		_ = control.SetWriteDeadline(w.began.Add(allowed))
		part := p[n:min(len(p), n+writeChunk)]
		k, err := w.ResponseWriter.Write(part)
		n, w.written = n+k, w.written+k
		switch {
		case err != nil:
			return n, err
		case k < len(part):
			return n, io.ErrShortWrite
		case n == len(p):
			return n, nil
		}
	}
}

// Flush is what the translation asks of a writer. Unwrap is for [http.ResponseController].
func (w *pacedWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
