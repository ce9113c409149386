package worker

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	// backoffBase and backoffMax bound the pause between two attempts to connect to an address.
	backoffBase = 100 * time.Millisecond
	backoffMax  = 5 * time.Second
	// refusedBase is the shortest pause after a node has refused the worker's credential or role.
	refusedBase = 2 * time.Second
	// unreachedBase and unreachedMax bound the pause for advertised addresses that were never reached.
	unreachedBase = 5 * time.Second
	unreachedMax  = time.Minute
	// maxBriefSessions is how many sessions in a row may end at once before their address counts as failed.
	maxBriefSessions = 5
	// maxAdvertised bounds the addresses remembered beside the configured ones.
	maxAdvertised = 32
)

// route is an address of nodes, with its history.
type route struct {
	address       string
	configured    bool
	welcomedAt    time.Time // when a node last welcomed this worker at it; zero: never
	answered      bool      // a node has answered there, also with a refusal
	failures      int       // in a row
	totalFailures int       // since the start
	briefSessions int       // sessions in a row that ended at once
	retryAt       time.Time // not tried before that time
	dialing       bool
	rank          int // random, so that workers prefer different addresses of the same class
}

// isUnreached reports whether the route has failed and has never led to a node. Behind a load balancer all
// advertised addresses are such routes.
func (r *route) isUnreached() bool { return r.isUnverified() && r.failures > 0 }

// isUnverified reports whether no node has answered at an advertised address yet.
func (r *route) isUnverified() bool { return !r.configured && !r.answered }

// routes are the addresses that a worker knows, the configured ones first.
type routes struct {
	mu        sync.Mutex
	all       []*route
	current   string   // address of the last session
	preferred []string // addresses from a Drain, until the next session
}

func newRoutes(configured []string) *routes {
	rs := &routes{}
	for _, address := range configured {
		if rs.findRoute(address) == nil {
			rs.all = append(rs.all, &route{address: address, configured: true})
		}
	}
	rs.shuffleRanks()
	return rs
}

func (rs *routes) findRoute(address string) *route {
	if i := slices.IndexFunc(rs.all, func(r *route) bool { return r.address == address }); i >= 0 {
		return rs.all[i]
	}
	return nil
}

func (rs *routes) shuffleRanks() {
	for i, rank := range rand.Perm(len(rs.all)) {
		rs.all[i].rank = rank
	}
}

// replaceAdvertised replaces the advertised addresses. An empty list changes nothing. The address of the current
// session stays.
func (rs *routes) replaceAdvertised(addresses []string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(addresses) == 0 {
		return
	}
	rs.all = slices.DeleteFunc(rs.all, func(r *route) bool {
		return !r.configured && !r.dialing && r.address != rs.current && !slices.Contains(addresses, r.address)
	})
	rs.addAdvertised(addresses)
}

// addAdvertised adds addresses. If there is no room, addresses that were never reached are removed first.
func (rs *routes) addAdvertised(addresses []string) {
	for _, i := range rand.Perm(len(addresses)) {
		address := addresses[i]
		if address == "" || rs.findRoute(address) != nil {
			continue
		}
		if !rs.makeRoom() {
			break
		}
		rs.all = append(rs.all, &route{address: address})
	}
	rs.shuffleRanks()
}

// makeRoom keeps the number of advertised addresses within maxAdvertised.
func (rs *routes) makeRoom() bool {
	advertised := 0
	for _, r := range rs.all {
		if !r.configured {
			advertised++
		}
	}
	if advertised < maxAdvertised {
		return true
	}
	i := slices.IndexFunc(rs.all, func(r *route) bool { return r.isUnreached() && !r.dialing })
	if i < 0 {
		return false
	}
	rs.all = slices.Delete(rs.all, i, i+1)
	return true
}

// preferAddresses makes the next session try these addresses first. They come from a node that drains.
func (rs *routes) preferAddresses(addresses []string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.addAdvertised(addresses)
	rs.preferred = addresses
	for _, address := range addresses {
		if r := rs.findRoute(address); r != nil && !r.isUnreached() {
			r.failures, r.retryAt = 0, time.Time{}
		}
	}
}

