package node

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/cluster/membership"
	"github.com/fermata-io/fermata/internal/core/sharding"
)

// reachLoop finds out how this node stands to Redis, several times in the life of a lock, while
// there are others who could take over: which primaries answer at all, which it asks for nothing, and
// how long its own calls take.
func (n *Node) reachLoop(ctx context.Context) {
	every := n.cfg.LockTTL / 12
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	// By two thirds of a lock's life a refresh has failed, and there is time left
	// for the others to hear of it before the locks expire.
	sight := newSight(n.cfg.LockTTL*2/3, time.Now())
	slowness := &latencyComparison{ttl: n.cfg.LockTTL}
	p := newPings(n.lockConns)
	defer p.asking.Wait()
	told := stance{blind: -1}
	said := membership.Stance{Blind: -1}
	for turn := 0; ; {
		// Whoever gossip shows may compare itself with this node; this one compares itself with
		// those that could take over.
		company, others := n.otherMembers()
		if !company && !told.aside {
			// It counts from when there are others.
			sight = newSight(sight.patience, time.Now())
		}
		select {
		case <-ctx.Done():
			return
		case <-p.answered:
		case <-ticker.C:
			// An answer is waited for longer than until the next question.
			if turn++; turn%2 == 0 && (company || told.aside) {
				p.ask(ctx, sight.patience)
			}
		}
		now := time.Now()
		sight.take(p.answers(), now)
		is, dark := sight.look(blindOf(others), now)
		own := n.latency.value(now)
		is.slow = slowness.look(own, latenciesOf(others), now)
		is.aside = is.aside || is.slow
		// Its workers serve as soon as Redis answers again; only shards have to wait
		// until it has done so for a while.
		if n.dark.Swap(dark) != dark {
			n.wakeDemand()
		}
		if is != told && ctx.Err() == nil {
			n.logStance(told, is, sight.lost(), own, p.failed())
			n.gauges.stand(told, is)
			told = is
		}
		say := membership.Stance{Aside: is.aside, Blind: is.blind, Latency: said.Latency}
		if company && retell(said.Latency, own) {
			say.Latency = max(own, latencyFloor)
		}
		if say != said && ctx.Err() == nil {
			said = say
			if err := n.gossip.SetStance(say, every); err != nil {
				n.cfg.Logger.Warn("failed to tell the other nodes how this one stands to redis", "error", err)
			}
		}
	}
}

// otherMembers are the other nodes that may own shards, with what gossip knows of them. There is
// company if gossip shows any other node, whether or not that may.
func (n *Node) otherMembers() (company bool, peers []membership.MemberInfo) {
	eligible := n.locks.Eligible()
	for _, m := range n.gossip.Members() {
		if m.State != membership.StateAlive || m.Name == n.cfg.Name {
			continue
		}
		company = true
		if slices.ContainsFunc(eligible, func(e sharding.Member) bool { return e.Name == m.Name }) {
			peers = append(peers, m)
		}
	}
	return company, peers
}

// blindOf is how many primaries each node misses.
func blindOf(nodes []membership.MemberInfo) (blind []int) {
	for _, m := range nodes {
		blind = append(blind, m.Blind)
	}
	return blind
}

func latenciesOf(nodes []membership.MemberInfo) (latencies []peerLatency) {
	for _, m := range nodes {
		latencies = append(latencies, peerLatency{latency: m.Latency, aside: m.Aside})
	}
	return latencies
}

func (n *Node) logStance(was, is stance, lost []string, own time.Duration, why error) {
	log := n.cfg.Logger
	if is.blind > max(was.blind, 0) {
		log.Warn("redis does not answer", "primaries", lost, "error", why)
	}
	switch {
	case is.aside && !was.aside && is.slow:
		log.Warn("node stands aside: redis answers it much later than other nodes", "latency", own, "error", why)
	case is.aside && !was.aside:
		log.Warn("node stands aside: redis does not answer", "primaries", lost, "error", why)
	case was.aside && !is.aside:
		log.Info("node stands with the others again: redis answers", "latency", own)
	}
}

// pings are questions on their way: one is not held up by those before it.
type pings struct {
	client   redis.UniversalClient
	asking   sync.WaitGroup
	answered chan struct{} // something came since it was last read

	mu   sync.Mutex
	last error                // of the latest that has failed
	at   map[string]time.Time // when each of today's primaries answered last; zero: never
}

func newPings(client redis.UniversalClient) *pings {
	return &pings{client: client, answered: make(chan struct{}, 1), at: map[string]time.Time{}}
}

// ask asks each primary, whose answer is waited for no longer than this.
func (p *pings) ask(ctx context.Context, within time.Duration) {
	p.asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		asked, err := p.primaries(ctx)
		if err != nil {
			p.mu.Lock()
			p.last = err
			p.mu.Unlock()
			return
		}
		p.mu.Lock()
		maps.DeleteFunc(p.at, func(name string, _ time.Time) bool { return asked[name] == nil })
		for name := range asked {
			if _, is := p.at[name]; !is {
				p.at[name] = time.Time{}
			}
		}
		p.mu.Unlock()
		var each sync.WaitGroup
		for name, c := range asked {
			each.Go(func() { p.heard(name, c.Ping(ctx).Err()) })
		}
		each.Wait()
	})
}

// primaries are those of a Redis Cluster as far as this node knows; otherwise there is one
// server without a name.
func (p *pings) primaries(ctx context.Context) (map[string]redis.Cmdable, error) {
	cluster, ok := p.client.(*redis.ClusterClient)
	if !ok {
		return map[string]redis.Cmdable{"": p.client}, nil
	}
	var mu sync.Mutex
	all := map[string]redis.Cmdable{}
	err := cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all[c.Options().Addr] = c
		return nil
	})
	return all, err
}

func (p *pings) heard(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.last = err
		return
	}
	if _, is := p.at[name]; !is {
		return // it is no primary any more
	}
	p.at[name] = time.Now()
	select {
	case p.answered <- struct{}{}:
	default: // the answers are about to be read
	}
}

func (p *pings) answers() map[string]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.at)
}

func (p *pings) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}
