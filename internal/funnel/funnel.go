package funnel

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrPatience is the error of an item that was not sent because its caller did not
// want to wait any longer.
var ErrPatience = errors.New("no turn came in time")

// Funnel gathers items of callers. It is safe for concurrent use.
type Funnel[T any] struct {
	width   int
	most    int
	mu      sync.Mutex
	under   int // sendings under way
	waiting []*load[T]
}

// load is the item of one caller.
type load[T any] struct {
	item   T
	weight int
	// turn brings the loads that this one's caller has to send, its own first; it is
	// closed when another has sent them.
	turn chan []*load[T]
}

// New returns a funnel of a width, at least 1, whose sendings weigh most together,
// unless a single item weighs more.
func New[T any](width, most int) *Funnel[T] {
	return &Funnel[T]{width: max(width, 1), most: most}
}

// Do has an item sent, by this caller or by another one: send is called with items in
// the order in which they came. It returns nil when the item was sent, the context's
// error or, with a patience above 0, [ErrPatience] when it was not and will not be.
func (f *Funnel[T]) Do(ctx context.Context, item T, weight int, patience time.Duration, send func(context.Context, []T)) error {
	l := &load[T]{item: item, weight: weight}
	together := f.enter(l)
	if together == nil {
		var err error
		if together, err = f.wait(ctx, l, patience); err != nil || together == nil {
			return err
		}
	}
	defer f.leave(together)
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

// enter gives a turn to a load, or puts it in line.
func (f *Funnel[T]) enter(l *load[T]) []*load[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.under < f.width {
		f.under++
		return []*load[T]{l}
	}
	l.turn = make(chan []*load[T], 1)
	f.waiting = append(f.waiting, l)
	return nil
}

// wait returns what the load's caller has to send, or nothing when another has sent it.
func (f *Funnel[T]) wait(ctx context.Context, l *load[T], patience time.Duration) ([]*load[T], error) {
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
		if f.withdraw(l) {
			return nil, ctx.Err()
		}
	case <-late:
		if f.withdraw(l) {
			return nil, ErrPatience
		}
	}
	return <-l.turn, nil
}

// withdraw takes a load out of the line; false when it is under way.
func (f *Funnel[T]) withdraw(l *load[T]) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, w := range f.waiting {
		if w == l {
			f.waiting = append(f.waiting[:i], f.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// leave ends a sending and hands its place to those that wait.
func (f *Funnel[T]) leave(sent []*load[T]) {
	for _, l := range sent[1:] {
		close(l.turn)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) == 0 {
		f.under--
		return
	}
	n, weight := 0, 0
	for _, l := range f.waiting {
		if weight += l.weight; n > 0 && weight > f.most {
			break
		}
		n++
	}
	together := append([]*load[T](nil), f.waiting[:n]...)
	f.waiting = append(f.waiting[:0], f.waiting[n:]...)
	together[0].turn <- together
}
