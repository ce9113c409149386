package worker

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	// backoffBase and backoffMax bound the pause between two tries of an address.
	backoffBase = 100 * time.Millisecond
	backoffMax  = 5 * time.Second
	// refusedBase is the least pause after a node has refused the worker's credential or role.
	refusedBase = 2 * time.Second
	// Addresses that nodes advertise and that were never reached are tried again after
	// unreachedBase to unreachedMax.
	unreachedBase = 5 * time.Second
	unreachedMax  = time.Minute
	// maxBrief sessions in a row may end at once before their address counts as failed.
	maxBrief = 5
	// maxAdvertised bounds the addresses remembered beside the configured ones.
	maxAdvertised = 32
)

// route is an address of nodes and what is known of it.
type route struct {
	address    string
	configured bool
	worked     time.Time // when a node last welcomed this worker there; zero: never
	answered   bool      // a node there has answered, be it with a refusal
	failures   int       // in a row
	missed     int       // in all
	brief      int       // sessions in a row that ended at once
	retryAt    time.Time // it is not tried before that
	dialing    bool
	rank       int // random: workers prefer different ones of equal addresses
}

// unreached reports whether the route has failed and never led to a node. A load balancer in
// front of the nodes makes such routes of all addresses that the nodes advertise.
func (r *route) unreached() bool { return r.doubtful() && r.failures > 0 }

// doubtful reports whether it is not known that the route leads to a node.
func (r *route) doubtful() bool { return !r.configured && !r.answered }

// routes are the addresses that a worker knows, the configured ones first.
type routes struct {
	mu        sync.Mutex
	all       []*route
	current   string   // address of the last session
	preferred []string // where a draining node sends this worker, until the next session
}

func newRoutes(configured []string) *routes {
	rs := &routes{}
	for _, address := range configured {
		if rs.find(address) == nil {
			rs.all = append(rs.all, &route{address: address, configured: true})
		}
	}
	rs.shuffle()
	return rs
}

func (rs *routes) find(address string) *route {
	if i := slices.IndexFunc(rs.all, func(r *route) bool { return r.address == address }); i >= 0 {
		return rs.all[i]
	}
	return nil
}

func (rs *routes) shuffle() {
	for i, rank := range rand.Perm(len(rs.all)) {
		rs.all[i].rank = rank
	}
}

// replaceAdvertised takes the addresses that a node advertises in place of those before.
// An empty list says nothing. The address of the last session stays.
func (rs *routes) replaceAdvertised(addresses []string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(addresses) == 0 {
		return
	}
	rs.all = slices.DeleteFunc(rs.all, func(r *route) bool {
		return !r.configured && !r.dialing && r.address != rs.current && !slices.Contains(addresses, r.address)
	})
	rs.add(addresses)
}

// add remembers addresses. Where there is no room, those that were never reached go first.
func (rs *routes) add(addresses []string) {
	for _, i := range rand.Perm(len(addresses)) {
		address := addresses[i]
		if address == "" || rs.find(address) != nil {
			continue
		}
		if !rs.makeRoom() {
			break
		}
		rs.all = append(rs.all, &route{address: address})
	}
	rs.shuffle()
}

// makeRoom keeps the number of advertised addresses within its bound.
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
	i := slices.IndexFunc(rs.all, func(r *route) bool { return r.unreached() && !r.dialing })
	if i < 0 {
		return false
	}
	rs.all = slices.Delete(rs.all, i, i+1)
	return true
}

// prefer has the next session begin at one of these addresses, which a draining node names.
func (rs *routes) prefer(addresses []string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.add(addresses)
	rs.preferred = addresses
	for _, address := range addresses {
		if r := rs.find(address); r != nil && !r.unreached() {
			r.failures, r.retryAt = 0, time.Time{}
		}
	}
}

