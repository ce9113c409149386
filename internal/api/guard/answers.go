package guard

import (
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/lib/memorybudget"
)

// gRPC keeps the response of a call until the client has read it, and the call has ended by then. So large responses
// take their bytes from a budget, in equal parts for the identities that have any there. A response gives its bytes
// back when gRPC frees its buffer, or when its connection is closed.

const (
	// maxUnreadBytes bounds the large responses of a node that clients have not read, or an eighth of the memory that
	// the process is to keep to.
	maxUnreadBytes = 256 << 20
	minUnreadBytes = 16 << 20
	// strangersPart is the divisor for what connections without an identity have in addition.
	strangersPart = 4
	// Responses up to smallResponse bytes take no memory of the budget as long as the small unread responses of the
	// identity take at most maxSmallUnread bytes. Each counts with unreadOverhead, for what gRPC keeps of its stream: 4 KiB,
	// and a table of headers, whose size a client chooses within MaxHeaderBytes; and with the headers that are read.
	smallResponse  = 16 << 10
	maxSmallUnread = 4 << 20
	unreadOverhead = 24 << 10
	// minCountedBuffer is the least capacity of a buffer that gRPC reports as freed.
	minCountedBuffer = 1<<10 + 1
)

func newUnreadBudget(memory int64) *memorybudget.Budget {
	return memorybudget.New(unreadBytes(memory))
}

// newStrangersBudget is the memory for unread answers to connections that have not proved an identity with a role,
// shared by the groups of their addresses. They take nothing of the memory of identities.
func newStrangersBudget(memory int64) *memorybudget.Budget {
	return memorybudget.New(unreadBytes(memory) / strangersPart)
}

func unreadBytes(memory int64) int {
	return int(min(maxUnreadBytes, max(minUnreadBytes, memory/8)))
}

func processMemory() int64 { return debug.SetMemoryLimit(-1) }

// unreadResponse is a response that takes its bytes from the budget, or counts as a small one of its identity, until it
// is freed.
type unreadResponse struct {
	message proto.Message
	budget  *memorybudget.Budget
	quota   *quota // counts a small response; nil if the response takes memory of the budget
	share   string
	bytes   int
	conn    *connection
	freed   sync.Once
	closing *time.Timer // closes the connection if the response stays unread; nil if the identity is within its share
}

// free gives the bytes back. It may be called twice.
func (u *unreadResponse) free() {
	u.freed.Do(func() {
		if u.closing != nil {
			u.closing.Stop()
		}
		if u.quota != nil {
			u.quota.smallUnread.Add(-int64(u.bytes))
		} else {
			u.budget.Give(u.share, u.bytes)
		}
		u.conn.removeUnread(u)
	})
}

// BoundUnread refuses calls of identities that leave too many responses unread. A call that changes something is
// refused before it does. It comes after the interceptor of the gate.
func (g *Gate) BoundUnread(ctx context.Context, q any, info *grpc.UnaryServerInfo,
	next grpc.UnaryHandler) (any, error) {
	conn := connectionFrom(ctx)
	if conn == nil {
		return next(ctx, q)
	}
	c := CallerFrom(ctx)
	if c == nil {
		c = &Caller{gate: g, method: info.FullMethod}
	}
	share := g.unreadShare(c, conn)
	isStranger := share.budget == g.strangers // what is open to everybody changes nothing
	changes := !isStranger && !changesNothing(info.FullMethod)
	if changes {
		giveBack, ok := share.reserveAnswer(q)
		if !ok {
			return nil, c.refuseOverLimit(ctx, "unread_bytes", time.Second)
		}
		defer giveBack()
	}
	answer, err := next(ctx, q)
	m, ok := answer.(proto.Message)
	if err != nil || !ok {
		return answer, err
	}
	n := proto.Size(m)
	u := &unreadResponse{
		message: m, budget: share.budget, share: share.share, bytes: n + unreadOverhead + keptHeaderBytes(ctx), conn: conn,
	}
	switch quota := conn.lastQuota(); {
	case isStranger && !share.TryTake(u.bytes):
		conn.closeUnread()
		return nil, c.refuseOverLimit(ctx, "unread_bytes", time.Second)
	case isStranger:
	case n <= smallResponse && quota == nil: // without access control nothing bounds the calls either
		return answer, nil
	case n <= smallResponse && quota.addSmallUnread(u.bytes):
		u.quota = quota
	case changes: // a refusal would say that nothing was changed
		if !share.budget.Allows(share.share, u.bytes) {
			u.closing = time.AfterFunc(StuckTimeout, conn.closeNow)
		}
		share.budget.TakeAnyway(share.share, u.bytes)
	case !share.TryTake(u.bytes):
		return nil, c.refuseOverLimit(ctx, "unread_bytes", time.Second)
	}
	if !conn.addUnread(u) {
		u.free() // nobody reads it
	}
	return u, nil
}

