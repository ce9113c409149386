package conn

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// replacementHook replaces connections that were lost to timeouts. A call that gets no reply in time
// closes its connection. The next call has to dial first, and has less time for its reply. So
// connections are replaced beside the calls.
type replacementHook struct {
	client  *redis.Client
	timeout time.Duration // of dialling and a first call
	limit   int32         // at once
	open    *atomic.Int32
}

func newReplacementHook(c *redis.Client) replacementHook {
	o := c.Options()
	return replacementHook{
		client: c, timeout: o.DialTimeout + o.ReadTimeout, limit: int32(max(1, o.PoolSize/2)), open: new(atomic.Int32),
	}
}

// replacementCall marks the context of calls that open a connection: these are not replaced.
type replacementCall struct{}

func (h replacementHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h replacementHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if lostConnection(ctx, err) {
			h.openConnections(h.client.PoolStats().IdleConns, func(ctx context.Context) { h.client.Ping(ctx) })
		}
		return err
	}
}

func (h replacementHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if lostConnection(ctx, err) {
			h.openConnections(h.idleForPipelines(), func(ctx context.Context) {
				p := h.client.Pipeline()
				p.Ping(ctx)
				_, _ = p.Exec(ctx)
			})
		}
		return err
	}
}

// idleForPipelines is the number of idle connections for pipelines, which have their own pool.
func (h replacementHook) idleForPipelines() uint32 {
	s := h.client.PoolStats()
	if s.PipelineStats != nil {
		return s.PipelineStats.IdleConns
	}
	return s.IdleConns
}

// lostConnection reports whether a call got no reply in time.
func lostConnection(ctx context.Context, err error) bool {
	if err == nil || ctx.Value(replacementCall{}) != nil {
		return false
	}
	var failure net.Error
	return errors.As(err, &failure) && failure.Timeout()
}

// openConnections adds a connection to the pool. The library dials only for a call that finds no idle
// connection, so it makes one call more than there are idle connections, all at once. Otherwise the
// pool would keep the size that it had when the server became slow: the few calls that find a
// connection return it before the others have failed. Errors of these calls are ignored: the next call
// of the client gets its own.
func (h replacementHook) openConnections(idle uint32, call func(context.Context)) {
	if idle >= uint32(h.limit) { // there are enough connections
		return
	}
	for range idle + 1 {
		if h.open.Add(1) > h.limit {
			h.open.Add(-1)
			return
		}
		go func() {
			defer h.open.Add(-1)
			marked := context.WithValue(context.Background(), replacementCall{}, true)
			ctx, cancel := context.WithTimeout(marked, h.timeout)
			defer cancel()
			call(ctx)
		}()
	}
}
