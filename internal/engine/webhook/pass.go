package webhook

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// runPass takes over new shards, releases lost ones, and starts deliveries where events wait: of each webhook up
// to its concurrency, the lanes whose last turn is longest ago first.
func (c *Deliverer) runPass(ctx context.Context, last []job.Place) {
	held := c.options.Held()
	c.releaseShards(held)
	c.takeOverShards(ctx, held, last)
	now := time.Now()
	oldest, ready := map[string]time.Time{}, map[string][]*hookLane{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.shards {
		for name := range c.senders {
			l := s.lanes[name]
			// A lane whose lock has moved has ended. Held does not reflect that yet.
			if l == nil || l.ctx.Err() != nil || !l.busy && !l.unsaved && !l.state.After.Before(last[id]) {
				continue
			}
			if first := oldest[name]; !l.waitingSince.IsZero() && (first.IsZero() || l.waitingSince.Before(first)) {
				oldest[name] = l.waitingSince
			}
			if !l.busy && !now.Before(l.notBefore) {
				ready[name] = append(ready[name], l)
			}
		}
	}
	for name, s := range c.senders {
		list := ready[name]
		slices.SortFunc(list, func(a, b *hookLane) int { return cmp.Compare(a.lastTurn, b.lastTurn) })
		for _, l := range list[:max(0, min(len(list), s.hook.concurrency-c.deliveriesByHook[name]))] {
			c.startTurn(l)
		}
		lag := 0.0
		if first := oldest[name]; !first.IsZero() {
			lag = max(0, now.Sub(first).Seconds())
		}
		c.metrics.lag.WithLabelValues(name).Set(lag)
	}
}

// startTurn gives a lane its turn.
func (c *Deliverer) startTurn(l *hookLane) {
	c.turnCount++
	l.busy, l.lastTurn = true, c.turnCount
	c.deliveriesByHook[l.hook]++
	c.wg.Go(func() { c.deliverLane(l, c.findSender(l.hook)) })
}

func (c *Deliverer) findSender(name string) *sender {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.senders[name]
}

// releaseShards drops shards that this node no longer holds, or holds under a new lock.
func (c *Deliverer) releaseShards(held map[int]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.shards {
		if held[id] == s.lock {
			continue
		}
		for _, l := range s.lanes {
			l.cancel()
		}
		delete(c.shards, id)
	}
}

// takeOverShards reads the positions of the webhooks in shards that are new to this node. A webhook without a
// position in a shard begins with the next event.
func (c *Deliverer) takeOverShards(ctx context.Context, held map[int]string, last []job.Place) {
	var shards []int
	c.mu.Lock()
	names := make([]string, 0, len(c.senders))
	for name := range c.senders {
		names = append(names, name)
	}
	for id := range held {
		if !last[id].Exact() {
			continue // its server was unreachable since this node started to listen
		}
		if s := c.shards[id]; s == nil || len(s.lanes) < len(names) {
			shards = append(shards, id)
		}
	}
	c.mu.Unlock()
	if len(shards) == 0 {
		return
	}
	// Shards of unreachable servers are not among the answers: the next pass tries again, and the store logs
	// errors of Redis.
	states, _ := c.options.Store.WebhookProgress(ctx, shards)
	for id, known := range states {
		for _, name := range names {
			c.createLane(ctx, id, held[id], name, known, last[id])
		}
		c.deleteOldStates(ctx, id, names, known)
	}
}

// createLane makes a lane.
func (c *Deliverer) createLane(ctx context.Context, id int, lock, name string, states map[string]job.WebhookProgress,
	last job.Place) {
	c.mu.Lock()
	s := c.shards[id]
	if s == nil {
		s = &heldShard{lock: lock, lanes: map[string]*hookLane{}}
		c.shards[id] = s
	}
	there := s.lanes[name] != nil
	c.mu.Unlock()
	if there {
		return
	}
	now, err := c.options.Store.Now(ctx, id)
	if err != nil {
		return
	}
	state, known := states[name]
	if !known {
		// Stored at once, so that events before its first delivery are not lost if this node dies.
		state = job.WebhookProgress{After: last, UpdatedMS: now}
		if _, err := c.options.Store.SaveWebhookProgress(ctx, id, lock, name, state, nil); err != nil {
			return
		}
	}
	l := &hookLane{hook: name, lock: lock, shard: id, state: state}
	if state.Attempts > 0 {
		l.waitingSince = localTime(state.FirstMS, now) // the next event is at least this old
	}
	if state.RetryMS > now {
		l.notBefore = localTime(state.RetryMS, now)
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.senders[name] == nil || c.shards[id] != s {
		l.cancel()
		return
	}
	s.lanes[name] = l
}

// deleteOldStates deletes states of webhooks that were removed long ago.
func (c *Deliverer) deleteOldStates(ctx context.Context, id int,
	names []string, states map[string]job.WebhookProgress) {
	now, err := c.options.Store.Now(ctx, id)
	if err != nil {
		return
	}
	known := map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	var gone []string
	for name, state := range states {
		if !known[name] && now.Sub(state.UpdatedMS) > stateRetention {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		if err := c.options.Store.DeleteWebhooks(ctx, id, gone); err != nil {
			c.options.Logger.Warn("failed to delete states of removed webhooks", "shard", id, "error", err)
		}
	}
}
