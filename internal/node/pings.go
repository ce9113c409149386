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

// checkReachLoop measures several times per lock TTL, while other nodes could take over, how this node reaches
// Redis: which primaries answer a ping, and how long its own calls take.
func (n *Node) checkReachLoop(ctx context.Context) {
	every := n.cfg.LockTTL / 12
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	// By two thirds of the lock TTL a refresh has failed, and the others still have time to learn of it before
	// the locks expire.
	reach := newRedisReach(n.cfg.LockTTL*2/3, time.Now())
	slowness := &latencyComparison{ttl: n.cfg.LockTTL}
	p := newPinger(n.lockConns)
	defer p.rounds.Wait()
	published := reachState{unreachable: -1}
	sent := membership.Stance{Blind: -1}
	for turn := 0; ; {
		// Every live node may compare itself with this node. This node compares itself only with those that
		// could take over.
		company, others := n.otherMembers()
		if !company && !published.withdrawn {
			// The timeout starts when there are other nodes.
			reach = newRedisReach(reach.timeout, time.Now())
		}
		select {
		case <-ctx.Done():
			return
		case <-p.answered:
		case <-ticker.C:
			// The timeout of a ping is longer than the interval of pings.
			turn++
			if turn%2 == 0 && (company || published.withdrawn) {
				p.startRound(ctx, reach.timeout)
			}
		}
		now := time.Now()
		reach.recordAnswers(p.answerTimes(), now)
		is, dark := reach.assessReach(unreachableCounts(others), now)
		own := n.latency.currentLatency(now)
		is.slow = slowness.compareLatencies(own, peerLatencies(others), now)
		is.withdrawn = is.withdrawn || is.slow
		// Its workers get runs as soon as Redis answers again; only shards require a stable period.
		if n.unreachable.Swap(dark) != dark {
			n.slotShare.NotifyPeers()
		}
		if is != published && ctx.Err() == nil {
			n.logReachChange(published, is, reach.lostPrimaries(), own, p.lastError())
			n.gauges.setWithdrawn(published, is)
			published = is
		}
		next := membership.Stance{Aside: is.withdrawn, Blind: is.unreachable, Latency: sent.Latency}
		if company && hasChangedStep(sent.Latency, own) {
			next.Latency = max(own, latencyFloor)
		}
		if next != sent && ctx.Err() == nil {
			sent = next
			if err := n.gossip.SetStance(next, every); err != nil {
				n.cfg.Logger.Warn("failed to publish reachability of redis", "error", err)
			}
		}
	}
}

// otherMembers are the other nodes that may own shards, with their gossip state. company reports whether gossip
// has any other live node.
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

// unreachableCounts are the numbers of primaries that the nodes cannot reach.
func unreachableCounts(nodes []membership.MemberInfo) (blind []int) {
	for _, m := range nodes {
		blind = append(blind, m.Blind)
	}
	return blind
}

func peerLatencies(nodes []membership.MemberInfo) (latencies []peerLatency) {
	for _, m := range nodes {
		latencies = append(latencies, peerLatency{latency: m.Latency, withdrawn: m.Aside})
	}
	return latencies
}

func (n *Node) logReachChange(was, is reachState, lost []string, own time.Duration, err error) {
	log := n.cfg.Logger
	if is.unreachable > max(was.unreachable, 0) {
		log.Warn("redis does not answer", "primaries", lost, "error", err)
	}
	switch {
	case is.withdrawn && !was.withdrawn && is.slow:
		log.Warn("node withdrawn from shard ownership: redis answers it much later than other nodes", "latency", own,
			"error", err)
	case is.withdrawn && !was.withdrawn:
		log.Warn("node withdrawn from shard ownership: redis does not answer", "primaries", lost, "error", err)
	case was.withdrawn && !is.withdrawn:
		log.Info("node returned to shard ownership: redis answers", "latency", own)
	}
}

// pinger pings the primaries of Redis. A round does not wait for those before it.
type pinger struct {
	client   redis.UniversalClient
	rounds   sync.WaitGroup
	answered chan struct{} // signals that an answer arrived

	mu         sync.Mutex
	lastErr    error                // of the latest failed ping
	answeredAt map[string]time.Time // time of the latest answer of each current primary; zero: none
}

func newPinger(client redis.UniversalClient) *pinger {
	return &pinger{client: client, answered: make(chan struct{}, 1), answeredAt: map[string]time.Time{}}
}

// startRound pings each primary, and waits for an answer no longer than within.
func (p *pinger) startRound(ctx context.Context, within time.Duration) {
	p.rounds.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		asked, err := p.listPrimaries(ctx)
		if err != nil {
			p.mu.Lock()
			p.lastErr = err
			p.mu.Unlock()
			return
		}
		p.mu.Lock()
		maps.DeleteFunc(p.answeredAt, func(name string, _ time.Time) bool { return asked[name] == nil })
		for name := range asked {
			if _, is := p.answeredAt[name]; !is {
				p.answeredAt[name] = time.Time{}
			}
		}
		p.mu.Unlock()
		var each sync.WaitGroup
		for name, c := range asked {
			each.Go(func() { p.recordAnswer(name, c.Ping(ctx).Err()) })
		}
		each.Wait()
	})
}

// listPrimaries returns the primaries of a Redis Cluster that this node knows; otherwise one server without a
// name.
func (p *pinger) listPrimaries(ctx context.Context) (map[string]redis.Cmdable, error) {
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

func (p *pinger) recordAnswer(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.lastErr = err
		return
	}
	if _, is := p.answeredAt[name]; !is {
		return // it is no longer a primary
	}
	p.answeredAt[name] = time.Now()
	select {
	case p.answered <- struct{}{}:
	default: // the receiver is already signalled
	}
}

func (p *pinger) answerTimes() map[string]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.answeredAt)
}

func (p *pinger) lastError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastErr
}
