package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// What happens to a handler's context, and what the handler sees of it then.
func TestTaskContext(t *testing.T) {
	const timeout = time.Second
	type key struct{}
	errHalt := errors.New("halted")
	pass := func(d time.Duration) func(*taskContext, context.CancelCauseFunc) {
		return func(*taskContext, context.CancelCauseFunc) { time.Sleep(d); synctest.Wait() }
	}
	end := func(cause error) func(*taskContext, context.CancelCauseFunc) {
		return func(c *taskContext, _ context.CancelCauseFunc) { c.endWith(cause, time.Now()) }
	}
	halt := func(_ *taskContext, halt context.CancelCauseFunc) { halt(errHalt) }
	tests := map[string]struct {
		steps      []func(*taskContext, context.CancelCauseFunc)
		err, cause error
	}{
		"goes on":            {steps: nil},
		"before the timeout": {steps: []func(*taskContext, context.CancelCauseFunc){pass(timeout - 1)}},
		"timeout": {steps: []func(*taskContext, context.CancelCauseFunc){pass(timeout)},
			err: context.DeadlineExceeded, cause: ErrTimeout},
		"cancelled": {steps: []func(*taskContext, context.CancelCauseFunc){end(ErrCancelled)},
			err: context.Canceled, cause: ErrCancelled},
		"timed out by a node": {steps: []func(*taskContext, context.CancelCauseFunc){end(ErrTimeout)},
			err: context.Canceled, cause: ErrTimeout},
		"the worker stops": {steps: []func(*taskContext, context.CancelCauseFunc){halt}, err: context.Canceled,
			cause: errHalt},
		"the first cause": {steps: []func(*taskContext, context.CancelCauseFunc){end(ErrLeaseLost),
			end(ErrCancelled), pass(timeout), halt}, err: context.Canceled, cause: ErrLeaseLost},
		"timeout, then cancel": {steps: []func(*taskContext, context.CancelCauseFunc){pass(timeout),
			end(ErrCancelled)}, err: context.DeadlineExceeded, cause: ErrTimeout},
		"cancel, then timeout": {steps: []func(*taskContext, context.CancelCauseFunc){end(ErrCancelled),
			pass(timeout)}, err: context.Canceled, cause: ErrCancelled},
		"the handler returned": {steps: []func(*taskContext, context.CancelCauseFunc){end(context.Canceled)},
			err: context.Canceled, cause: context.Canceled},
	}
	looks := map[string]func(*testing.T, context.Context) context.Context{
		"watched":      func(_ *testing.T, ctx context.Context) context.Context { ctx.Done(); return ctx },
		"by its error": func(_ *testing.T, ctx context.Context) context.Context { _ = ctx.Err(); return ctx },
		"at the end":   nil,
		"derived": func(t *testing.T, ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(context.WithValue(ctx, key{}, 2))
			t.Cleanup(cancel)
			return ctx
		},
	}
	for name, test := range tests {
		for how, look := range looks {
			t.Run(name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base, stop := context.WithCancelCause(context.WithValue(t.Context(), key{}, 1))
					defer stop(nil)
					c := &taskContext{base: base}
					defer func() { c.endWith(nil, time.Now()) }()
					c.startTimeout(time.Now(), timeout)
					if at, ok := c.Deadline(); !ok || time.Until(at) != timeout {
						t.Errorf("deadline is %v", at)
					}
					var seen context.Context = c
					if look != nil {
						seen = look(t, c)
					}
					for _, step := range test.steps {
						step(c, stop)
					}
					if cause := c.causeAt(time.Now()); cause != test.cause {
						t.Errorf("ended by %v, want %v", cause, test.cause)
					}
					if err, cause := seen.Err(), context.Cause(seen); err != test.err || cause != test.cause {
						t.Errorf("got %v because of %v, want %v because of %v", err, cause, test.err, test.cause)
					}
					select {
					case <-seen.Done():
						if test.err == nil {
							t.Error("done")
						}
					default:
						if test.err != nil {
							t.Error("not done")
						}
					}
					if v := c.Value(key{}); v != 1 {
						t.Errorf("value is %v", v)
					}
				})
			})
		}
	}
}

func TestContextWithoutTimeout(t *testing.T) {
	c := &taskContext{base: t.Context()}
	c.startTimeout(time.Now(), 0)
	if _, ok := c.Deadline(); ok || c.Err() != nil || c.causeAt(time.Now().Add(time.Hour)) != nil {
		t.Error("a context without timeout ends")
	}
	c.endWith(nil, time.Now())
}

// BenchmarkTaskContext is what a handler's context costs that nobody looks at, and
// one that is watched.
func BenchmarkTaskContext(b *testing.B) {
	for name, watch := range map[string]bool{"unwatched": false, "watched": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			now := time.Now()
			for b.Loop() {
				c := &taskContext{base: b.Context()}
				c.startTimeout(now, time.Minute)
				if watch {
					c.Done()
				}
				c.causeAt(now)
				c.endWith(context.Canceled, now)
			}
		})
	}
}