// markWelcomed records that a session has begun.
func (rs *routes) markWelcomed(r *route, now time.Time) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.welcomedAt, r.answered, r.failures, r.retryAt = now, true, 0, time.Time{}
	rs.current, rs.preferred = r.address, nil
	if rs.findRoute(r.address) == nil {
		rs.all = append(rs.all, r)
	}
	rs.shuffleRanks()
}

// markFailed records a failed attempt to connect. The pause until the next one grows with the time without a
// session: a worker returns soon after a short outage and backs off in a long one.
func (rs *routes) markFailed(address string, now time.Time, without time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.findRoute(address); r != nil {
		r.countFailure(now, without)
	}
}

// markRefused records that a node refused the worker's credential or role. The pause is longer from the start,
// because only a new token or role helps.
func (rs *routes) markRefused(address string, now time.Time, without time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.findRoute(address); r != nil {
		r.countFailure(now, without)
		pause := min(max(without, refusedBase), backoffMax)
		r.retryAt = now.Add(pause/2 + rand.N(pause/2))
	}
}

// markEnded records that a session was cut. After maxBriefSessions sessions that ended at once, the address
// counts as failed.
func (rs *routes) markEnded(address string, now time.Time, atOnce bool, without time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.findRoute(address)
	switch {
	case r == nil:
	case !atOnce:
		r.briefSessions = 0
	default:
		r.briefSessions++
		if r.briefSessions >= maxBriefSessions {
			r.countFailure(now, without)
		}
	}
}

func (r *route) countFailure(now time.Time, without time.Duration) {
	r.failures++
	r.totalFailures++
	pause := min(max(without/4, backoffBase), backoffMax)
	if r.isUnreached() {
		pause = min(max(without, unreachedBase), unreachedMax)
	}
	r.retryAt = now.Add(pause/2 + rand.N(pause/2))
}

// markAnswered records that a node has answered.
func (rs *routes) markAnswered(r *route) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.answered = true
}

// claimNext returns the best route that may be tried now and marks it as dialing. If there is none it returns
// when there will be one; the zero time means never. avoid is the address of an open session, which is skipped
// while other routes may lead to a node; "" means none.
func (rs *routes) claimNext(now time.Time, avoid string) (best *route, at time.Time) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	last, doubtful, others := rs.lastWorking(), 0, false
	for _, r := range rs.all {
		if r.dialing && r.isUnverified() {
			doubtful++
		}
		others = others || r.address != avoid && !r.isUnverified() && r.isPromising()
	}
	for _, r := range rs.all {
		switch {
		case r.dialing || r.isUnverified() && doubtful >= maxUnverifiedDials || r.address == avoid && others:
		case r.retryAt.After(now):
			if at.IsZero() || r.retryAt.Before(at) {
				at = r.retryAt
			}
		case best == nil || rs.isBetter(r, best, last, avoid):
			best = r
		}
	}
	if best != nil {
		best.dialing = true
	}
	return best, at
}

// isPromising reports whether the route may lead to a node.
func (r *route) isPromising() bool { return !r.isUnreached() && r.failures < 2 }

// markDialEnded records that a dial has ended.
func (rs *routes) markDialEnded(r *route) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.dialing = false
}

// lastWorking returns the route of the last session, or nil if it has failed since.
func (rs *routes) lastWorking() *route {
	if r := rs.findRoute(rs.current); r != nil && r.failures == 0 {
		return r
	}
	return nil
}

// isBetter reports whether a is tried before b.
func (rs *routes) isBetter(a, b, last *route, avoid string) bool {
	if x, y := rs.priorityClass(a, last, avoid), rs.priorityClass(b, last, avoid); x != y {
		return x < y
	}
	if (a.failures == 0) != (b.failures == 0) {
		return a.failures == 0
	}
	return a.rank < b.rank
}

// priorityClass returns the route's class; lower classes are tried first.
func (rs *routes) priorityClass(r, last *route, avoid string) int {
	switch {
	case r.isUnreached():
		return 6
	case r.address == avoid && avoid != "":
		return 5
	case slices.Contains(rs.preferred, r.address):
		return 0
	case r == last:
		return 1
	case r.configured:
		return 2
	case !r.welcomedAt.IsZero():
		return 3
	}
	return 4
}
