package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/lib/coalesce"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

const (
	maxTries      = 8
	minRetryPause = 5 * time.Millisecond
	maxRetryPause = 400 * time.Millisecond
)

// runOps runs ops until each has a reply or a permanent error, or ctx ends. It sends an op whose reply
// was lost again. Every script recognises its own effects, so that nothing happens twice.
func (s *Store) runOps(ctx context.Context, ops []*op) {
	if len(ops) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.opTimeout)
	defer cancel()
	pause := minRetryPause
	for try := 1; ; try++ {
		s.sendOnce(ctx, ops)
		ops = s.opsToRetry(ops)
		if len(ops) == 0 || try == maxTries || !s.pauseBeforeRetry(ctx, try, &pause) {
			return
		}
		s.metrics.retries.Add(float64(len(ops)))
	}
}

// pauseBeforeRetry waits before the next try. The first retry is immediate: usually a pooled
// connection has died, and the next one is good.
func (s *Store) pauseBeforeRetry(ctx context.Context, try int, pause *time.Duration) bool {
	if try == 1 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(*pause)
	defer t.Stop()
	*pause = min(*pause*3, maxRetryPause)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// opsToRetry returns the ops that may succeed on another try.
func (s *Store) opsToRetry(ops []*op) []*op {
	var left []*op
	reload := false
	for _, o := range ops {
		if o.err == nil {
			continue
		}
		v := rediserr.Classify(o.err)
		s.metrics.errors.WithLabelValues(v.Kind).Inc()
		if v.Kind == rediserr.KindDenied {
			s.rememberDenial(o.err)
		}
		o.mayHaveRun = o.mayHaveRun || v.MayHaveRun
		reload = reload || v.ReloadTopology
		if v.Retry && !(o.neverRetry && v.MayHaveRun) && !(s.maxQueueWait > 0 && v.Kind == rediserr.KindNoConnection) {
			left = append(left, o)
		}
	}
	if cluster, ok := s.client.(*redis.ClusterClient); ok && reload {
		cluster.ReloadState(context.Background()) // does not wait
	}
	return left
}

// pipeliner is a server that accepts pipelines.
type pipeliner interface {
	Pipeline() redis.Pipeliner
}

// sendOnce tries ops once, in one pipeline for each server.
func (s *Store) sendOnce(ctx context.Context, ops []*op) {
	if _, ok := s.client.(*redis.ClusterClient); !ok {
		s.sendToServer(ctx, s.client, ops)
		return
	}
	groups := s.groupByServer(ctx, ops)
	delete(groups, nil)
	var wg sync.WaitGroup
	for server, group := range groups {
		wg.Go(func() { s.sendToServer(ctx, server, group) })
	}
	wg.Wait()
}

// groupByServer groups ops by the server that has their keys. Ops without a known server get an error
// and are under nil.
func (s *Store) groupByServer(ctx context.Context, ops []*op) map[pipeliner][]*op {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return map[pipeliner][]*op{s.client: ops}
	}
	groups := map[pipeliner][]*op{}
	for _, o := range ops {
		master, err := cluster.MasterForKey(ctx, o.keys[0])
		o.err = err
		if err != nil {
			groups[nil] = append(groups[nil], o)
			continue
		}
		groups[master] = append(groups[master], o)
	}
	return groups
}

// sendToServer sends a pipeline to one server. Calls of scripts that its cache lacks follow in a second
// pipeline, whose first call of each script fills the cache. Calls for keys that are moving to
// another server are sent there.
func (s *Store) sendToServer(ctx context.Context, to pipeliner, ops []*op) {
	s.sendCoalesced(ctx, to, ops)
	var unknown []*op
	asked := map[string][]*op{}
	for _, o := range ops {
		if o.err == nil {
			continue
		}
		if redis.HasErrorPrefix(o.err, "NOSCRIPT") {
			unknown = append(unknown, o)
		} else if addr, ok := redis.IsAskError(o.err); ok {
			asked[addr] = append(asked[addr], o)
		}
	}
	if len(unknown) > 0 {
		s.sendPipeline(ctx, to, unknown, true, "")
	}
	for addr, group := range asked {
		if next := s.masterAt(ctx, addr); next != nil {
			s.sendPipeline(ctx, next, group, true, "asking")
		}
	}
}

const (
	// maxPipelinesInFlight is how many pipelines a server has at once: it executes one while others
	// are written or read.
	maxPipelinesInFlight = 4
	// maxPipelineArgs bounds the arguments of calls of different callers in one pipeline,
	// so that a small call does not wait for the answers to very many others.
	maxPipelineArgs = 4096
)

