package queuestats

import (
	"context"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/lib/callturn"
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
// those who come soon after it get its answer. Nobody may change the answer. Callers who need what is stored now
// ([sharedLook.getUpToDate]) share the next look.
type sharedLook[T any] struct {
	mu      sync.Mutex
	begun   int            // looks that have begun
	current *lookResult[T] // may be served
	pending *lookResult[T] // in progress
}

// lookResult is the answer of one look, after done is closed.
type lookResult[T any] struct {
	number int // looks are numbered as they begin
	done   chan struct{}
	value  T
	err    error
}

// get returns the shared answer, or the answer of a look that began before or with this call. life bounds the looks,
// ctx the wait of this caller.
func (l *sharedLook[T]) get(ctx, life context.Context, look func(context.Context) (T, error)) (T, error) {
	value, _, err := l.join(0, life, look)(ctx)
	return value, err
}

// getUpToDate returns the answer of a look that began with or after this call, or the shared answer where suffices
// accepts it. Callers who come while a look is in progress share the next one. isNew: the look began with or after
// this call.
func (l *sharedLook[T]) getUpToDate(ctx, life context.Context, look func(context.Context) (T, error),
	suffices func(T) bool) (value T, isNew bool, err error) {
	before := l.looksBegun()
	value, number, err := l.join(0, life, look)(ctx)
	for err == nil && number <= before {
		if suffices(value) {
			return value, false, nil
		}
		value, number, err = l.join(before+1, life, look)(ctx)
	}
	return value, true, err
}

func (l *sharedLook[T]) looksBegun() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

// waitForOther is wait for the look of another call: it gives the turn of this one back meanwhile (see callturn).
func (r *lookResult[T]) waitForOther(ctx context.Context) (value T, number int, err error) {
	select {
	case <-r.done:
		return r.wait(ctx)
	default:
	}
	err = callturn.Wait(ctx, func() error {
		value, number, err = r.wait(ctx)
		return err
	})
	return value, number, err
}

// wait returns the answer and its number, once the look has ended.
func (r *lookResult[T]) wait(ctx context.Context) (value T, number int, err error) {
	select {
	case <-r.done:
		return r.value, r.number, r.err
	case <-ctx.Done():
		return value, r.number, ctx.Err()
	}
}

// join joins the look in progress, or begins one. It returns the wait for the answer: a call that began the look keeps
// its turn on the node, which bounds the looks. The shared answer serves if its number is at least the given one.
func (l *sharedLook[T]) join(number int, life context.Context,
	look func(context.Context) (T, error)) (wait func(context.Context) (T, int, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.current != nil && l.current.number >= number:
		return l.current.wait
	case l.pending != nil:
		return l.pending.waitForOther
	}
	l.begun++
	l.pending = &lookResult[T]{number: l.begun, done: make(chan struct{})}
	go l.run(life, l.pending, look)
	return l.pending.wait
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
	time.AfterFunc(age, func() { l.forget(r) })
}

// forget ends the service of an answer, unless a later one has replaced it.
func (l *sharedLook[T]) forget(r *lookResult[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == r {
		l.current = nil
	}
}

// isIdle reports whether there is neither an answer nor a look.
func (l *sharedLook[T]) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current == nil && l.pending == nil
}
