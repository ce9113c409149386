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
var breakSource string

var breakScript = redis.NewScript(breakSource)

type kind int

const (
	none    kind = iota
	obtain       // take a free lock, or re-enter the one that has our token
	seize        // break a dead holder's lock, then obtain it by re-entry
	refresh      // renew a lock that we have
	release      // delete a lock that we have
	discard      // take back an obtain whose outcome is unknown
)

// call is one piece of work on one shard's key.
type call struct {
	kind   kind
	shard  int
	token  string          // obtain, seize, discard
	expect string          // seize: the value to replace
	proven bool            // seize: only if the holder is still silent
	below  time.Duration   // seize: only with a PTTL under this
	lock   *redislock.Lock // refresh, release
}

// outcome is what became of a call. With err nil and got nil after obtain or
// seize, somebody else holds the shard: seen and pttl say who and for how long
// (seen is empty if the lock had gone by the time of the look).
type outcome struct {
	call
	got     *redislock.Lock
	start   time.Time // just before the call that set the TTL
	elapsed time.Duration
	seen    string
	pttl    time.Duration
	life    life // of who holds it
	err     error
}

// redisCalls carries calls out. It has no state of its own.
type redisCalls struct {
	o       Options
	scripts redis.Scripter
	locks   *redislock.Client
	process string // the name of this process
}

// metadata is what a lock's value has after its token.
func (c *redisCalls) metadata() string {
	return c.o.Node + Separator + c.o.PeerAddr + Separator + c.process
}

func (c *redisCalls) do(ctx context.Context, job call) outcome {
	out := outcome{call: job, start: time.Now()}
	switch job.kind {
	case obtain:
		c.obtain(ctx, &out)
	case seize:
		c.seize(ctx, &out)
	case refresh:
		out.err = c.bounded(ctx, func(ctx context.Context) error {
			return job.lock.Refresh(ctx, c.o.TTL, nil)
		})
	case release:
		out.err = c.release(ctx, job.lock)
	case discard:
		c.discard(ctx, &out)
	}
	out.elapsed = time.Since(out.start)
	return out
}

func (c *redisCalls) bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.o.callTimeout())
	defer cancel()
	return f(ctx)
}

func (c *redisCalls) obtain(ctx context.Context, out *outcome) {
	out.start = time.Now()
	err := c.bounded(ctx, func(ctx context.Context) (err error) {
		out.got, err = c.locks.Obtain(ctx, c.o.Key(out.shard), c.o.TTL,
			&redislock.Options{Token: out.token, Metadata: c.metadata()})
		return err
	})
	if errors.Is(err, redislock.ErrNotObtained) {
		c.look(ctx, out)
		return
	}
	out.err = err
}

// seize replaces the value and then obtains with the same token: redislock
// re-enters, and what it returns is a handle like any other.
func (c *redisCalls) seize(ctx context.Context, out *outcome) {
	if out.proven && !c.heard(ctx, parse(out.expect).process).silent() {
		c.look(ctx, out)
		return
	}
	var done bool
	err := c.bounded(ctx, func(ctx context.Context) (err error) {
		done, err = breakScript.Run(ctx, c.scripts, []string{c.o.Key(out.shard)},
			out.expect, out.token+c.metadata(), c.o.TTL.Milliseconds(), out.below.Milliseconds()).Bool()
		return err
	})
	switch {
	case err != nil:
		out.err = err
	case done:
		c.obtain(ctx, out)
	default:
		c.look(ctx, out)
	}
}

// look reads who holds the lock that we did not get, and what was last heard of
// its process. Not knowing is no error: the answer "not obtained" stands.
func (c *redisCalls) look(ctx context.Context, out *outcome) {
	key := c.o.Key(out.shard)
	_ = c.bounded(ctx, func(ctx context.Context) error {
		var value *redis.StringCmd
		var ttl *redis.DurationCmd
		_, err := c.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
			value, ttl = p.Get(ctx, key), p.PTTL(ctx, key)
			return nil
		})
		if errors.Is(err, redis.Nil) {
			return nil
		}
		out.seen, out.pttl = unknownHolder, c.o.TTL
		if err == nil {
			out.seen, out.pttl = value.Val(), ttl.Val()
		}
		return err
	})
	out.life = c.heard(ctx, parse(out.seen).process)
}

// unknownHolder stands for a holder that could not be read. No lock has it as
// value, so it is never broken.
const unknownHolder = "?"

// release counts a lock that is not ours any more as released: either an
// earlier try got through and its answer was lost, or it expired.
func (c *redisCalls) release(ctx context.Context, lock *redislock.Lock) error {
	err := c.bounded(ctx, lock.Release)
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return nil
	}
	return err
}

// discard makes sure that nothing with the token stays behind. It obtains first
// because only redislock can make the handle that releases.
func (c *redisCalls) discard(ctx context.Context, out *outcome) {
	c.obtain(ctx, out)
	if out.err != nil || out.got == nil {
		return
	}
	if out.err = c.release(ctx, out.got); out.err == nil {
		out.got = nil
	}
}