// reserveAnswer takes memory for the response of a call before the call changes anything: the size of the request,
// because such responses repeat what was sent. Call giveBack when the response has taken its own memory.
func (u UnreadShare) reserveAnswer(q any) (giveBack func(), ok bool) {
	n := 0
	if m, isMessage := q.(proto.Message); isMessage {
		n = proto.Size(m)
	}
	if n <= smallResponse {
		return func() {}, u.budget.Allows(u.share, smallResponse)
	}
	n = min(n, u.budget.Largest()/2) // the largest request is more than a small process has
	if !u.TryTake(n) {
		return nil, false
	}
	return func() { u.Give(n) }, true
}

// UnreadShare is a stream's access to the memory for unread responses. All streams and calls of the caller's identity
// use the same share.
type UnreadShare struct {
	budget *memorybudget.Budget
	share  string
}

type unreadShareKey struct{}

// UnreadShareFrom returns the share of a stream's caller; nil if nothing bounds it.
func UnreadShareFrom(ctx context.Context) *UnreadShare {
	u, _ := ctx.Value(unreadShareKey{}).(*UnreadShare)
	return u
}

// TryTake takes memory. It returns false if that would exceed the share.
func (u UnreadShare) TryTake(bytes int) bool { return u.budget.TryTake(u.share, bytes) }

// Give gives back memory that the caller has.
func (u UnreadShare) Give(bytes int) { u.budget.Give(u.share, bytes) }

// withUnreadShare gives a stream's context the share of its caller.
func (g *Gate) withUnreadShare(ctx context.Context) context.Context {
	conn := connectionFrom(ctx)
	if conn == nil {
		return ctx
	}
	c := CallerFrom(ctx)
	if c == nil {
		c = &Caller{gate: g}
	}
	share := g.unreadShare(c, conn)
	return context.WithValue(ctx, unreadShareKey{}, &share)
}

// unreadShare returns the share of a caller, or of the connection if the caller is not authenticated.
func (g *Gate) unreadShare(c *Caller, conn *connection) UnreadShare {
	budget := g.unread
	if !c.hasRole && !conn.isAuthenticated() {
		budget = g.strangers
	}
	return UnreadShare{budget: budget, share: c.memoryShare(conn)}
}

// readVerbs begin the names of methods that change nothing.
var readVerbs = []string{"Get", "List", "Read", "Export", "Top", "Explain", "Preview", "Plan", "Diff", "Forecast", "Is"}

func changesNothing(method string) bool {
	name := method[strings.LastIndexByte(method, '/')+1:]
	return slices.ContainsFunc(readVerbs, func(verb string) bool { return strings.HasPrefix(name, verb) })
}

// unreadAnswers are answers that gRPC has, and that the end of their connection frees.
type unreadAnswers interface{ free() }

// addUnread has the end of the connection free answers; false: it has ended.
func (c *connection) addUnread(u unreadAnswers) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if c.unread == nil {
		c.unread = map[unreadAnswers]struct{}{}
	}
	c.unread[u] = struct{}{}
	return true
}

func (c *connection) removeUnread(u unreadAnswers) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unread, u)
}

// closeNow closes a connection without waiting for its calls.
func (c *connection) closeNow() {
	if c.rawConn != nil {
		_ = c.rawConn.Close()
	}
}

// closeUnread closes a connection whose client leaves too many answers unread.
func (c *connection) closeUnread() {
	if !c.closing.Swap(true) {
		c.unauthenticated.closeRaw(c, errUnreadAnswers)
	}
}

// freeUnread frees all responses of a connection that is closed: gRPC does not free what waits in one.
func (c *connection) freeUnread() {
	c.mu.Lock()
	unread := c.unread
	c.unread = nil
	c.mu.Unlock()
	for u := range unread {
		u.free()
	}
}

// UnreadCodec encodes what [Gate.BoundUnread] returns and what the streams of [Gate.Services] send. Other messages are
// those of the inner codec.
func UnreadCodec(inner encoding.CodecV2) encoding.CodecV2 { return unreadCodec{inner} }

type unreadCodec struct{ encoding.CodecV2 }

func (c unreadCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(*countedBuffer); ok {
		return b.slice(), nil
	}
	u, ok := v.(*unreadResponse)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	data, err := c.CodecV2.Marshal(u.message)
	u.message = nil
	if err != nil {
		u.free()
		return nil, err
	}
	// A copy: a buffer of gRPC's pool may be many times as large.
	content := make([]byte, data.Len(), max(data.Len(), minCountedBuffer))
	data.CopyTo(content)
	data.Free()
	return mem.BufferSlice{mem.NewBuffer(&content, freeingPool{u})}, nil
}

// freeingPool is the pool of one buffer, which is not used again.
type freeingPool struct{ response *unreadResponse }

// Get is not called: buffers are only returned to the pool.
func (freeingPool) Get(length int) *[]byte { b := make([]byte, length); return &b }

// Put is called when gRPC has no more use for the buffer.
func (p freeingPool) Put(*[]byte) { p.response.free() }
