package shardlock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// all carries out calls that belong together, and delivers their outcomes as they
// come: refreshes go to each server in one pipeline, because a node that has nothing
// to do should be woken once for all its locks.
func (c *redisCalls) all(ctx context.Context, jobs []call, deliver func([]outcome)) {
	if len(jobs) == 1 {
		deliver([]outcome{c.do(ctx, jobs[0])})
		return
	}
	var servers sync.WaitGroup
	for _, group := range c.byServer(ctx, jobs) {
		servers.Go(func() { deliver(c.together(ctx, group)) })
	}
	servers.Wait()
}

// byServer parts calls so that none waits for another server than its own.
func (c *redisCalls) byServer(ctx context.Context, jobs []call) [][]call {
	cluster, ok := c.o.Client.(*redis.ClusterClient)
	if !ok {
		return [][]call{jobs}
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.callTimeout())
	defer cancel()
	place := map[string]int{}
	var groups [][]call
	for _, job := range jobs {
		server := "" // of those whose server is not known now
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

// together refreshes locks in one round trip.
func (c *redisCalls) together(ctx context.Context, jobs []call) []outcome {
	outs := make([]outcome, len(jobs))
	start := time.Now()
	_ = c.bounded(ctx, func(ctx context.Context) error {
		ctx = context.WithValue(ctx, gatheringKey{}, &gathering{
			pipe: c.o.Client.Pipeline(), missing: len(jobs), done: make(chan struct{}),
		})
		var refreshes sync.WaitGroup
		for i, job := range jobs {
			refreshes.Go(func() {
				err := job.lock.Refresh(ctx, c.o.TTL, nil)
				outs[i] = outcome{call: job, start: start, elapsed: time.Since(start), err: err}
			})
		}
		refreshes.Wait()
		return nil
	})
	return outs
}

// gatherer is a client for redislock, which makes one call for each lock: those made
// under the context of a gathering are sent together.
type gatherer struct {
	redis.Scripter
	bySHA map[string]string // functions to call in place of scripts; nil: none
}

type gatheringKey struct{}

// gathering waits for a number of calls and sends them in one pipeline.
type gathering struct {
	mu      sync.Mutex
	pipe    redis.Pipeliner
	missing int
	done    chan struct{} // closed when all have their answers
}

// EvalSha is the first thing that each of redislock's calls does. What follows if
// the server does not know the script, Eval, goes its own way.
func (g gatherer) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if all, ok := ctx.Value(gatheringKey{}).(*gathering); ok {
		return all.evalSha(ctx, func(p redis.Pipeliner) *redis.Cmd {
			if g.bySHA != nil {
				return p.FCall(ctx, g.bySHA[sha], keys, args...)
			}
			return p.EvalSha(ctx, sha, keys, args...)
		})
	}
	return g.Scripter.EvalSha(ctx, sha, keys, args...)
}

func (g *gathering) evalSha(ctx context.Context, add func(redis.Pipeliner) *redis.Cmd) *redis.Cmd {
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
