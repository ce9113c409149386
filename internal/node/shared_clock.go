package node

import (
	"context"
	"sync"
	"time"
)

// sharedClock is Redis's clock as a node knows it, which is about the same for all nodes of a keyspace. Between
// measurements it advances by this host's monotonic clock. It never goes back, also if Redis's clock does. Until the first
// measurement it is the clock of this host.
type sharedClock struct {
	mu         sync.Mutex
	latest     time.Time // by Redis
	measuredAt time.Time // by this host; zero: never
}

func (c *sharedClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *sharedClock) nowLocked() time.Time {
	if c.measuredAt.IsZero() {
		return time.Now()
	}
	return c.latest.Add(time.Since(c.measuredAt))
}

// observe takes a measurement: what Redis's clock shows now.
func (c *sharedClock) observe(redis time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.measuredAt.IsZero() || redis.After(c.nowLocked()) {
		c.latest, c.measuredAt = redis, time.Now()
	}
}

// measureRedisClock measures by how much Redis's clock is ahead of this node's; ok is false if it was not measured.
func (n *Node) measureRedisClock(ctx context.Context) (offset time.Duration, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	sent := time.Now()
	there, err := n.lockConns.Time(ctx).Result()
	took := time.Since(sent)
	if err != nil || took >= maxClockRoundTrip {
		return 0, false
	}
	n.redisClock.observe(there.Add(took / 2))
	return there.Sub(sent.Add(took / 2)), true
}

// startRedisClock makes the first measurements. The clock of a shard in Redis does not go back, also for a node that
// starts after Redis's clock has.
func (n *Node) startRedisClock(ctx context.Context) {
	if n.cfg.Virtual {
		return
	}
	n.measureRedisClock(ctx)
	ms, err := n.store.Now(ctx, 0)
	if err == nil {
		n.redisClock.observe(ms.Time())
	}
}
