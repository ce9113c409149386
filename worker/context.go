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
	cause error // of an end before the handler first used the context; a passed deadline is not stored
	// standard is the context that the handler waits on. cancel ends it, stopTimer frees its timer.
	standard  context.Context
	cancel    context.CancelCauseFunc
	stopTimer context.CancelFunc
}

func (c *taskContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }
func (c *taskContext) Done() <-chan struct{}       { return c.watchedContext().Done() }
func (c *taskContext) Err() error                  { return c.watchedContext().Err() }

// Value makes [context.Cause] and derived contexts use the standard context.
func (c *taskContext) Value(key any) any { return c.watchedContext().Value(key) }

func (c *taskContext) watchedContext() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.standard != nil {
		return c.standard
	}
	if c.cause != nil {
		// The cause came first, whatever has happened to the worker since.
		c.standard, c.cancel = context.WithCancelCause(context.WithoutCancel(c.base))
		c.cancel(c.cause)
		return c.standard
	}
	c.standard, c.cancel = context.WithCancelCause(c.base)
	if !c.deadline.IsZero() {
		c.standard, c.stopTimer = context.WithDeadlineCause(c.standard, c.deadline, ErrTimeout)
	}
	return c.standard
}

// replaceBase replaces base by a context derived from it. The handler must not have used the context yet.
func (c *taskContext) replaceBase(base context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = base
}

// startTimeout starts the clock of the timeout, if there is one.
func (c *taskContext) startTimeout(now time.Time, timeout time.Duration) {
	if timeout <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = now.Add(timeout)
}

// endWith ends the context. Only the first cause counts.
func (c *taskContext) endWith(cause error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.standard != nil:
		c.cancel(cause)
		if c.stopTimer != nil {
			c.stopTimer()
		}
	case c.cause == nil && !c.deadlinePassed(now):
		c.cause = cause
	}
}

// causeAt returns why the context has ended by now, or nil if it has not.
func (c *taskContext) causeAt(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.standard != nil:
		return context.Cause(c.standard)
	case c.cause != nil:
		return c.cause
	case c.deadlinePassed(now):
		return ErrTimeout
	}
	return context.Cause(c.base)
}

func (c *taskContext) deadlinePassed(now time.Time) bool {
	return !c.deadline.IsZero() && !now.Before(c.deadline)
}
