package queuestats

import (
	"context"
	"sync"
	"time"
)

const (
	// sharedPauseFactor is how much longer than a look its answer is served, within bounds. Callers, however many,
	// keep Redis busy with it for at most a twentieth of the time.
	sharedPauseFactor = 20
	// MaxAge bounds the age of a shared answer. It is reached only where a look takes more than a second.
	MaxAge = 30 * time.Second
	// maxErrorAge bounds how long a failed look is served.
	maxErrorAge = time.Second
	// sharedTimeout bounds one look.
	sharedTimeout = 30 * time.Second
)

// sharedLook is a read that all callers of a node share: callers who come while it is in progress wait for it, and
// those who come soon after it get its answer. Nobody may change the answer.
type sharedLook[T any] struct {
	mu      sync.Mutex
	current *lookResult[T] // may be served
	pending *lookResult[T] // in progress
}

// lookResult is the answer of one look, after done is closed.
type lookResult[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// get returns the shared answer, or the answer of a look that began before or with this call. life bounds the looks,
// ctx the wait of this caller.
func (l *sharedLook[T]) get(ctx, life context.Context, look func(context.Context) (T, error)) (T, error) {
	r := l.join(life, look)
	select {
	case <-r.done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func (l *sharedLook[T]) join(life context.Context, look func(context.Context) (T, error)) *lookResult[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.current != nil:
		return l.current
	case l.pending == nil:
		l.pending = &lookResult[T]{done: make(chan struct{})}
		go l.run(life, l.pending, look)
	}
	return l.pending
}

func (l *sharedLook[T]) run(life context.Context, r *lookResult[T], look func(context.Context) (T, error)) {
	ctx, cancel := context.WithTimeout(life, sharedTimeout)
	defer cancel()
	began := time.Now()
	r.value, r.err = look(ctx)
	age := min(sharedPauseFactor*time.Since(began), MaxAge)
	if r.err != nil {
		age = min(age, maxErrorAge)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current, l.pending = r, nil
	close(r.done)
	time.AfterFunc(age, l.forget)
}

// forget ends the service of the answer. No look begins before, so that there is one timer.
func (l *sharedLook[T]) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = nil
}

// isIdle reports whether there is neither an answer nor a look.
func (l *sharedLook[T]) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current == nil && l.pending == nil
}
