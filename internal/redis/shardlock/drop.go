package shardlock

import (
	"context"
	"slices"
	"time"
)

// dropRequest asks the loop to give up shards. Its fields are guarded by the manager's mutex.
type dropRequest struct {
	shards   []int // nil: all
	reason   string
	open     map[int]bool // not settled yet; nil until the loop has seen the request
	released []int
	done     chan struct{} // closed when open is empty
}

// Release gives up the locks of these shards, and returns those whose key is gone when all are settled or ctx
// has ended. Unsettled ones are completed in the background. If the ring still names this node and it has peers,
// it competes for the shards again after TTL.
func (m *Manager) Release(ctx context.Context, shards ...int) []int {
	if len(shards) == 0 {
		return nil
	}
	return m.requestDrop(ctx, &dropRequest{shards: shards, reason: LossReleased})
}

// Drain gives up all locks for good: no shard is acquired afterwards. It returns the shards whose key is gone,
// so that peers can be notified, when all are settled or ctx has ended. It may be repeated. It must be called
// before Run ends: afterwards it can release nothing.
func (m *Manager) Drain(ctx context.Context) []int {
	m.mu.Lock()
	m.mu.draining = true
	m.mu.Unlock()
	return m.requestDrop(ctx, &dropRequest{reason: LossDrained})
}

func (m *Manager) requestDrop(ctx context.Context, r *dropRequest) []int {
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
	m.wakeLoop()
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

// openRequests opens the requests that the loop has not seen yet and returns the shards to give up, with the
// reason. The manager's mutex is held.
func (l *managerLoop) openRequests() map[int]string {
	drops := map[int]string{}
	for _, r := range l.m.mu.requests {
		if r.open != nil {
			continue
		}
		r.open = map[int]bool{}
		for _, s := range l.shards {
			if !s.isQuiet() && (r.shards == nil || slices.Contains(r.shards, s.shard)) {
				r.open[s.shard] = true
				drops[s.shard] = r.reason
			}
		}
	}
	l.closeSettledRequests()
	return drops
}

// startDrop ends the reliance on the lock at once and makes release the shard's next call.
func (l *managerLoop) startDrop(s *shardState, reason string, now time.Time) {
	l.invalidateLock(s, reason)
	s.dropReason, s.nextAt = reason, now
}

// settleDrop settles a shard that was being given up.
func (l *managerLoop) settleDrop(s *shardState, released bool) {
	if s.dropReason == "" {
		return
	}
	s.dropReason = ""
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
	l.closeSettledRequests()
}

// closeSettledRequests answers the requests that have no open shard. The manager's mutex is held.
func (l *managerLoop) closeSettledRequests() {
	l.m.mu.requests = slices.DeleteFunc(l.m.mu.requests, func(r *dropRequest) bool {
		if r.open == nil || len(r.open) > 0 {
			return false
		}
		close(r.done)
		return true
	})
}
