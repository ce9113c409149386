package node

import (
	"cmp"
	"slices"
	"time"
)

const (
	// slowFrom is the latency up to which Redis is fast enough for any node.
	slowFrom = 100 * time.Millisecond
	// slowTimes is how many times the latency of its peers puts a node aside.
	slowTimes = 4
	// latencyFloor is what lower latencies are taken and told for, so that those of healthy nodes never change.
	latencyFloor = 25 * time.Millisecond
	// slowAtLeast is how long a node has to be much slower in any case: for a moment anybody is whose
	// machine is busy.
	slowAtLeast = 2 * time.Second
	// longestReturn bounds, in lives of a lock, how long a node has to be as fast as its peers before
	// it owns shards again.
	longestReturn = 16
)

// peerLatency is what another node says of its own calls to Redis.
type peerLatency struct {
	latency time.Duration // 0: it does not say
	aside   bool
}

// latencyComparison decides whether this node is so much slower at Redis than its peers that they
// should have its shards: what is due in a shard waits for several answers of Redis, one after the
// other. It compares; where Redis is slow for all, nobody stands aside for it. The best
// ones never do, and of those that stand at least one is much faster than a node that steps aside.
type latencyComparison struct {
	ttl   time.Duration
	aside bool
	since time.Time     // since when the latencies have contradicted aside; zero: they do not
	hold  time.Duration // how long they have to, to end it
	ended time.Time     // when it was aside last
}

// look takes over this node's latency and those of its peers.
func (p *latencyComparison) look(own time.Duration, others []peerLatency, now time.Time) bool {
	if own == 0 {
		return p.aside // nothing is known
	}
	standing := slices.DeleteFunc(slices.Clone(others), func(o peerLatency) bool { return o.aside })
	best := bestQuarter(standing)
	if p.aside {
		p.mayReturn(max(own, latencyFloor), best, len(standing) == 0, now)
	} else {
		p.mayLeave(max(own, latencyFloor), best, now)
	}
	return p.aside
}

// mayLeave puts the node aside when it has been much slower for a third of a lock's life, and for
// two seconds.
func (p *latencyComparison) mayLeave(own, best time.Duration, now time.Time) {
	switch {
	case best == 0 || !muchSlower(own, best):
		p.since = time.Time{}
		return
	case p.since.IsZero():
		p.since = now
	}
	if now.Sub(p.since) < max(p.ttl/3, slowAtLeast) {
		return
	}
	first := p.ttl * 2 / 3
	if p.hold == 0 || now.Sub(p.ended) > 4*max(p.hold, p.ttl) {
		p.hold = first
	} else {
		p.hold = min(2*p.hold, longestReturn*p.ttl)
	}
	p.aside, p.since = true, time.Time{}
}

// mayReturn ends it when the node has been about as fast for the hold time; at once where
// nobody else stands, or those who do are much slower.
func (p *latencyComparison) mayReturn(own, best time.Duration, alone bool, now time.Time) {
	switch {
	case alone || muchSlower(best, own):
	case best != 0 && own > max(slowFrom/2, 2*best):
		p.since = time.Time{}
		return
	case p.since.IsZero():
		p.since = now
		return
	case now.Sub(p.since) < p.hold:
		return
	}
	p.aside, p.since, p.ended = false, time.Time{}, now
}

func muchSlower(a, b time.Duration) bool { return a > slowFrom && a > slowTimes*b }

// bestQuarter is the latency that a quarter of some nodes have at most, one node at least; 0 if
// none says.
func bestQuarter(nodes []peerLatency) time.Duration {
	said := slices.DeleteFunc(slices.Clone(nodes), func(o peerLatency) bool { return o.latency == 0 })
	if len(said) == 0 {
		return 0
	}
	slices.SortFunc(said, func(a, b peerLatency) int { return cmp.Compare(a.latency, b.latency) })
	return max(said[(len(said)-1)/4].latency, latencyFloor)
}

// retell is true if a latency has changed so much that others should hear of it: by more than
// one step of the measure.
func retell(told, own time.Duration) bool {
	a, b := stepOf(max(told, latencyFloor)), stepOf(max(own, latencyFloor))
	return told == 0 && own != 0 || max(a-b, b-a) > 1
}
