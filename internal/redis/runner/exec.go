package runner

import (
	"context"
	"maps"
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

// RunEach runs ops until each has a reply or a permanent error, or ctx ends. It sends an op whose reply
// was lost again. Every script recognises its own effects, so that nothing happens twice.
func (r *Runner) RunEach(ctx context.Context, ops []*Op) {
	if len(ops) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.opTimeout)
	defer cancel()
	pause := minRetryPause
	for try := 1; ; try++ {
		r.sendOnce(ctx, ops)
		ops = r.opsToRetry(ops)
		if len(ops) == 0 || try == maxTries || !r.pauseBeforeRetry(ctx, try, &pause) {
			return
		}
		r.metrics.retries.Add(float64(len(ops)))
	}
}

// RunOnce runs ops as [Runner.RunEach] does, but sends each of them only once. It returns the ops that RunEach would
// send again.
func (r *Runner) RunOnce(ctx context.Context, ops []*Op) (unanswered []*Op) {
	if len(ops) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.opTimeout)
	defer cancel()
	r.sendOnce(ctx, ops)
	unanswered = r.opsToRetry(ops)
	r.metrics.retries.Add(float64(len(unanswered)))
	return unanswered
}

// pauseBeforeRetry waits before the next try. The first retry is immediate: usually a pooled
// connection has died, and the next one is good.
func (r *Runner) pauseBeforeRetry(ctx context.Context, try int, pause *time.Duration) bool {
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
func (r *Runner) opsToRetry(ops []*Op) []*Op {
	var left []*Op
	reload := false
	for _, o := range ops {
		if o.Err == nil {
			continue
		}
		v := rediserr.Classify(o.Err)
		r.metrics.errors.WithLabelValues(v.Kind).Inc()
		if v.Kind == rediserr.KindDenied {
			r.rememberDenial(o.Err)
		}
		o.MayHaveRun = o.MayHaveRun || v.MayHaveRun
		reload = reload || v.ReloadTopology
		if v.Retry && !(o.NeverRetry && v.MayHaveRun) && !(r.maxQueueWait > 0 && v.Kind == rediserr.KindNoConnection) {
			left = append(left, o)
		}
	}
	if cluster, ok := r.client.(*redis.ClusterClient); ok && reload {
		cluster.ReloadState(context.Background()) // does not wait
	}
	return left
}

// pipeliner is a server that accepts pipelines.
type pipeliner interface {
	Pipeline() redis.Pipeliner
}

// sendOnce tries ops once, in one pipeline for each server.
func (r *Runner) sendOnce(ctx context.Context, ops []*Op) {
	if _, ok := r.client.(*redis.ClusterClient); !ok {
		r.sendToServer(ctx, r.client, ops)
		return
	}
	groups := r.groupByServer(ctx, ops)
	delete(groups, nil)
	var wg sync.WaitGroup
	for server, group := range groups {
		wg.Go(func() { r.sendToServer(ctx, server, group) })
	}
	wg.Wait()
}

// GroupByServer groups ops by the server that has their keys. Ops without a known server are a group of their
// own.
func (r *Runner) GroupByServer(ctx context.Context, ops []*Op) [][]*Op {
	return slices.Collect(maps.Values(r.groupByServer(ctx, ops)))
}

// groupByServer groups ops by the server that has their keys. Ops without a known server get an error
// and are under nil.
func (r *Runner) groupByServer(ctx context.Context, ops []*Op) map[pipeliner][]*Op {
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return map[pipeliner][]*Op{r.client: ops}
	}
	groups := map[pipeliner][]*Op{}
	for _, o := range ops {
		master, err := cluster.MasterForKey(ctx, o.Keys[0])
		o.Err = err
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
func (r *Runner) sendToServer(ctx context.Context, to pipeliner, ops []*Op) {
	r.sendCoalesced(ctx, to, ops)
	var unknown []*Op
	asked := map[string][]*Op{}
	for _, o := range ops {
		if o.Err == nil {
			continue
		}
		if redis.HasErrorPrefix(o.Err, "NOSCRIPT") {
			unknown = append(unknown, o)
		} else if addr, ok := redis.IsAskError(o.Err); ok {
			asked[addr] = append(asked[addr], o)
		}
	}
	if len(unknown) > 0 {
		r.sendPipeline(ctx, to, unknown, true, "")
	}
	for addr, group := range asked {
		if next := r.masterAt(ctx, addr); next != nil {
			r.sendPipeline(ctx, next, group, true, "asking")
		}
	}
}

const (
	// maxPipelinesInFlight is how many pipelines a server has at once: it executes one while others
	// are written or read.
	maxPipelinesInFlight = 4
	// maxPipelineWeight bounds the weight of calls of different callers in one pipeline, so that a small call
	// does not wait for the answers to very many others, or for very large ones: a pipeline whose answers take
	// longer than the read timeout would fail as a whole.
	maxPipelineWeight = 4096
)

// sendCoalesced sends ops to a server. If the ops allow it, or Options.Shed is set, they share a
// pipeline with ops of other callers. All other ops are sent alone, for no longer than their own
// caller waits: records that are leased later have no worker until the lease ends.
func (r *Runner) sendCoalesced(ctx context.Context, to pipeliner, ops []*Op) {
	if r.maxQueueWait == 0 && !allMayShare(ops) {
		r.sendPipeline(ctx, to, ops, false, "")
		return
	}
	weight := 0
	for _, o := range ops {
		weight += o.weight()
	}
	err := r.coalescerOf(to).Do(ctx, ops, weight, r.maxQueueWait, func(ctx context.Context, loads [][]*Op) {
		r.sendPipeline(ctx, to, slices.Concat(loads...), false, "")
	})
	if err != nil {
		for _, o := range ops {
			o.Err = err
		}
	}
}

// coalescerOf returns the coalescer of a server.
func (r *Runner) coalescerOf(to pipeliner) *coalesce.Coalescer[[]*Op] {
	f, ok := r.coalescers.Load(to)
	if !ok {
		f, _ = r.coalescers.LoadOrStore(to, coalesce.New[[]*Op](maxPipelinesInFlight, maxPipelineWeight))
	}
	return f.(*coalesce.Coalescer[[]*Op])
}

// masterAt finds a master of the cluster by its address.
func (r *Runner) masterAt(ctx context.Context, addr string) pipeliner {
	cluster, ok := r.client.(*redis.ClusterClient)
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
func (r *Runner) sendPipeline(ctx context.Context, to pipeliner, ops []*Op, whole bool, before string) {
	p := to.Pipeline()
	room := argumentArenaPool.Get().(*ArgumentArena)
	defer room.release() // all commands have been written, or never will be
	cmds := make([]*redis.Cmd, len(ops))
	mutates := false
	var sent []*Script // whose text is in this pipeline
	for i, o := range ops {
		if before != "" {
			p.Do(ctx, before)
		}
		var common []any
		if o.Script != nil && o.Script.Sharded {
			common = r.clockArgs(o.Shard)
		}
		if o.DeadlineArg > 0 {
			o.Argv[o.DeadlineArg] = r.answerDeadline(ctx, o.Shard)
		}
		first := whole && o.Script != nil && !slices.Contains(sent, o.Script)
		if first {
			sent = append(sent, o.Script)
		}
		cmds[i] = p.Do(ctx, o.commandArgs(room, common, first)...)
		mutates = mutates || o.mutates()
	}
	var wait *redis.Cmd
	if mutates && r.durability == conn.DurabilityReplica {
		wait = p.Do(ctx, "wait", r.replicas, r.waitTimeout.Milliseconds())
	}
	started := r.now()
	_, failed := p.Exec(ctx) // each command has its own error, if it was sent
	arrived := r.now()
	for i, o := range ops {
		o.readReply(cmds[i], failed)
		r.readCommonReply(o, started, arrived)
	}
	if wait != nil {
		r.markUnconfirmed(wait, ops)
	}
}

// readCommonReply reads what all replies have in common.
func (r *Runner) readCommonReply(o *Op, sent, arrived time.Time) {
	if o.Err != nil || o.Script == nil {
		return
	}
	r.metrics.observeLatency(o.Name, arrived.Sub(sent))
	if !o.Script.Sharded {
		return
	}
	switch o.Err = o.refusalError(); {
	case o.Reply.IntAt(0) == 1:
		r.clocks[o.Shard].countRefusal(arrived)
	case o.Err == nil || o.Reply.IntAt(0) == 2 || o.Reply.IntAt(0) == 4:
		var us int64
		us, o.ClockLagMS = o.Reply.readClock()
		r.clocks[o.Shard].observe(us, o.ClockLagMS, sent, arrived)
	}
}

// markUnconfirmed fails the successful ops of a pipeline that WAIT did not confirm. Ops that were
// rejected had no effect to confirm.
func (r *Runner) markUnconfirmed(wait *redis.Cmd, ops []*Op) {
	n, err := wait.Int()
	if err == nil && n >= r.replicas {
		return
	}
	for _, o := range ops {
		if o.Err == nil && o.mutates() {
			o.Err = rediserr.ErrUnconfirmed
		}
	}
}
