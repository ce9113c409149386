package reachability

import (
	"cmp"
	"slices"
	"time"
)

const (
	// minSlowLatency is the latency up to which Redis counts as fast for any node.
	minSlowLatency = 100 * time.Millisecond
	// slowFactor is how many times the latency of its peers makes a node withdraw.
	slowFactor = 4
	// latencyFloor replaces lower latencies in comparisons and in gossip, so that healthy nodes do not change
	// their state.
	latencyFloor = 25 * time.Millisecond
	// minSlowTime is how long a node has to be much slower in any case: a busy machine makes any node slow for a
	// moment.
	minSlowTime = 2 * time.Second
	// minLockSilence is the least time without an answer to a call on locks after which these calls count as failing:
	// one of them may be lost.
	minLockSilence = time.Second
	// maxHoldLives bounds, in lock TTLs, how long a node has to be as fast as its peers before it owns shards
	// again.
	maxHoldLives = 16
)

// latencyComparison decides whether this node is so much slower at Redis than its peers that they should own its
// shards: a due job waits for several answers of Redis, one after the other. It compares: if Redis is slow for
// all nodes, none withdraws. The fastest nodes never withdraw, and at least one node that owns shards is much
// faster than a node that withdraws.
type latencyComparison struct {
	ttl               time.Duration
	withdrawn         bool
	contradictedSince time.Time     // since when the latencies contradict withdrawn; zero: they do not
	holdTime          time.Duration // how long they have to contradict before it returns
	lastWithdrawn     time.Time     // when it was last withdrawn
}

// compareLatencies compares this node's latency with those of its peers, and reports whether it withdraws.
func (p *latencyComparison) compareLatencies(own time.Duration, others []Report, now time.Time) bool {
	if own == 0 {
		return p.withdrawn // no own latency is known
	}
	standing := slices.DeleteFunc(slices.Clone(others), func(o Report) bool { return o.Withdrawn })
	best := bestQuarterLatency(standing)
	if p.withdrawn {
		p.returnIfFast(max(own, latencyFloor), best, len(standing) == 0, now)
	} else {
		p.withdrawIfSlow(max(own, latencyFloor), best, now)
	}
	return p.withdrawn
}

// withdrawIfSlow withdraws the node when it has been much slower for a third of the lock TTL, and for two
// seconds.
func (p *latencyComparison) withdrawIfSlow(own, best time.Duration, now time.Time) {
	switch {
	case best == 0 || !isMuchSlower(own, best):
		p.contradictedSince = time.Time{}
		return
	case p.contradictedSince.IsZero():
		p.contradictedSince = now
	}
	if now.Sub(p.contradictedSince) < max(p.ttl/3, minSlowTime) {
		return
	}
	first := p.ttl * 2 / 3
	if p.holdTime == 0 || now.Sub(p.lastWithdrawn) > 4*max(p.holdTime, p.ttl) {
		p.holdTime = first
	} else {
		p.holdTime = min(2*p.holdTime, maxHoldLives*p.ttl)
	}
	p.withdrawn, p.contradictedSince = true, time.Time{}
}

// returnIfFast ends the withdrawal when the node has been about as fast for the hold time. It does so at once if
// all others are withdrawn, or are much slower.
func (p *latencyComparison) returnIfFast(own, best time.Duration, alone bool, now time.Time) {
	switch {
	case alone || isMuchSlower(best, own):
	case best != 0 && own > max(minSlowLatency/2, 2*best):
		p.contradictedSince = time.Time{}
		return
	case p.contradictedSince.IsZero():
		p.contradictedSince = now
		return
	case now.Sub(p.contradictedSince) < p.holdTime:
		return
	}
	p.withdrawn, p.contradictedSince, p.lastWithdrawn = false, time.Time{}, now
}

func isMuchSlower(a, b time.Duration) bool { return a > minSlowLatency && a > slowFactor*b }

// bestQuarterLatency is the latency of the slowest node of the fastest quarter, at least one node; 0 if none
// publishes its latency.
func bestQuarterLatency(nodes []Report) time.Duration {
	published := slices.DeleteFunc(slices.Clone(nodes), func(o Report) bool { return o.Latency == 0 })
	if len(published) == 0 {
		return 0
	}
	slices.SortFunc(published, func(a, b Report) int { return cmp.Compare(a.Latency, b.Latency) })
	return max(published[(len(published)-1)/4].Latency, latencyFloor)
}

// hasChangedStep reports whether a latency has changed by more than one step since it was published.
func hasChangedStep(published, own time.Duration) bool {
	a, b := latencyStep(max(published, latencyFloor)), latencyStep(max(own, latencyFloor))
	return published == 0 && own != 0 || max(a-b, b-a) > 1
}
