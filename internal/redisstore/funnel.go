package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// funnelWidth is how many pipelines are under way to a server at once: one that
	// it works on, and others that are being written or read meanwhile.
	funnelWidth = 4
	// funnelArgs bounds the arguments of calls that are gathered into a pipeline, so
	// that a small call does not wait for the answers to very many others.
	funnelArgs = 4096
)

// funnel gathers calls to one server. A call goes out at once while fewer than
// funnelWidth pipelines are under way; those that find them all busy wait, and go out
// together as soon as one is free. So a quiet store has no delay, and a busy one needs a
// round trip, a system call and a connection for many calls rather than for each.
//
// It has no goroutine: whoever sent a pipeline hands its turn to the first that waits,
// who sends for all that wait with it.
type funnel struct {
	mu      sync.Mutex
	under   int // pipelines under way
	waiting []*load
}

// load is what one caller sends.
type load struct {
	ops []*op
	// turn brings the loads that this one's caller has to send, its own first; it is
	// closed when another has sent them.
	turn chan []*load
}

// send has the ops carried out by pipeline, once, alone or together with others'. A
// caller whose ctx ends, or whose patience does if that is not 0, goes away unless its
// ops are under way already.
func (f *funnel) send(ctx context.Context, ops []*op, patience time.Duration, pipeline func(context.Context, []*op)) {
	l := &load{ops: ops}
	together := f.enter(l)
	if together == nil {
		var err error
		if together, err = f.wait(ctx, l, patience); err != nil {
			for _, o := range ops {
				o.err = err
			}
			return
		}
	}
	if together == nil { // another has sent them
		return
	}
	defer f.leave(together)
	if len(together) == 1 {
		pipeline(ctx, ops)
		return
	}
	var all []*op
	for _, t := range together {
		all = append(all, t.ops...)
	}
	// The others' calls do not end with this caller's patience.
	pipeline(context.WithoutCancel(ctx), all)
}

// enter gives a turn to a load, or puts it in line.
func (f *funnel) enter(l *load) []*load {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.under < funnelWidth {
		f.under++
		return []*load{l}
	}
	l.turn = make(chan []*load, 1)
	f.waiting = append(f.waiting, l)
	return nil
}

func (f *funnel) wait(ctx context.Context, l *load, patience time.Duration) ([]*load, error) {
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
			return nil, redis.ErrPoolTimeout
		}
	}
	return <-l.turn, nil
}

// withdraw takes a load out of the line; false when it is under way.
func (f *funnel) withdraw(l *load) bool {
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

// leave ends a pipeline and hands its place to those that wait.
func (f *funnel) leave(sent []*load) {
	for _, l := range sent[1:] {
		close(l.turn)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) == 0 {
		f.under--
		return
	}
	n, args := 0, 0
	for _, l := range f.waiting {
		for _, o := range l.ops {
			args += len(o.argv) + len(o.plain)
		}
		if n > 0 && args > funnelArgs {
			break
		}
		n++
	}
	together := append([]*load(nil), f.waiting[:n]...)
	f.waiting = append(f.waiting[:0], f.waiting[n:]...)
	together[0].turn <- together
}
