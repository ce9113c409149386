package shardlock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// doAll makes calls that belong together, and delivers their outcomes as they arrive. Refreshes go to each
// server in one pipeline, because an idle node should be woken once for all its locks.
func (c *redisCalls) doAll(ctx context.Context, jobs []call, deliver func([]callOutcome)) {
	if len(jobs) == 1 {
		deliver([]callOutcome{c.doCall(ctx, jobs[0])})
		return
	}
	var servers sync.WaitGroup
	for _, group := range c.groupByServer(ctx, jobs) {
		servers.Go(func() { deliver(c.refreshTogether(ctx, group)) })
	}
	servers.Wait()
}

// groupByServer splits calls so that none waits for a server other than its own.
func (c *redisCalls) groupByServer(ctx context.Context, jobs []call) [][]call {
	cluster, ok := c.o.Client.(*redis.ClusterClient)
	if !ok {
		return [][]call{jobs}
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.callTimeout())
	defer cancel()
	place := map[string]int{}
	var groups [][]call
	for _, job := range jobs {
		server := "" // of calls whose server is unknown now
		if master, err := cluster.MasterForKey(ctx, c.o.Key(job.shard)); err == nil {
			server = master.Options().Addr
		}
		i, known := place[server]
		if !known {
			i = len(groups)
			place[server], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], job)
	}
	return groups
}

// refreshTogether refreshes locks in one round trip.
func (c *redisCalls) refreshTogether(ctx context.Context, jobs []call) []callOutcome {
	outs := make([]callOutcome, len(jobs))
	start := time.Now()
	_ = c.withTimeout(ctx, func(ctx context.Context) error {
		ctx = context.WithValue(ctx, refreshBatchKey{}, &refreshBatch{
			pipe: c.o.Client.Pipeline(), missing: len(jobs), done: make(chan struct{}),
		})
		var refreshes sync.WaitGroup
		for i, job := range jobs {
			refreshes.Go(func() {
				err := job.lock.Refresh(ctx, c.o.TTL, nil)
				outs[i] = callOutcome{call: job, start: start, elapsed: time.Since(start), err: err}
			})
		}
		refreshes.Wait()
		return nil
	})
	return outs
}

// batchingClient is a client for redislock, which makes one call for each lock. Calls under the context of a
// refreshBatch are sent together.
type batchingClient struct {
	redis.Scripter
	bySHA map[string]string // functions to call in place of scripts; nil: none
}

type refreshBatchKey struct{}

// refreshBatch waits for a number of calls and sends them in one pipeline.
type refreshBatch struct {
	mu      sync.Mutex
	pipe    redis.Pipeliner
	missing int
	done    chan struct{} // closed when all have their answers
}

// EvalSha is the first call that each operation of redislock makes. If the server does not know the script, the
// Eval that follows is sent alone.
func (g batchingClient) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if all, ok := ctx.Value(refreshBatchKey{}).(*refreshBatch); ok {
		return all.evalSha(ctx, func(p redis.Pipeliner) *redis.Cmd {
			if g.bySHA != nil {
				return p.FCall(ctx, g.bySHA[sha], keys, args...)
			}
			return p.EvalSha(ctx, sha, keys, args...)
		})
	}
	return g.Scripter.EvalSha(ctx, sha, keys, args...)
}

func (g *refreshBatch) evalSha(ctx context.Context, add func(redis.Pipeliner) *redis.Cmd) *redis.Cmd {
	g.mu.Lock()
	cmd := add(g.pipe)
	g.missing--
	last := g.missing == 0
	g.mu.Unlock()
	if last {
		_, _ = g.pipe.Exec(ctx) // each command has its own error
		close(g.done)
		return cmd
	}
	select {
	case <-g.done:
		return cmd
	case <-ctx.Done():
		return redis.NewCmdResult(nil, ctx.Err())
	}
}
