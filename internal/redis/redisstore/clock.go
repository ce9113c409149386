package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/redis/conn"
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
	apart  bool      // TIME was not what the clock showed then
	bound  bound
	handed int64     // greatest ms that ms has handed out
	jumped time.Time // first of the refusals in a row; zero when there is none
	token  uint64    // greatest one met
}

// drift is one over how much slower the clock of this host may count than that of Redis: twice as
// much as clocks are slewed by.
const drift = 1000

// bound is an answer that bounds the clock from above: it was read after the request
// was sent, and goes no further from there than lease.Span.
type bound struct {
	us, lagMS int64
	sent      time.Time
}

// latest is the latest that the clock can show now, rounded up to the millisecond.
func (b bound) latest(now time.Time) lease.Latest {
	passed := max(0, now.Sub(b.sent).Microseconds())
	passed = (passed + passed/drift + 999) / 1000
	ahead := min(passed, b.lagMS)
	return lease.Latest{MS: (b.us+999)/1000 + passed + ahead, LagMS: b.lagMS - ahead}
}

// acceptJump in place of the least that a clock should show takes a TIME far ahead of what was
// expected for right.
const acceptJump = -1

// arguments returns those of a script that let it distinguish a step of Redis's TIME from time that
// passed, see [lease.Expectation]: the most and the least that the clock should show.
func (c *shardClock) arguments(now time.Time) (mostMS, leastMS int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mostMS = -1
	if !c.at.IsZero() {
		mostMS = (c.bound.us+now.Sub(c.bound.sent).Microseconds())/1000 + 1
		leastMS = min(c.least(now), mostMS)
	}
	if !c.jumped.IsZero() && now.Sub(c.jumped) >= jumpAccepted {
		leastMS = acceptJump
	}
	return mostMS, leastMS
}

// stepMS is the longest step back of TIME that a lower bound of the clock leaves unnoticed.
const stepMS = 20

// least is the least that the clock should show, in ms. It counts from the arrival of the last answer, which
// was read before. A clock that is apart from TIME may go at half of the rate of passing time.
func (c *shardClock) least(now time.Time) int64 {
	passed := max(0, now.Sub(c.at).Microseconds())
	passed -= passed / drift
	if c.apart {
		passed /= 2
	}
	return max(0, (c.us+passed)/1000-stepMS)
}

// expect is what the clock should show, ms, 0 if unknown.
func (c *shardClock) expect(now time.Time) (ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return 0
	}
	return (c.us + now.Sub(c.at).Microseconds()) / 1000
}

// saw takes the clock of an answer to a request that was sent then. Of two answers that of the
// quicker request bounds the clock more closely, unless the clock has gone past what
// it allows.
func (c *shardClock) saw(us, lagMS int64, sent, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := bound{us, lagMS, sent}
	known := c.bound.latest(now)
	if c.at.IsZero() || now.Sub(c.bound.sent) > freshFor || us > known.MS*1000 || lagMS > 0 || c.bound.lagMS > 0 || next.latest(now).MS <= known.MS {
		c.bound = next
	}
	c.us, c.at, c.apart, c.jumped = us, now, lagMS > 0, time.Time{}
}

// latest is the latest that the clock can show now.
func (c *shardClock) latest(now time.Time) lease.Latest {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return lease.Latest{}
	}
	l := c.bound.latest(now)
	l.MS = max(l.MS, c.handed)
	return l
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

// Latest bounds from above what the shard's clock can show now, by the answers of scripts.
// Now has asked for at least one.
func (s *Store) Latest(shard int) lease.Latest {
	if s.virtual != nil {
		return lease.Latest{MS: s.clocks[shard].virtual(s.virtual())}
	}
	return s.clocks[shard].latest(s.now())
}

// Confirm answers nil when everything that the shard holds by now is confirmed to
// the durability class in force. It moves the shard's clock: replicas that have
// that write have all before it.
func (s *Store) Confirm(ctx context.Context, shard int) error {
	if s.durability < conn.DurabilityReplica {
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
	return max(c.met(), uint64(max(0, c.expect(now)-1))*1000)
}
