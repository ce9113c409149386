package guard

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/lib/memorybudget"
)

// An idle connection takes memory, and so does a stream whose client sends nothing. A limit of their number would not
// depend on the memory of the node. So both take memory from a budget that identities share, from the time that their
// identity is known until they end.

const (
	// maxOpenMemory bounds the memory of open connections and streams, or two thirds of the memory that the process is
	// to keep to. One identity may have a quarter of the memory of the process, several of them half of it together, and
	// the rest is for identities that have little.
	maxOpenMemory = 4 << 30
	minOpenMemory = 32 << 20
	// connectionBytes is what a silent connection takes: three goroutines, and what gRPC and TLS keep.
	connectionBytes = 48 << 10
	// streamBytes is what an open stream takes: goroutines, timers, and a table of headers.
	streamBytes = 24 << 10
)

func newOpenBudget(memory int64) *memorybudget.Budget {
	return memorybudget.New(int(min(math.MaxInt, maxOpenMemory, max(minOpenMemory, memory/3*2))))
}

// connectionMemory is what a connection takes of the budget of open connections. The zero value takes nothing.
type connectionMemory struct {
	budget *memorybudget.Budget
	owner  string // empty: no memory is taken
}

// moveTo takes the memory from the share of another owner, and returns it to the previous one. It returns false if the
// share is used up. An empty owner is an identity without a role: such a connection keeps the bounds of unauthenticated
// connections, and no memory is moved.
func (m *connectionMemory) moveTo(owner string) bool {
	if m.budget == nil || owner == "" || owner == m.owner {
		return true
	}
	if !m.budget.TryTake(owner, connectionBytes) {
		return false
	}
	m.giveBack()
	m.owner = owner
	return true
}

func (m *connectionMemory) giveBack() {
	if m.owner != "" {
		m.budget.Give(m.owner, connectionBytes)
		m.owner = ""
	}
}

// StreamMemory is what a stream takes of the memory of its caller while it is open.
type StreamMemory struct {
	budget   *memorybudget.Budget
	owner    string
	released atomic.Bool
}

// Release gives the memory back: the stream has ended, or something else counts it from now on. It may be called twice,
// and for nil.
func (m *StreamMemory) Release() {
	if m != nil && !m.released.Swap(true) {
		m.budget.Give(m.owner, streamBytes)
	}
}

// TakeStreamMemory takes the memory of a stream from the share of an owner. It returns false if the share is used up.
func TakeStreamMemory(budget *memorybudget.Budget, owner string) (*StreamMemory, bool) {
	if !budget.TryTake(owner, streamBytes) {
		return nil, false
	}
	return &StreamMemory{budget: budget, owner: owner}, true
}

type streamMemoryKey struct{}

// WithStreamMemory gives a stream's context the memory that the stream takes; nil if nothing bounds it.
func WithStreamMemory(ctx context.Context, m *StreamMemory) context.Context {
	return context.WithValue(ctx, streamMemoryKey{}, m)
}

// StreamMemoryFrom returns the memory that a stream takes; nil if nothing bounds it.
func StreamMemoryFrom(ctx context.Context) *StreamMemory {
	m, _ := ctx.Value(streamMemoryKey{}).(*StreamMemory)
	return m
}

// takeStreamMemory takes the memory of a stream whose handler begins; nil if nothing bounds it: its connection is
// unauthenticated, which has bounds of its own, or callers are not authenticated at all.
func (q *incoming) takeStreamMemory() (*StreamMemory, error) {
	if q.quota() == nil {
		return nil, nil
	}
	c := q.callerOrUnknown()
	m, ok := TakeStreamMemory(q.gate.open, c.memoryShare(connectionFrom(q.ctx)))
	if !ok {
		return nil, c.refuseOverLimit(q.ctx, openBytes, time.Second)
	}
	return m, nil
}

// openBytes is the limit of what the open connections and streams of an identity take.
const openBytes = "open_bytes"
