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
	maxTries   = 8
	firstPause = 5 * time.Millisecond
	longPause  = 400 * time.Millisecond
)

// run carries out ops, each to its own end: an answer, a refusal, or an error
// that cannot be helped while ctx lasts. An op whose answer was lost is sent
// again; every script recognises its own effects, so that nothing happens twice.
func (s *Store) run(ctx context.Context, ops []*op) {
	if len(ops) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.opTimeout)
	defer cancel()
	pause := firstPause
	for try := 1; ; try++ {
		s.send(ctx, ops)
		ops = s.again(ops)
		if len(ops) == 0 || try == maxTries || !s.sleep(ctx, try, &pause) {
			return
		}
		s.metrics.retries.Add(float64(len(ops)))
	}
}

// sleep waits before the next try. The first one goes out at once: most often a
// pooled connection has died, and the next is good.
func (s *Store) sleep(ctx context.Context, try int, pause *time.Duration) bool {
	if try == 1 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(*pause)
	defer t.Stop()
	*pause = min(*pause*3, longPause)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// again returns the ops that are worth another try.
func (s *Store) again(ops []*op) []*op {
	var left []*op
	reload := false
	for _, o := range ops {
		if o.err == nil {
			continue
		}
		v := rediserr.Classify(o.err)
		s.metrics.errors.WithLabelValues(v.Kind).Inc()
		if v.Kind == rediserr.KindDenied {
			s.refused(o.err)
		}
		o.uncertain = o.uncertain || v.MayHaveRun
		reload = reload || v.ReloadTopology
		if v.Retry && !(o.once && v.MayHaveRun) && !(s.shedAfter > 0 && v.Kind == rediserr.KindNoConnection) {
			left = append(left, o)
		}
	}
	if cluster, ok := s.client.(*redis.ClusterClient); ok && reload {
		cluster.ReloadState(context.Background()) // starts it; waits for nothing
	}
	return left
}

// node is a server that takes pipelines.
type node interface {
	Pipeline() redis.Pipeliner
}

// send tries ops once, one pipeline for each server that has some of them.
func (s *Store) send(ctx context.Context, ops []*op) {
	if _, ok := s.client.(*redis.ClusterClient); !ok {
		s.sendTo(ctx, s.client, ops)
		return
	}
	groups := s.byServer(ctx, ops)
	delete(groups, nil)
	var wg sync.WaitGroup
	for server, group := range groups {
		wg.Go(func() { s.sendTo(ctx, server, group) })
	}
	wg.Wait()
}

// byServer tells which server has each of ops; those of which none is known have an error,
// and are under nil.
func (s *Store) byServer(ctx context.Context, ops []*op) map[node][]*op {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return map[node][]*op{s.client: ops}
	}
	groups := map[node][]*op{}
	for _, o := range ops {
		master, err := cluster.MasterForKey(ctx, o.keys[0])
		if o.err = err; err != nil {
			groups[nil] = append(groups[nil], o)
			continue
		}
		groups[master] = append(groups[master], o)
	}
	return groups
}

// sendTo sends a pipeline to one server. What its script cache lacks follows in a
// second one, in which the first call of each script fills the cache, and what is moving to
// another server goes there.
func (s *Store) sendTo(ctx context.Context, to node, ops []*op) {
	s.gathered(ctx, to, ops)
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
		s.pipeline(ctx, to, unknown, true, "")
	}
	for addr, group := range asked {
		if next := s.nodeAt(ctx, addr); next != nil {
			s.pipeline(ctx, next, group, true, "asking")
		}
	}
}

const (
	// underWay is how many pipelines a server has at once: one that it works on, and
	// others that are being written or read meanwhile.
	underWay = 4
	// pipelineArgs bounds the arguments of calls of different callers in one pipeline,
	// so that a small call does not wait for the answers to very many others.
	pipelineArgs = 4096
)

// gathered sends a pipeline to a server: for a store of clients, or where the ops allow it,
// together with what other callers send there. The engines' other calls go alone, each for no
// longer than its own caller waits: what a leasing call gets after that is nobody's until it ends.
func (s *Store) gathered(ctx context.Context, to node, ops []*op) {
	if s.shedAfter == 0 && !joins(ops) {
		s.pipeline(ctx, to, ops, false, "")
		return
	}
	args := 0
	for _, o := range ops {
		args += len(o.argv) + len(o.plain)
	}
	err := s.funnelOf(to).Do(ctx, ops, args, s.shedAfter, func(ctx context.Context, loads [][]*op) {
		s.pipeline(ctx, to, slices.Concat(loads...), false, "")
	})
	if errors.Is(err, coalesce.ErrPatience) {
		err = redis.ErrPoolTimeout
	}
	if err != nil {
		for _, o := range ops {
			o.err = err
		}
	}
}

// funnelOf is the funnel of a server. There are as many as the store has met servers.
func (s *Store) funnelOf(to node) *coalesce.Funnel[[]*op] {
	f, ok := s.funnels.Load(to)
	if !ok {
		f, _ = s.funnels.LoadOrStore(to, coalesce.New[[]*op](underWay, pipelineArgs))
	}
	return f.(*coalesce.Funnel[[]*op])
}

// nodeAt finds a master of the cluster by its address.
func (s *Store) nodeAt(ctx context.Context, addr string) node {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	var mu sync.Mutex
	var found *redis.Client
	// An error here means that some master is not reachable, which the op's own
	// error tells well enough.
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

// pipeline is one round trip: ops in order, whole with the texts of their scripts, and, where
// the durability class asks for it, one WAIT after them. WAIT counts for the connection it is sent on, so
// it is worth nothing anywhere else.
func (s *Store) pipeline(ctx context.Context, to node, ops []*op, whole bool, before string) {
	p := to.Pipeline()
	room := argRooms.Get().(*argRoom)
	defer room.done() // answered or not, all commands have been written or never will be
	cmds := make([]*redis.Cmd, len(ops))
	mutates := false
	var told []*script // those that the server knows by now
	for i, o := range ops {
		if before != "" {
			p.Do(ctx, before)
		}
		var common []any
		if o.script != nil && o.script.sharded {
			common = s.commonArgs(o.shard)
		}
		if o.latestAt > 0 {
			o.argv[o.latestAt] = s.latest(o.shard)
		}
		first := whole && o.script != nil && !slices.Contains(told, o.script)
		if first {
			told = append(told, o.script)
		}
		cmds[i] = p.Do(ctx, o.args(room, common, first)...)
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
		o.take(cmds[i], failed)
		s.finish(o, started, arrived)
	}
	if wait != nil {
		s.confirm(wait, ops)
	}
}

// finish reads what all answers have in common.
func (s *Store) finish(o *op, sent, arrived time.Time) {
	if o.err != nil || o.script == nil {
		return
	}
	s.metrics.took(o.name, arrived.Sub(sent))
	if !o.script.sharded {
		return
	}
	switch o.err = o.refusal(); {
	case o.reply.int(0) == 1:
		s.clocks[o.shard].refused(arrived)
	case o.err == nil || o.reply.int(0) == 2 || o.reply.int(0) == 4:
		var us int64
		us, o.lagMS = o.reply.clock()
		s.clocks[o.shard].saw(us, o.lagMS, sent, arrived)
	}
}

// confirm spoils the good answers of a pipeline that WAIT did not confirm. An
// answer that was a refusal had no effect to be confirmed.
func (s *Store) confirm(wait *redis.Cmd, ops []*op) {
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
