package runner

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
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
	return lease.ClockBound{MS: unixtime.Milli((b.us+999)/1000 + passed + ahead), LagMS: b.lagMS - ahead}
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
	if c.at.IsZero() || now.Sub(c.bound.sent) > freshFor || unixtime.Micro(us) > known.MS.Micro() || lagMS > 0 ||
		c.bound.lagMS > 0 || next.latestAt(now).MS <= known.MS {
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
	l.MS = max(l.MS, unixtime.Milli(c.lastReturned))
	return l
}

// hasReply reports whether a reply with the clock has arrived.
func (c *shardClock) hasReply() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.at.IsZero()
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
func (r *Runner) Now(ctx context.Context, shard int) (unixtime.Milli, error) {
	if r.virtual != nil {
		return r.virtualNow(ctx, shard)
	}
	if ms, ok := r.clocks[shard].extrapolate(r.now()); ok {
		return unixtime.Milli(ms), nil
	}
	if err := r.Run(ctx, r.NewClockCall(shard)); err != nil {
		return 0, err
	}
	ms, _ := r.clocks[shard].extrapolate(r.now())
	return unixtime.Milli(ms), nil
}

// virtualNow is Now for a virtual clock. As with a real one, what this process has not seen itself is asked for: where
// the clock of a shard stands that it has no reply of, or that TIME has gone back from.
func (r *Runner) virtualNow(ctx context.Context, shard int) (unixtime.Milli, error) {
	if !r.virtualIsKnown(shard) {
		if err := r.Run(ctx, r.NewClockCall(shard)); err != nil {
			return 0, err
		}
	}
	return unixtime.Milli(r.clocks[shard].advanceVirtual(int64(r.virtual()))), nil
}

// virtualIsKnown reports whether the shard has answered, and virtual time has not gone back from the latest seen.
func (r *Runner) virtualIsKnown(shard int) bool {
	now := int64(r.virtual())
	for latest := r.latestVirtual.Load(); latest < now; latest = r.latestVirtual.Load() {
		r.latestVirtual.CompareAndSwap(latest, now)
	}
	return now >= r.latestVirtual.Load() && r.clocks[shard].hasReply()
}

// NowIsKnown reports whether [Runner.Now] answers without asking Redis.
func (r *Runner) NowIsKnown(shard int) bool {
	if r.virtual != nil {
		return r.virtualIsKnown(shard)
	}
	_, ok := r.clocks[shard].extrapolate(r.now())
	return ok
}

// Latest bounds from above what the shard's clock can show now, by the answers of scripts.
// Now has asked for at least one.
func (r *Runner) Latest(shard int) lease.ClockBound {
	if r.virtual != nil {
		return lease.ClockBound{MS: unixtime.Milli(r.clocks[shard].advanceVirtual(int64(r.virtual())))}
	}
	return r.clocks[shard].upperBound(r.now())
}

// Confirm returns nil when everything that the shard holds now is confirmed to the durability class. It
// advances the shard's clock: replicas that have that write have all earlier ones.
func (r *Runner) Confirm(ctx context.Context, shard int) error {
	if r.durability < conn.DurabilityReplica {
		return nil
	}
	keys := r.shards[shard]
	return r.Run(ctx, NewScriptCall(r.clockScripts.confirm, shard, []string{keys.Meta, keys.Lanes}, []any{0}))
}

// ClockScripts are the two forms of clock.lua. The first reads, and the second is confirmed to the durability
// class.
type ClockScripts struct{ read, confirm *Script }

// LoadClock composes the scripts of clocks.
func LoadClock(l *Loader) ClockScripts {
	source := Source{Files: files, Name: "clock", Flags: "allow-oom", Clock: WithClock}
	s := ClockScripts{read: l.Load(source), confirm: l.Load(source)}
	s.read.Mutates = false
	return s
}

// NewClockCall makes a call that reads the shard's clock.
func (r *Runner) NewClockCall(shard int) *Op { return r.newClockCall(shard, 0) }

// NewLanesCall makes a call that reads the shard's clock, and its first lanes by due time.
func (r *Runner) NewLanesCall(shard, lanes int) *Op { return r.newClockCall(shard, lanes) }

// NewDueLanesCall is NewLanesCall for lanes in which something is due now or within a duration.
func (r *Runner) NewDueLanesCall(shard, lanes int, within time.Duration) *Op {
	return r.newClockCall(shard, lanes, within.Milliseconds())
}

func (r *Runner) newClockCall(shard int, argv ...any) *Op {
	keys := r.shards[shard]
	return NewScriptCall(r.clockScripts.read, shard, []string{keys.Meta, keys.Lanes}, argv)
}

// RecentClock is the time that the shard's clock should show, ms, if a reply with the clock arrived lately.
// A virtual clock is never recent.
func (r *Runner) RecentClock(shard int) (ms int64, recent bool) {
	if r.virtual != nil || !r.clocks[shard].isRecent(r.now()) {
		return 0, false
	}
	return r.clocks[shard].expectedMS(r.now()), true
}

// ObserveToken records a token of the shard that this process has seen.
func (r *Runner) ObserveToken(shard int, token uint64) { r.clocks[shard].observeToken(token) }

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

// TokenFloor is the floor for new tokens of a shard. A virtual clock may leap back, so that its
// expected time is no bound.
func (r *Runner) TokenFloor(shard int) uint64 {
	if r.virtual != nil {
		return r.clocks[shard].greatestToken()
	}
	return r.clocks[shard].tokenFloor(r.now())
}

// tokenFloor is what new tokens must exceed, even if a failover has lost the shard's last token and
// brought a slower clock: the greatest token that this process has seen, and the expected time, because
// other processes make tokens as well.
func (c *shardClock) tokenFloor(now time.Time) uint64 {
	return max(c.greatestToken(), uint64(max(0, c.expectedMS(now)-1))*1000)
}

// clockArgs are the common arguments of all scripts of a shard.
func (r *Runner) clockArgs(shard int) []any {
	most, least := r.clocks[shard].scriptArguments(r.now())
	virtual := ""
	if r.virtual != nil {
		most, least = 0, min(least, 0) // the caller sets the time, and it may leap
		virtual = strconv.FormatInt(int64(max(0, r.virtual())), 10)
	}
	return []any{most, least, virtual}
}

// answerDeadline is the time by the shard's clock at which the client gives up on a call that is sent now: after its
// read timeout, or when ctx ends; 0 if that clock is unknown.
func (r *Runner) answerDeadline(ctx context.Context, shard int) int64 {
	clock := r.clocks[shard].expectedMS(r.now())
	if r.virtual != nil {
		clock = r.clocks[shard].advanceVirtual(int64(max(0, r.virtual())))
	}
	if clock == 0 {
		return 0
	}
	wait := r.answerTimeout
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, max(0, time.Until(end)))
	}
	return clock + wait.Milliseconds()
}

// Run runs ops, wraps their errors and returns the first one.
