package shardlock

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

//go:embed break.lua
var breakScriptText string

var breakScript = redis.NewScript(breakScriptText)

type callKind int

const (
	noCall      callKind = iota
	obtainCall           // take a free lock, or re-enter the one that has our token
	seizeCall            // break a dead holder's lock, then obtain it by re-entry
	refreshCall          // renew a lock that we have
	releaseCall          // delete a lock that we have
	discardCall          // take back an obtain whose outcome is unknown
)

// call is one operation on one shard's key.
type call struct {
	kind         callKind
	shard        int
	token        string          // obtain, seize, discard
	replaceValue string          // seize: the value to replace
	holderEnded  bool            // seize: only if the holder is still silent
	maxPTTL      time.Duration   // seize: only with a PTTL under this
	lock         *redislock.Lock // refresh, release
}

// callOutcome is the outcome of a call. If err and obtained are nil after an obtain or a seize, another process
// holds the shard: holderValue and pttl have its value and remaining time (holderValue is empty if the lock was
// gone by then).
type callOutcome struct {
	call
	obtained    *redislock.Lock
	start       time.Time // just before the call that set the TTL
	elapsed     time.Duration
	holderValue string
	pttl        time.Duration
	heartbeat   heartbeat // of the holder's process
	err         error
}

// redisCalls makes the calls to Redis. It has no state of its own.
type redisCalls struct {
	o       Options
	scripts redis.Scripter
	locks   *redislock.Client
	process string // the name of this process
}

// lockMetadata is the part of a lock's value after its token.
func (c *redisCalls) lockMetadata() string {
	return c.o.Node + Separator + c.o.PeerAddr + Separator + c.process
}

func (c *redisCalls) doCall(ctx context.Context, job call) callOutcome {
	out := callOutcome{call: job, start: time.Now()}
	switch job.kind {
	case obtainCall:
		c.obtainLock(ctx, &out)
	case seizeCall:
		c.seizeLock(ctx, &out)
	case refreshCall:
		out.err = c.withTimeout(ctx, func(ctx context.Context) error {
			return job.lock.Refresh(ctx, c.o.TTL, nil)
		})
	case releaseCall:
		out.err = c.releaseLock(ctx, job.lock)
	case discardCall:
		c.discardToken(ctx, &out)
	}
	out.elapsed = time.Since(out.start)
	return out
}

func (c *redisCalls) withTimeout(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.o.callTimeout())
	defer cancel()
	return f(ctx)
}

func (c *redisCalls) obtainLock(ctx context.Context, out *callOutcome) {
	out.start = time.Now()
	err := c.withTimeout(ctx, func(ctx context.Context) (err error) {
		out.obtained, err = c.locks.Obtain(ctx, c.o.Key(out.shard), c.o.TTL,
			&redislock.Options{Token: out.token, Metadata: c.lockMetadata()})
		return err
	})
	if errors.Is(err, redislock.ErrNotObtained) {
		c.readHolder(ctx, out)
		return
	}
	out.err = err
}

// seizeLock replaces the value and then obtains with the same token: redislock re-enters, and returns an
// ordinary handle.
func (c *redisCalls) seizeLock(ctx context.Context, out *callOutcome) {
	if out.holderEnded && !c.readHeartbeat(ctx, parseHolder(out.replaceValue).process).isSilent() {
		c.readHolder(ctx, out)
		return
	}
	var done bool
	err := c.withTimeout(ctx, func(ctx context.Context) (err error) {
		done, err = breakScript.Run(ctx, c.scripts, []string{c.o.Key(out.shard)},
			out.replaceValue, out.token+c.lockMetadata(), c.o.TTL.Milliseconds(), out.maxPTTL.Milliseconds()).Bool()
		return err
	})
	switch {
	case err != nil:
		out.err = err
	case done:
		c.obtainLock(ctx, out)
	default:
		c.readHolder(ctx, out)
	}
}

// readHolder reads the holder of a lock that was not obtained, and the last heartbeat of its process. A failure
// to read is no error: the answer "not obtained" stands.
func (c *redisCalls) readHolder(ctx context.Context, out *callOutcome) {
	key := c.o.Key(out.shard)
	_ = c.withTimeout(ctx, func(ctx context.Context) error {
		var value *redis.StringCmd
		var ttl *redis.DurationCmd
		_, err := c.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
			value, ttl = p.Get(ctx, key), p.PTTL(ctx, key)
			return nil
		})
		if errors.Is(err, redis.Nil) {
			return nil
		}
		out.holderValue, out.pttl = unknownHolder, c.o.TTL
		if err == nil {
			out.holderValue, out.pttl = value.Val(), ttl.Val()
		}
		return err
	})
	out.heartbeat = c.readHeartbeat(ctx, parseHolder(out.holderValue).process)
}

// unknownHolder stands for a holder that could not be read. No lock has this value, so it is never broken.
const unknownHolder = "?"

// releaseLock counts a lock that this process no longer holds as released: either an earlier call succeeded and
// its answer was lost, or the lock expired.
func (c *redisCalls) releaseLock(ctx context.Context, lock *redislock.Lock) error {
	err := c.withTimeout(ctx, lock.Release)
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return nil
	}
	return err
}

// discardToken makes sure that no lock with the token remains. It obtains first because only redislock can make
// the handle that releases.
func (c *redisCalls) discardToken(ctx context.Context, out *callOutcome) {
	c.obtainLock(ctx, out)
	if out.err != nil || out.obtained == nil {
		return
	}
	out.err = c.releaseLock(ctx, out.obtained)
	if out.err == nil {
		out.obtained = nil
	}
}