// welcomed notes that a session has begun.
func (rs *routes) welcomed(r *route, now time.Time) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.worked, r.answered, r.failures, r.retryAt = now, true, 0, time.Time{}
	rs.current, rs.preferred = r.address, nil
	if rs.find(r.address) == nil {
		rs.all = append(rs.all, r)
	}
	rs.shuffle()
}

// failed notes a failed try. The pause until the next one grows with the time that the
// worker has been without a session: it comes back soon after a node does, and does not
// hurry when there is none for long.
func (rs *routes) failed(address string, now time.Time, without time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.find(address); r != nil {
		r.fail(now, without)
	}
}

// refused notes that a node refused the worker itself. The pause is longer from the start:
// only a new token or role ends it.
func (rs *routes) refused(address string, now time.Time, without time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.find(address); r != nil {
		r.fail(now, without)
		pause := min(max(without, refusedBase), backoffMax)
		r.retryAt = now.Add(pause/2 + rand.N(pause/2))
	}
}

// ended notes that a session was cut. An address where they end at once, again and again,
// counts as failed.
func (rs *routes) ended(address string, now time.Time, atOnce bool, without time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.find(address)
	switch {
	case r == nil:
	case !atOnce:
		r.brief = 0
	default:
		if r.brief++; r.brief >= maxBrief {
			r.fail(now, without)
		}
	}
}

func (r *route) fail(now time.Time, without time.Duration) {
	r.failures++
	r.missed++
	pause := min(max(without/4, backoffBase), backoffMax)
	if r.unreached() {
		pause = min(max(without, unreachedBase), unreachedMax)
	}
	r.retryAt = now.Add(pause/2 + rand.N(pause/2))
}

// answeredBy notes that a node has answered.
func (rs *routes) answeredBy(r *route) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.answered = true
}

// take picks the most promising route that may be tried now, and marks it as dialing. If
// there is none it says when there will be one; the zero time is never. avoid is the address
// of a session that stands, which is left alone while others may lead to a node; "" is none.
func (rs *routes) take(now time.Time, avoid string) (best *route, at time.Time) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	last, doubtful, others := rs.lastGood(), 0, false
	for _, r := range rs.all {
		if r.dialing && r.doubtful() {
			doubtful++
		}
		others = others || r.address != avoid && !r.doubtful() && r.promising()
	}
	for _, r := range rs.all {
		switch {
		case r.dialing || r.doubtful() && doubtful >= maxDoubtful || r.address == avoid && others:
		case r.retryAt.After(now):
			if at.IsZero() || r.retryAt.Before(at) {
				at = r.retryAt
			}
		case best == nil || rs.before(r, best, last, avoid):
			best = r
		}
	}
	if best != nil {
		best.dialing = true
	}
	return best, at
}

// promising reports whether the route may lead to a node, as far as is known.
func (r *route) promising() bool { return !r.unreached() && r.failures < 2 }

// landed notes that a dial has ended.
func (rs *routes) landed(r *route) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.dialing = false
}

// lastGood is where the last session was, nil if its address has failed since.
func (rs *routes) lastGood() *route {
	if r := rs.find(rs.current); r != nil && r.failures == 0 {
		return r
	}
	return nil
}

// before orders routes by what they promise.
func (rs *routes) before(a, b, last *route, avoid string) bool {
	if x, y := rs.class(a, last, avoid), rs.class(b, last, avoid); x != y {
		return x < y
	}
	if (a.failures == 0) != (b.failures == 0) {
		return a.failures == 0
	}
	return a.rank < b.rank
}

// class is the place of a route in the order in which routes are tried.
func (rs *routes) class(r, last *route, avoid string) int {
	switch {
	case r.unreached():
		return 6
	case r.address == avoid && avoid != "":
		return 5
	case slices.Contains(rs.preferred, r.address):
		return 0
	case r == last:
		return 1
	case r.configured:
		return 2
	case !r.worked.IsZero():
		return 3
	}
	return 4
}
