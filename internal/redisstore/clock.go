package redisstore

import (
	"context"
	"sync"
	"time"
)

const (
	// freshFor is how long an answer's clock is extrapolated before it is asked
	// for again.
	freshFor = 10 * time.Second
	// heardFor is how long reads of lanes do without the clock; less than freshFor by more
	// than the three seconds that such a read may wait for a server that is away, so that
	// nobody who reads lanes has to ask for the clock besides.
	heardFor = 6 * time.Second
	// jumpAccepted is how long a clock far ahead must have been refused before
	// it is taken for right.
	jumpAccepted = 30 * time.Second
)

// shardClock is what is known of a shard's clock.
type shardClock struct {
	mu     sync.Mutex
	us     int64     // the last answer
	at     time.Time // when it arrived, by the monotonic clock
	handed int64     // greatest ms that ms has handed out
	jumped time.Time // first of the refusals in a row; zero when there is none
	token  uint64    // greatest one met
}

// expect returns the arguments of a script that let it notice a clock jump: what
// the clock should show, ms, 0 if unknown, and whether a jump is accepted.
func (c *shardClock) expect(now time.Time) (ms int64, accept string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return 0, "0"
	}
	accept = "0"
	if !c.jumped.IsZero() && now.Sub(c.jumped) >= jumpAccepted {
		accept = "1"
	}
	return (c.us + now.Sub(c.at).Microseconds()) / 1000, accept
}

// saw takes the clock of an answer.
func (c *shardClock) saw(us int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.us, c.at, c.jumped = us, now, time.Time{}
}

// heard tells whether the clock has been told lately.
func (c *shardClock) heard(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.at.IsZero() && now.Sub(c.at) < heardFor
}

// refused counts a refusal because of a jump. It reports whether the next try
// will be accepted.
func (c *shardClock) refused(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jumped.IsZero() {
		c.jumped = now
	}
	return now.Sub(c.jumped) >= jumpAccepted
}

// ms extrapolates the last answer. It never goes back; ok is false when there is
// no answer that is fresh enough.
func (c *shardClock) ms(now time.Time) (ms int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	age := now.Sub(c.at)
	if c.at.IsZero() || age > freshFor {
		return 0, false
	}
	c.handed = max(c.handed, (c.us+age.Microseconds())/1000)
	return c.handed, true
}

// virtual is what a virtual clock makes of the last answer: nothing passes by
// itself, and a clock that was stepped back stands until it has caught up.
func (c *shardClock) virtual(ms int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handed = max(c.handed, c.us/1000, ms)
	return c.handed
}

// Now returns the shard's clock in Unix milliseconds. It extrapolates the last
// answer of any script by the monotonic clock, and asks Redis when that is older
// than 10 s. It never goes back. The shard's clock may be a little ahead of it,
// never more than a moment behind.
func (s *Store) Now(ctx context.Context, shard int) (int64, error) {
	if s.virtual != nil {
		return s.clocks[shard].virtual(s.virtual()), nil
	}
	if ms, ok := s.clocks[shard].ms(s.now()); ok {
		return ms, nil
	}
	keys := s.shards[shard]
	if err := s.perform(ctx, call(s.scripts.clock, shard, []string{keys.meta, keys.lanes}, []any{0})); err != nil {
		return 0, err
	}
	ms, _ := s.clocks[shard].ms(s.now())
	return ms, nil
}

// Confirm answers nil when everything that the shard holds by now is confirmed to
// the durability class in force. It moves the shard's clock: replicas that have
// that write have all before it.
func (s *Store) Confirm(ctx context.Context, shard int) error {
	if s.durability < DurabilityReplica {
		return nil
	}
	keys := s.shards[shard]
	return s.perform(ctx, call(s.scripts.confirm, shard, []string{keys.meta, keys.lanes}, []any{0}))
}

// sawToken remembers the greatest token of the shard that this process has met.
func (c *shardClock) sawToken(token uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = max(c.token, token)
}

// met is the greatest token that this process has met.
func (c *shardClock) met() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

// floor is the token floor of a shard. A virtual clock may leap back, so that what
// was expected of it says nothing.
func (s *Store) floor(shard int) uint64 {
	if s.virtual != nil {
		return s.clocks[shard].met()
	}
	return s.clocks[shard].floor(s.now())
}

// floor is what new tokens must exceed, even if a failover has lost the shard's
// last one and brought a clock that is behind: the greatest token that this process
// has met, and the time that it expects, because other processes mint as well.
func (c *shardClock) floor(now time.Time) uint64 {
	expect, _ := c.expect(now)
	return max(c.met(), uint64(max(0, expect-1))*1000)
}
