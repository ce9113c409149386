package coalesce

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrTurnTimeout is the error of an item that was not sent because its caller's patience ended.
var ErrTurnTimeout = errors.New("timed out waiting for a turn to send")

// Coalescer coalesces items of callers. It is safe for concurrent use.
type Coalescer[T any] struct {
	width     int
	maxWeight int
	mu        sync.Mutex
	inFlight  int // sends in flight
	waiting   []*queuedItem[T]
}

// queuedItem is the item of one caller.
type queuedItem[T any] struct {
	item   T
	weight int
	// turn receives the items that this caller has to send, its own first; it is closed when another caller has
	// sent them.
	turn chan []*queuedItem[T]
}

// New returns a funnel of a width, at least 1. The items of one send weigh at most most together, unless a
// single item weighs more.
func New[T any](width, most int) *Coalescer[T] {
	return &Coalescer[T]{width: max(width, 1), maxWeight: most}
}

// Do sends an item, by this caller or by another one: send is called with items in the order in which they came.
// It returns nil if the item was sent. If it was not and will not be, it returns the context's error or, with a
// patience above 0, [ErrTurnTimeout].
func (f *Coalescer[T]) Do(ctx context.Context, item T, weight int, patience time.Duration,
	send func(context.Context, []T)) error {
	l := &queuedItem[T]{item: item, weight: weight}
	together := f.startOrQueue(l)
	if together == nil {
		var err error
		together, err = f.waitForTurn(ctx, l, patience)
		if err != nil || together == nil {
			return err
		}
	}
	defer f.endSend(together)
	if len(together) == 1 {
		send(ctx, []T{item})
		return nil
	}
	items := make([]T, len(together))
	for i, t := range together {
		items[i] = t.item
	}
	send(context.WithoutCancel(ctx), items)
	return nil
}

// startOrQueue starts a send for an item, or queues it.
func (f *Coalescer[T]) startOrQueue(l *queuedItem[T]) []*queuedItem[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.inFlight < f.width {
		f.inFlight++
		return []*queuedItem[T]{l}
	}
	l.turn = make(chan []*queuedItem[T], 1)
	f.waiting = append(f.waiting, l)
	return nil
}

// waitForTurn returns the items that the caller has to send, or nothing if another has sent its item.
func (f *Coalescer[T]) waitForTurn(ctx context.Context, l *queuedItem[T], patience time.Duration) ([]*queuedItem[T],
	error) {
	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case together := <-l.turn:
		return together, nil
	case <-ctx.Done():
		if f.removeQueued(l) {
			return nil, ctx.Err()
		}
	case <-late:
		if f.removeQueued(l) {
			return nil, ErrTurnTimeout
		}
	}
	return <-l.turn, nil
}

// removeQueued removes an item from the queue; false if it is in flight.
func (f *Coalescer[T]) removeQueued(l *queuedItem[T]) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.waiting, l)
	if i < 0 {
		return false
	}
	f.waiting = slices.Delete(f.waiting, i, i+1)
	return true
}

// endSend ends a send and passes its place to the waiting items.
func (f *Coalescer[T]) endSend(sent []*queuedItem[T]) {
	for _, l := range sent[1:] {
		close(l.turn)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) == 0 {
		f.inFlight--
		return
	}
	n, weight := 0, 0
	for _, l := range f.waiting {
		weight += l.weight
		if n > 0 && weight > f.maxWeight {
			break
		}
		n++
	}
	together := slices.Clone(f.waiting[:n])
	f.waiting = slices.Delete(f.waiting, 0, n) // which drops the references, so that a burst leaves nothing behind
	together[0].turn <- together
}
