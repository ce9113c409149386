package shardlock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/ring"
)

// idle is how long the loop sleeps when nothing has a time of its own.
const idle = time.Hour

// loop is the state of a running Manager. Its methods belong to one goroutine.
type loop struct {
	m         *Manager
	o         Options
	slots     []*slot
	told      ring.View            // what gossip shows
	gone      map[string]time.Time // nodes whose process has ended, until when that counts
	view      ring.View            // those of told that are not gone, and may own shards
	members   map[string]bool      // all that are not gone
	owners    map[string]bool      // of view
	filter    *map[string]string   // by which view was made
	process   map[string]string    // of the members that tell, the present one
	aside     map[string]bool      // members that hold no shards
	asideAt   time.Time            // when those of the view do not, if that is to change; else zero
	asideNext map[string]bool      // these
	changed   time.Time            // when the owners last changed
	draining  bool
	breaks    *limiter // of locks whose holder gossip has lost
	burials   *limiter // of locks whose holder's process has ended for certain
	failing   int      // slots whose last call ended in an error

	// One call a slot is in flight at most, and each channel has room for one
	// of every slot: sends never block.
	urgent   chan []call // refreshes, and releases one by one
	normal   chan call
	outcomes chan []outcome
}

func newLoop(m *Manager) *loop {
	l := &loop{
		m:        m,
		o:        m.o,
		slots:    make([]*slot, m.o.Shards),
		gone:     map[string]time.Time{},
		aside:    map[string]bool{},
		breaks:   newLimiter(m.o.Shards / 4),
		burials:  newLimiter(m.o.Shards / 2),
		urgent:   make(chan []call, m.o.Shards),
		normal:   make(chan call, m.o.Shards),
		outcomes: make(chan []outcome, m.o.Shards),
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
		case outs := <-l.outcomes:
			for _, out := range outs {
				l.apply(out, time.Now())
			}
		case <-l.m.poke:
		case <-timer.C:
		}
	}
}

// work carries calls out until ctx ends. What keeps locks goes before what
// gains them.
func (l *loop) work(ctx context.Context) {
	for {
		var next []call
		select {
		case next = <-l.urgent:
		default:
			select {
			case <-ctx.Done():
				return
			case next = <-l.urgent:
			case c := <-l.normal:
				next = []call{c}
			}
		}
		if ctx.Err() != nil {
			return
		}
		l.m.calls.all(ctx, next, func(outs []outcome) { l.outcomes <- outs })
	}
}

// readMail takes over what the Manager's methods have left.
func (l *loop) readMail(now time.Time) {
	l.m.mu.Lock()
	view, fates, woken := l.m.mu.view, l.m.mu.fates, l.m.mu.woken
	l.m.mu.view, l.m.mu.fates, l.m.mu.woken = nil, nil, nil
	l.draining = l.m.mu.draining
	drops := l.admit()
	l.m.mu.Unlock()

	if view != nil {
		l.setView(*view, now)
	}
	if l.m.owners.Load() != l.filter {
		l.survey(now)
	}
	for _, f := range fates {
		l.learn(f, now)
	}
	for _, shard := range woken {
		l.slots[shard].wake(now)
	}
	for shard, reason := range drops {
		l.giveUp(l.slots[shard], reason, now)
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
			l.aside, l.asideAt = l.asideNext, time.Time{}
			l.assign(now)
		}
	}
	if next := l.forget(now); !next.IsZero() {
		sooner(next)
	}
	settled := l.changed.Add(l.o.Settle)
	refreshDue := false
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
		switch {
		case now.Before(at):
			sooner(at)
		case what == refresh:
			refreshDue = true
		default:
			l.start(s, what, now)
		}
	}
	if refreshDue {
		l.refresh(now)
	}
	return wakeAt
}

// refresh renews the locks whose time has come, and with them those that have had half
// of theirs, so that soon all of them go together.
func (l *loop) refresh(now time.Time) {
	var batch []call
	for _, s := range l.slots {
		what, at := s.due(l.wants(s))
		if what != refresh || now.Before(at) && (s.failing || now.Sub(s.start) < l.o.refreshEvery()/2) {
			continue
		}
		s.busy, s.start = true, now
		batch = append(batch, call{kind: refresh, shard: s.shard, lock: s.lock})
	}
	l.urgent <- batch
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
	c := call{kind: what, shard: s.shard, expect: s.expect, proven: s.proven, below: s.below, lock: s.lock}
	if s.lock == nil {
		if s.token == "" {
			s.token = newToken()
		}
		c.token = s.token
	}
	s.busy = true
	if what == release {
		l.urgent <- []call{c}
	} else {
		l.normal <- c
	}
}

// jitter spreads d by a quarter to both sides, so that shards and nodes do not
// act in step.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2)
}