// sendCoalesced sends ops to a server. If the ops allow it, or Options.Shed is set, they share a
// pipeline with ops of other callers. All other ops are sent alone, for no longer than their own
// caller waits: records that are leased after that belong to nobody until the lease ends.
func (s *Store) sendCoalesced(ctx context.Context, to pipeliner, ops []*op) {
	if s.maxQueueWait == 0 && !allMayShare(ops) {
		s.sendPipeline(ctx, to, ops, false, "")
		return
	}
	args := 0
	for _, o := range ops {
		args += len(o.argv) + len(o.command)
	}
	err := s.coalescerOf(to).Do(ctx, ops, args, s.maxQueueWait, func(ctx context.Context, loads [][]*op) {
		s.sendPipeline(ctx, to, slices.Concat(loads...), false, "")
	})
	if errors.Is(err, coalesce.ErrTurnTimeout) {
		err = redis.ErrPoolTimeout
	}
	if err != nil {
		for _, o := range ops {
			o.err = err
		}
	}
}

// coalescerOf returns the coalescer of a server.
func (s *Store) coalescerOf(to pipeliner) *coalesce.Coalescer[[]*op] {
	f, ok := s.coalescers.Load(to)
	if !ok {
		f, _ = s.coalescers.LoadOrStore(to, coalesce.New[[]*op](maxPipelinesInFlight, maxPipelineArgs))
	}
	return f.(*coalesce.Coalescer[[]*op])
}

// masterAt finds a master of the cluster by its address.
func (s *Store) masterAt(ctx context.Context, addr string) pipeliner {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	var mu sync.Mutex
	var found *redis.Client
	// An error here means that some master is not reachable. The op already has this
	// error.
	_ = cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		if c.Options().Addr == addr || c.NodeAddress() == addr {
			mu.Lock()
			defer mu.Unlock()
			found = c
		}
		return nil
	})
	if found == nil {
		return nil
	}
	return found
}

// sendPipeline makes one round trip: the ops in order, followed by one WAIT if the durability class
// needs it. WAIT is about writes of its own connection, so it must be in the same pipeline. With whole
// the first call of each script has its text; before is a command to send ahead of each op.
func (s *Store) sendPipeline(ctx context.Context, to pipeliner, ops []*op, whole bool, before string) {
	p := to.Pipeline()
	room := argumentArenaPool.Get().(*argumentArena)
	defer room.release() // all commands have been written, or never will be
	cmds := make([]*redis.Cmd, len(ops))
	mutates := false
	var sent []*script // whose text is in this pipeline
	for i, o := range ops {
		if before != "" {
			p.Do(ctx, before)
		}
		var common []any
		if o.script != nil && o.script.sharded {
			common = s.clockArgs(o.shard)
		}
		if o.deadlineArg > 0 {
			o.argv[o.deadlineArg] = s.answerDeadline(ctx, o.shard)
		}
		first := whole && o.script != nil && !slices.Contains(sent, o.script)
		if first {
			sent = append(sent, o.script)
		}
		cmds[i] = p.Do(ctx, o.commandArgs(room, common, first)...)
		mutates = mutates || o.mutates()
	}
	var wait *redis.Cmd
	if mutates && s.durability == conn.DurabilityReplica {
		wait = p.Do(ctx, "wait", s.replicas, s.waitTimeout.Milliseconds())
	}
	started := s.now()
	_, failed := p.Exec(ctx) // each command has its own error, if it was sent
	arrived := s.now()
	for i, o := range ops {
		o.readReply(cmds[i], failed)
		s.readCommonReply(o, started, arrived)
	}
	if wait != nil {
		s.markUnconfirmed(wait, ops)
	}
}

// readCommonReply reads what all replies have in common.
func (s *Store) readCommonReply(o *op, sent, arrived time.Time) {
	if o.err != nil || o.script == nil {
		return
	}
	s.metrics.observeLatency(o.name, arrived.Sub(sent))
	if !o.script.sharded {
		return
	}
	switch o.err = o.refusalError(); {
	case o.reply.intAt(0) == 1:
		s.clocks[o.shard].countRefusal(arrived)
	case o.err == nil || o.reply.intAt(0) == 2 || o.reply.intAt(0) == 4:
		var us int64
		us, o.clockLagMS = o.reply.readClock()
		s.clocks[o.shard].observe(us, o.clockLagMS, sent, arrived)
	}
}

// markUnconfirmed fails the successful ops of a pipeline that WAIT did not confirm. Ops that were
// rejected had no effect to confirm.
func (s *Store) markUnconfirmed(wait *redis.Cmd, ops []*op) {
	n, err := wait.Int()
	if err == nil && n >= s.replicas {
		return
	}
	for _, o := range ops {
		if o.err == nil && o.mutates() {
			o.err = rediserr.ErrUnconfirmed
		}
	}
}
