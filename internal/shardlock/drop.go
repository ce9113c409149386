package shardlock

import (
	"context"
	"slices"
	"time"
)

// dropRequest asks the loop to give shards up. Its fields are guarded by the
// manager's mutex.
type dropRequest struct {
	shards   []int // nil: all
	reason   string
	open     map[int]bool // not settled yet; nil until the loop has seen the request
	released []int
	done     chan struct{} // closed when open is empty
}

// Release gives up the locks of these shards, and returns those whose key is
// gone when all are settled or ctx has ended. What is left unsettled then is
// pursued in the background. If the ring still names this node and it has
// peers, it competes for the shards again after TTL.
func (m *Manager) Release(ctx context.Context, shards ...int) []int {
	if len(shards) == 0 {
		return nil
	}
	return m.give(ctx, &dropRequest{shards: shards, reason: LossReleased})
}

// Drain gives up all locks for good: nothing is acquired any more. It returns
// the shards whose key is gone, so that peers can be told, when all are settled
// or ctx has ended. It may be repeated. Once Run has ended there is nothing
// left that it could release, so it has to come before.
func (m *Manager) Drain(ctx context.Context) []int {
	m.mu.Lock()
	m.mu.draining = true
	m.mu.Unlock()
	return m.give(ctx, &dropRequest{reason: LossDrained})
}

func (m *Manager) give(ctx context.Context, r *dropRequest) []int {
	select {
	case <-m.stopped:
		return nil
	default:
		if !m.started.Load() {
			return nil
		}
	}
	r.done = make(chan struct{})
	m.mu.Lock()
	m.mu.requests = append(m.mu.requests, r)
	m.mu.Unlock()
	m.signal()
	select {
	case <-r.done:
	case <-ctx.Done():
	case <-m.stopped:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	released := slices.Clone(r.released)
	slices.Sort(released)
	return released
}

// admit opens the requests that the loop has not seen yet and returns the
// shards to give up, with the reason. The manager's mutex is held.
func (l *loop) admit() map[int]string {
	drops := map[int]string{}
	for _, r := range l.m.mu.requests {
		if r.open != nil {
			continue
		}
		r.open = map[int]bool{}
		for _, s := range l.slots {
			if !s.quiet() && (r.shards == nil || slices.Contains(r.shards, s.shard)) {
				r.open[s.shard] = true
				drops[s.shard] = r.reason
			}
		}
	}
	l.closeRequests()
	return drops
}

// giveUp withdraws the grip at once and makes release the shard's next call.
func (l *loop) giveUp(s *slot, reason string, now time.Time) {
	l.lose(s, reason)
	s.drop, s.next = reason, now
}

// endDrop settles a shard that was being given up.
func (l *loop) endDrop(s *slot, released bool) {
	if s.drop == "" {
		return
	}
	s.drop = ""
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	for _, r := range l.m.mu.requests {
		if !r.open[s.shard] {
			continue
		}
		delete(r.open, s.shard)
		if released {
			r.released = append(r.released, s.shard)
		}
	}
	l.closeRequests()
}

// closeRequests answers the requests that have no shard open. The manager's
// mutex is held.
func (l *loop) closeRequests() {
	l.m.mu.requests = slices.DeleteFunc(l.m.mu.requests, func(r *dropRequest) bool {
		if r.open == nil || len(r.open) > 0 {
			return false
		}
		close(r.done)
		return true
	})
}
