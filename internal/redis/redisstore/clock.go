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
	// recentFor is how long lanes are read without the clock. It is less than freshFor by more than
	// the three seconds for which such a read may wait for an unreachable server, so that callers
	// that read lanes need no other call for the clock.
	recentFor = 6 * time.Second
	// jumpAccepted is how long a clock far ahead is rejected before it is accepted.
	jumpAccepted = 30 * time.Second
)

// shardClock is what is known of a shard's clock.
type shardClock struct {
	mu           sync.Mutex
	us           int64     // the last answer
	at           time.Time // when it arrived, by the monotonic clock
	lagging      bool      // the clock did not equal TIME then
	bound        clockBound
	lastReturned int64     // greatest ms that ms has handed out
	firstJump    time.Time // first of the refusals in a row; zero when there is none
	token        uint64    // greatest one met
}

// driftDivisor bounds clock drift: the clock of this host may be slower than that of Redis by one in so
// many, twice as much as clocks are slewed by.
const driftDivisor = 1000

// clockBound is a reply that bounds the clock from above: the clock was read after the request was sent,
// and advances from there by no more than lease.MaxAdvance.
type clockBound struct {
	us, lagMS int64
	sent      time.Time
}

// latestAt is the latest time that the clock can show now, rounded up to the millisecond.
func (b clockBound) latestAt(now time.Time) lease.ClockBound {
	passed := max(0, now.Sub(b.sent).Microseconds())
	passed = (passed + passed/driftDivisor + 999) / 1000
	ahead := min(passed, b.lagMS)
	return lease.ClockBound{MS: (b.us+999)/1000 + passed + ahead, LagMS: b.lagMS - ahead}
}

// acceptJump, in place of the least expected time, accepts a TIME far ahead of what was expected.
const acceptJump = -1

// scriptArguments returns the greatest and the least time that the clock should show. A script uses them
// to distinguish a step of Redis's TIME from passing time, see [lease.Expectation].
func (c *shardClock) scriptArguments(now time.Time) (mostMS, leastMS int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mostMS = -1
	if !c.at.IsZero() {
		mostMS = (c.bound.us+now.Sub(c.bound.sent).Microseconds())/1000 + 1
		leastMS = min(c.leastExpectedMS(now), mostMS)
	}
	if !c.firstJump.IsZero() && now.Sub(c.firstJump) >= jumpAccepted {
		leastMS = acceptJump
	}
	return mostMS, leastMS
}

// unnoticedStepMS is the longest step back of TIME that the lower bound does not detect.
const unnoticedStepMS = 20

// leastExpectedMS is the least time that the clock should show, ms. It counts from the arrival of the last
// reply. A clock that lags may run at half the rate of passing time.
func (c *shardClock) leastExpectedMS(now time.Time) int64 {
	passed := max(0, now.Sub(c.at).Microseconds())
	passed -= passed / driftDivisor
	if c.lagging {
		passed /= 2
	}
	return max(0, (c.us+passed)/1000-unnoticedStepMS)
}

// expectedMS is the time that the clock should show, ms; 0 if unknown.
func (c *shardClock) expectedMS(now time.Time) (ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return 0
	}
	return (c.us + now.Sub(c.at).Microseconds()) / 1000
}

// observe records the clock in the reply to a request. Of two replies, that to the faster request bounds
// the clock more closely, unless the clock has passed the bound.
func (c *shardClock) observe(us, lagMS int64, sent, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := clockBound{us, lagMS, sent}
	known := c.bound.latestAt(now)
	if c.at.IsZero() || now.Sub(c.bound.sent) > freshFor || us > known.MS*1000 || lagMS > 0 || c.bound.lagMS > 0 || next.latestAt(now).MS <= known.MS {
		c.bound = next
	}
	c.us, c.at, c.lagging, c.firstJump = us, now, lagMS > 0, time.Time{}
}

