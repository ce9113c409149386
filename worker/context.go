package worker

import (
	"context"
	"sync"
	"time"
)

// taskContext is the context of one handler. What a context of the standard
// library costs is the price of being watched: a channel, a timer, a place at its
// parent. Many handlers never look, so it is made when one first does.
type taskContext struct {
	base     context.Context // ends when the worker stops
	deadline time.Time       // zero: none

	mu    sync.Mutex
	cause error // of an end before anybody watched; the deadline's is not noted
	// std is what the handler watches. cancel ends it, stop frees its timer.
	std    context.Context
	cancel context.CancelCauseFunc
	stop   context.CancelFunc
}

func (c *taskContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }
func (c *taskContext) Done() <-chan struct{}       { return c.watched().Done() }
func (c *taskContext) Err() error                  { return c.watched().Err() }

// Value leads [context.Cause] and derived contexts to the watched one.
func (c *taskContext) Value(key any) any { return c.watched().Value(key) }

func (c *taskContext) watched() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.std != nil {
		return c.std
	}
	if c.cause != nil {
		// It came first, whatever happened to the worker since.
		c.std, c.cancel = context.WithCancelCause(context.WithoutCancel(c.base))
		c.cancel(c.cause)
		return c.std
	}
	c.std, c.cancel = context.WithCancelCause(c.base)
	if !c.deadline.IsZero() {
		c.std, c.stop = context.WithDeadlineCause(c.std, c.deadline, ErrTimeout)
	}
	return c.std
}

// rebase puts a context that derives from base in its place. Nobody may have watched.
func (c *taskContext) rebase(base context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = base
}

// begin starts the clock of the timeout, if there is one.
func (c *taskContext) begin(now time.Time, timeout time.Duration) {
	if timeout <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = now.Add(timeout)
}

// end ends the context, for this cause if it is the first.
func (c *taskContext) end(cause error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.std != nil:
		c.cancel(cause)
		if c.stop != nil {
			c.stop()
		}
	case c.cause == nil && !c.late(now):
		c.cause = cause
	}
}

// endedBy is why the context has ended by now, nil if it has not.
func (c *taskContext) endedBy(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.std != nil:
		return context.Cause(c.std)
	case c.cause != nil:
		return c.cause
	case c.late(now):
		return ErrTimeout
	}
	return context.Cause(c.base)
}

func (c *taskContext) late(now time.Time) bool {
	return !c.deadline.IsZero() && !now.Before(c.deadline)
}
