package webhook

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// pass takes over shards, lets go of others, and starts deliveries where there is
// something to deliver: of each webhook as many as it may have at once, those first whose
// last turn is longest ago.
func (c *Courier) pass(ctx context.Context, last []job.Place) {
	held := c.o.Held()
	c.letGo(held)
	c.takeOver(ctx, held, last)
	now := time.Now()
	oldest, ready := map[string]time.Time{}, map[string][]*lane{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.lanes {
		for name := range c.senders {
			l := s.lanes[name]
			// One that found its lock to have moved has ended; Held is yet to say so.
			if l == nil || l.ctx.Err() != nil || !l.busy && !l.unsaved && !l.state.After.Before(last[id]) {
				continue
			}
			if first := oldest[name]; !l.since.IsZero() && (first.IsZero() || l.since.Before(first)) {
				oldest[name] = l.since
			}
			if !l.busy && !now.Before(l.due) {
				ready[name] = append(ready[name], l)
			}
		}
	}
	for name, s := range c.senders {
		list := ready[name]
		slices.SortFunc(list, func(a, b *lane) int { return cmp.Compare(a.turn, b.turn) })
		for _, l := range list[:max(0, min(len(list), s.hook.concurrency-c.busy[name]))] {
			c.start(l)
		}
		lag := 0.0
		if first := oldest[name]; !first.IsZero() {
			lag = max(0, now.Sub(first).Seconds())
		}
		c.metrics.lag.WithLabelValues(name).Set(lag)
	}
}

// start gives a lane its turn.
func (c *Courier) start(l *lane) {
	c.turns++
	l.busy, l.turn = true, c.turns
	c.busy[l.hook]++
	c.wg.Go(func() { c.deliver(l, c.senderOf(l.hook)) })
}

func (c *Courier) senderOf(name string) *sender {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.senders[name]
}

// letGo forgets shards that this node holds no longer, or anew.
func (c *Courier) letGo(held map[int]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.lanes {
		if held[id] == s.lock {
			continue
		}
		for _, l := range s.lanes {
			l.cancel()
		}
		delete(c.lanes, id)
	}
}

// takeOver reads how far the webhooks are with shards that are new here. One that has
// never been in a shard begins with what comes.
func (c *Courier) takeOver(ctx context.Context, held map[int]string, last []job.Place) {
	var shards []int
	c.mu.Lock()
	names := make([]string, 0, len(c.senders))
	for name := range c.senders {
		names = append(names, name)
	}
	for id := range held {
		if !last[id].Exact() {
			continue // its server has been away for as long as somebody listens here
		}
		if s := c.lanes[id]; s == nil || len(s.lanes) < len(names) {
			shards = append(shards, id)
		}
	}
	c.mu.Unlock()
	if len(shards) == 0 {
		return
	}
	// Shards of servers that are away are not among the answers: the next pass tries again,
	// and the store tells what is wrong with Redis.
	states, _ := c.o.Store.HookStates(ctx, shards)
	for id, known := range states {
		for _, name := range names {
			c.begin(ctx, id, held[id], name, known, last[id])
		}
		c.tidy(ctx, id, names, known)
	}
}

// begin makes a lane.
func (c *Courier) begin(ctx context.Context, id int, lock, name string, states map[string]job.HookState, last job.Place) {
	c.mu.Lock()
	s := c.lanes[id]
	if s == nil {
		s = &shard{lock: lock, lanes: map[string]*lane{}}
		c.lanes[id] = s
	}
	there := s.lanes[name] != nil
	c.mu.Unlock()
	if there {
		return
	}
	now, err := c.o.Store.Now(ctx, id)
	if err != nil {
		return
	}
	state, known := states[name]
	if !known {
		// Stored at once: what happens before its first delivery is not to be left
		// out when this node dies.
		state = job.HookState{After: last, UpdatedMS: now}
		if _, err := c.o.Store.SaveHook(ctx, id, lock, name, state, nil); err != nil {
			return
		}
	}
	l := &lane{hook: name, lock: lock, shard: id, state: state}
	if state.Tries > 0 {
		l.since = instant(state.FirstMS, now) // what it stands before is as old as that, at least
	}
	if state.RetryMS > now {
		l.due = instant(state.RetryMS, now)
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.senders[name] == nil || c.lanes[id] != s {
		l.cancel()
		return
	}
	s.lanes[name] = l
}

// tidy deletes what is left of webhooks that have long gone.
func (c *Courier) tidy(ctx context.Context, id int, names []string, states map[string]job.HookState) {
	now, err := c.o.Store.Now(ctx, id)
	if err != nil {
		return
	}
	known := map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	var gone []string
	for name, state := range states {
		if !known[name] && now-state.UpdatedMS > keepStates.Milliseconds() {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		if err := c.o.Store.ForgetHooks(ctx, id, gone); err != nil {
			c.o.Logger.Warn("states of webhooks that are no more cannot be deleted", "shard", id, "error", err)
		}
	}
}
