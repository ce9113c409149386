package reachability

import (
	"maps"
	"slices"
	"time"
)

// serverReach tracks whether a server still answers this node. A late answer counts too: a slow server is
// reachable.
type serverReach struct {
	timeout     time.Duration // without an answer, until the server counts as lost
	answered    time.Time     // time of the last answer
	stableSince time.Time     // the first answer of the latest series without a gap
	lost        bool
}

// isStable reports whether it has answered without a gap for longer than one gap.
func (r *serverReach) isStable() bool {
	return !r.stableSince.IsZero() && r.answered.Sub(r.stableSince) >= r.maxGap()
}

// maxGap is the pause that ends a series of answers. It is longer than the pause caused by one lost ping.
func (r *serverReach) maxGap() time.Duration { return r.timeout * 3 / 4 }

// recordAnswer records an answer.
func (r *serverReach) recordAnswer(now time.Time) {
	if now.Sub(r.answered) >= r.maxGap() || r.stableSince.IsZero() {
		r.stableSince = now
	}
	r.answered = now
}

// updateReach reports whether the server counts as lost, and whether it does not answer now. A lost server is
// reachable again after it has answered for as long as the timeout, so that an unstable link does not move
// shards repeatedly.
func (r *serverReach) updateReach(now time.Time) (lost, silent bool) {
	pause := now.Sub(r.answered)
	switch {
	case pause >= r.timeout:
		r.lost, r.stableSince = true, time.Time{}
	case pause < r.maxGap() && !r.stableSince.IsZero() && r.answered.Sub(r.stableSince) >= r.timeout:
		r.lost = false
	}
	return r.lost, r.lost && pause >= r.maxGap()
}

// redisReach decides whether this node withdraws from shard ownership because it cannot reach Redis. A node that
// cannot reach Redis cannot refresh its locks, and while gossip shows it as alive, the others would leave its
// shards to it. A node whose Redis is slow must not withdraw, nor one that misses a primary that no node
// reaches: its shards would have no owner, or move without benefit. So a node withdraws if no server answers it,
// or if another node reaches more primaries than it does for as long as the timeout. By then a fault of Redis
// itself shows on all nodes.
type redisReach struct {
	timeout   time.Duration
	anyServer serverReach             // the answers of all servers together
	primaries map[string]*serverReach // by address
	// worseSince is the time since which another node reaches more primaries, moved forward by periods in which
	// that was unclear; zero: no node does.
	worseSince time.Time
	updatedAt  time.Time
}

func newRedisReach(timeout time.Duration, now time.Time) *redisReach {
	return &redisReach{timeout: timeout, anyServer: serverReach{timeout: timeout, answered: now},
		primaries: map[string]*serverReach{}, updatedAt: now}
}

// recordAnswers updates the primaries with the times of their latest answers; zero: none.
func (s *redisReach) recordAnswers(answers map[string]time.Time, now time.Time) {
	maps.DeleteFunc(s.primaries, func(name string, _ *serverReach) bool { _, is := answers[name]; return !is })
	for name, at := range answers {
		p := s.primaries[name]
		if p == nil {
			p = &serverReach{timeout: s.timeout, answered: now}
			s.primaries[name] = p
		}
		if at.After(p.answered) {
			p.recordAnswer(at)
		}
		if at.After(s.anyServer.answered) {
			s.anyServer.recordAnswer(at)
		}
	}
}

// reachState is the state that is published to the other nodes.
type reachState struct {
	withdrawn bool
	slow      bool // withdrawn because Redis answers it much later than its peers
	// unreachable is the number of primaries that do not answer; -1: unknown.
	unreachable int
}

// assessReach returns the state of this node, given the numbers of primaries that the others cannot reach, and
// whether no server answers now. A number below 0 is of a node that does not publish it.
func (s *redisReach) assessReach(others []int, now time.Time) (is reachState, silent bool) {
	is.withdrawn, silent = s.anyServer.updateReach(now)
	unsure, anySilent, allStable := len(s.primaries) == 0, false, true
	for _, p := range s.primaries {
		if lost, silent := p.updateReach(now); lost {
			is.unreachable++
			anySilent, allStable = anySilent || silent, allStable && p.isStable()
		} else if p.stableSince.IsZero() {
			unsure = true // no answer yet, within the timeout
		}
	}
	if unsure {
		is.unreachable = -1
	}
	others = slices.DeleteFunc(slices.Clone(others), func(n int) bool { return n < 0 })
	confirmed := !s.worseSince.IsZero() && now.Sub(s.worseSince) >= s.timeout
	switch {
	case len(others) == 0 || is.unreachable <= slices.Min(others):
		s.worseSince = time.Time{}
	case anySilent || confirmed:
		if s.worseSince.IsZero() {
			s.worseSince = now
		}
	// A primary that answers again keeps a withdrawn node withdrawn for a while, but withdraws none: after a
	// short stall some nodes count the primary as lost, and some do not.
	case allStable:
		s.worseSince = time.Time{}
	// Nor does one answer after a long pause prove that the primary is reachable.
	case !s.worseSince.IsZero():
		s.worseSince = s.worseSince.Add(now.Sub(s.updatedAt))
	}
	s.updatedAt = now
	if !s.worseSince.IsZero() && now.Sub(s.worseSince) >= s.timeout {
		is.withdrawn = true
	}
	return is, silent
}

// lostPrimaries are the primaries that do not answer, sorted.
func (s *redisReach) lostPrimaries() []string {
	var names []string
	for name, p := range s.primaries {
		if p.lost {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
