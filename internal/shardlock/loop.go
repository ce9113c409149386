package shardlock

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/ring"
)

// idle is how long the loop sleeps when nothing has a time of its own.
const idle = time.Hour

// loop is the state of a running Manager. Its methods belong to one goroutine.
type loop struct {
	m        *Manager
	o        Options
	slots    []*slot
	view     ring.View
	members  map[string]bool // of the current view
	aside    map[string]bool // members that hold no shards
	asideAt  time.Time       // when those of the view do not, if that is to change
	changed  time.Time       // when the members last changed
	draining bool
	breaks   *limiter
	failing  int // slots whose last call ended in an error

	// One call a slot is in flight at most, and each channel has room for one
	// of every slot: sends never block.
	urgent   chan call // refreshes and releases
	normal   chan call
	outcomes chan outcome
}

func newLoop(m *Manager) *loop {
	l := &loop{
		m:        m,
		o:        m.o,
		slots:    make([]*slot, m.o.Shards),
		aside:    map[string]bool{},
		breaks:   newLimiter(m.o.Shards / 4),
		urgent:   make(chan call, m.o.Shards),
		normal:   make(chan call, m.o.Shards),
		outcomes: make(chan outcome, m.o.Shards),
	}
	for i := range l.slots {
		l.slots[i] = &slot{shard: i}
	}
	return l
}

func (l *loop) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range l.o.workers() {
		workers.Go(func() { l.work(ctx) })
	}
	defer workers.Wait()
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		l.readMail(time.Now())
		timer.Reset(time.Until(l.advance(time.Now())))
		select {
		case <-ctx.Done():
			for _, s := range l.slots {
				l.lose(s, LossStopped)
			}
			return
		case out := <-l.outcomes:
			l.apply(out, time.Now())
		case <-l.m.poke:
		case <-timer.C:
		}
	}
}

// work carries calls out until ctx ends. What keeps locks goes before what
// gains them.
func (l *loop) work(ctx context.Context) {
	for {
		var next call
		select {
		case next = <-l.urgent:
		default:
			select {
			case <-ctx.Done():
				return
			case next = <-l.urgent:
			case next = <-l.normal:
			}
		}
		if ctx.Err() != nil {
			return
		}
		l.outcomes <- l.m.calls.do(ctx, next)
	}
}

// readMail takes over what the Manager's methods have left.
func (l *loop) readMail(now time.Time) {
	l.m.mu.Lock()
	view, woken := l.m.mu.view, l.m.mu.woken
	l.m.mu.view, l.m.mu.woken = nil, nil
	l.draining = l.m.mu.draining
	drops := l.admit()
	l.m.mu.Unlock()

	if view != nil {
		l.setView(*view, now)
	}
	for _, shard := range woken {
		l.slots[shard].wake(now)
	}
	for shard, reason := range drops {
		l.giveUp(l.slots[shard], reason, now)
	}
}

func (l *loop) setView(v ring.View, now time.Time) {
	members := make(map[string]bool, len(v.Members))
	for _, member := range v.Members {
		members[member.Name] = true
	}
	if !maps.Equal(members, l.members) {
		l.members, l.changed = members, now
	}
	l.view, l.asideAt = v, time.Time{}
	if !maps.Equal(asideOf(v), l.aside) {
		l.asideAt = now.Add(l.o.damping())
	}
	l.assign(now)
}

// asideOf are the members that stand aside.
func asideOf(v ring.View) map[string]bool {
	aside := map[string]bool{}
	for _, m := range v.Members {
		if m.Aside {
			aside[m.Name] = true
		}
	}
	return aside
}

// assign finds the owners of all shards.
func (l *loop) assign(now time.Time) {
	v := l.view
	v.Members = slices.Clone(v.Members)
	for i := range v.Members {
		v.Members[i].Aside = l.aside[v.Members[i].Name]
	}
	for shard, owner := range ring.Assign(v, l.o.Shards) {
		s := l.slots[shard]
		if owner == l.o.Node && s.owner != owner && s.lock == nil {
			s.next = now
		}
		s.owner = owner
		if s.expect != "" && l.lives(s.expect) {
			s.expect = ""
		}
	}
}

// advance does what is due for every shard and returns when to look again.
func (l *loop) advance(now time.Time) time.Time {
	wakeAt := now.Add(idle)
	sooner := func(t time.Time) {
		if t.Before(wakeAt) {
			wakeAt = t
		}
	}
	if !l.asideAt.IsZero() {
		if now.Before(l.asideAt) {
			sooner(l.asideAt)
		} else {
			l.aside, l.asideAt = asideOf(l.view), time.Time{}
			l.assign(now)
		}
	}
	settled := l.changed.Add(l.o.Settle)
	for _, s := range l.slots {
		if g := l.m.grips[s.shard].Load(); g != nil {
			if now.Before(g.ValidUntil) {
				sooner(g.ValidUntil)
			} else {
				l.lose(s, LossExpired)
			}
		}
		if l.misplaced(s) {
			if now.Before(settled) {
				sooner(settled)
			} else {
				l.giveUp(s, LossHandover, now)
			}
		}
		what, at := s.due(l.wants(s))
		if what == none {
			continue
		}
		if now.Before(at) {
			sooner(at)
		} else {
			l.start(s, what, now)
		}
	}
	return wakeAt
}

func (l *loop) wants(s *slot) bool { return s.owner == l.o.Node && !l.draining }

// misplaced is true for a lock that the ring gives to another live member. If
// it names nobody, the lock is kept.
func (l *loop) misplaced(s *slot) bool {
	return s.lock != nil && s.drop == "" && s.owner != "" && s.owner != l.o.Node
}

// alone is true if no other node is known to compete.
func (l *loop) alone() bool {
	return len(l.members) == 0 || len(l.members) == 1 && l.members[l.o.Node]
}

func (l *loop) start(s *slot, what kind, now time.Time) {
	c := call{kind: what, shard: s.shard, expect: s.expect, lock: s.lock}
	if s.lock == nil {
		if s.token == "" {
			s.token = newToken()
		}
		c.token = s.token
	}
	s.busy = true
	switch what {
	case refresh:
		s.start = now
		l.urgent <- c
	case release:
		l.urgent <- c
	default:
		l.normal <- c
	}
}

// jitter spreads d by a quarter to both sides, so that shards and nodes do not
// act in step.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2)
}