// upperBound is the latest that the clock can show now.
func (c *shardClock) upperBound(now time.Time) lease.ClockBound {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return lease.ClockBound{}
	}
	l := c.bound.latestAt(now)
	l.MS = max(l.MS, c.lastReturned)
	return l
}

// isRecent reports whether a reply with the clock arrived lately.
func (c *shardClock) isRecent(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.at.IsZero() && now.Sub(c.at) < recentFor
}

// countRefusal records that a script rejected the clock because of a jump. It reports whether the next
// call will accept it.
func (c *shardClock) countRefusal(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.firstJump.IsZero() {
		c.firstJump = now
	}
	return now.Sub(c.firstJump) >= jumpAccepted
}

// extrapolate advances the last reply. It never goes back; ok is false if no reply is fresh enough.
func (c *shardClock) extrapolate(now time.Time) (ms int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	age := now.Sub(c.at)
	if c.at.IsZero() || age > freshFor {
		return 0, false
	}
	c.lastReturned = max(c.lastReturned, (c.us+age.Microseconds())/1000)
	return c.lastReturned, true
}

// advanceVirtual moves a virtual clock. No time passes by itself. A clock that was stepped back stands
// until it has caught up.
func (c *shardClock) advanceVirtual(ms int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastReturned = max(c.lastReturned, c.us/1000, ms)
	return c.lastReturned
}

// Now returns the shard's clock in Unix milliseconds. It extrapolates the last
// answer of any script by the monotonic clock, and asks Redis when that is older
// than 10 s. It never goes back. The shard's clock may be a little ahead of it,
// never more than a moment behind.
func (s *Store) Now(ctx context.Context, shard int) (int64, error) {
	if s.virtual != nil {
		return s.clocks[shard].advanceVirtual(s.virtual()), nil
	}
	if ms, ok := s.clocks[shard].extrapolate(s.now()); ok {
		return ms, nil
	}
	keys := s.shards[shard]
	if err := s.runAndWrap(ctx, newScriptCall(s.scripts.clock, shard, []string{keys.meta, keys.lanes}, []any{0})); err != nil {
		return 0, err
	}
	ms, _ := s.clocks[shard].extrapolate(s.now())
	return ms, nil
}

// Latest bounds from above what the shard's clock can show now, by the answers of scripts.
// Now has asked for at least one.
func (s *Store) Latest(shard int) lease.ClockBound {
	if s.virtual != nil {
		return lease.ClockBound{MS: s.clocks[shard].advanceVirtual(s.virtual())}
	}
	return s.clocks[shard].upperBound(s.now())
}

// Confirm returns nil when everything that the shard holds now is confirmed to the durability class. It
// advances the shard's clock: replicas that have that write have all earlier ones.
func (s *Store) Confirm(ctx context.Context, shard int) error {
	if s.durability < conn.DurabilityReplica {
		return nil
	}
	keys := s.shards[shard]
	return s.runAndWrap(ctx, newScriptCall(s.scripts.confirm, shard, []string{keys.meta, keys.lanes}, []any{0}))
}

// observeToken records a token that this process has seen.
func (c *shardClock) observeToken(token uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = max(c.token, token)
}

// greatestToken is the greatest token that this process has seen.
func (c *shardClock) greatestToken() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

// tokenFloor is the floor for new tokens of a shard. A virtual clock may leap back, so that its
// expected time is no bound.
func (s *Store) tokenFloor(shard int) uint64 {
	if s.virtual != nil {
		return s.clocks[shard].greatestToken()
	}
	return s.clocks[shard].tokenFloor(s.now())
}

// tokenFloor is what new tokens must exceed, even if a failover has lost the shard's last token and
// brought a slower clock: the greatest token that this process has seen, and the expected time, because
// other processes make tokens as well.
func (c *shardClock) tokenFloor(now time.Time) uint64 {
	return max(c.greatestToken(), uint64(max(0, c.expectedMS(now)-1))*1000)
}
