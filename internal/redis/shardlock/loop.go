package shardlock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/sharding"
)

// idleSleep is how long the loop sleeps when nothing has a time of its own.
const idleSleep = time.Hour

// managerLoop is the state of a running Manager. Its methods belong to one goroutine.
type managerLoop struct {
	m                 *Manager
	o                 Options
	shards            []*shardState
	gossipView        sharding.View        // the view of gossip
	endedUntil        map[string]time.Time // nodes whose process has ended, until when that counts
	view              sharding.View        // members of gossipView that have not ended, and may own shards
	members           map[string]bool      // all that have not ended
	allMembers        []sharding.Member    // the same
	owners            map[string]bool      // of view
	appliedOwners     *map[string]string   // the owners by which view was made
	currentProcess    map[string]string    // current process of each member that publishes it
	withdrawn         map[string]bool      // members that own no shards because they have withdrawn
	withdrawnAt       time.Time            // when withdrawnNext takes effect; zero if nothing is to change
	withdrawnLatest   time.Time            // the latest value of withdrawnAt, however often withdrawnNext changes
	withdrawnNext     map[string]bool      // the next value of withdrawn
	ownersChangedAt   time.Time            // when the owners last changed
	draining          bool
	lostHolderLimiter *takeoverLimiter // for locks whose holder gossip has lost
	deadHolderLimiter *takeoverLimiter // for locks whose holder's process is known to have ended
	failingSlots      int              // slots whose last call ended in an error

	// One call a slot is in flight at most, and each channel has room for one
	// of every slot: sends never block.
	urgent   chan []call // refreshes, and releases one by one
	normal   chan call
	outcomes chan []callOutcome
}

func newManagerLoop(m *Manager) *managerLoop {
	l := &managerLoop{
		m:                 m,
		o:                 m.o,
		shards:            make([]*shardState, m.o.Shards),
		endedUntil:        map[string]time.Time{},
		withdrawn:         map[string]bool{},
		lostHolderLimiter: newTakeoverLimiter(m.o.Shards / 4),
		deadHolderLimiter: newTakeoverLimiter(m.o.Shards / 2),
		urgent:            make(chan []call, m.o.Shards),
		normal:            make(chan call, m.o.Shards),
		outcomes:          make(chan []callOutcome, m.o.Shards),
	}
	for i := range l.shards {
		l.shards[i] = &shardState{shard: i}
	}
	return l
}

func (l *managerLoop) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range l.o.workerCount() {
		workers.Go(func() { l.callWorker(ctx) })
	}
	defer workers.Wait()
	timer := time.NewTimer(idleSleep)
	defer timer.Stop()
	for {
		l.drainInbox(time.Now())
		timer.Reset(time.Until(l.advanceShards(time.Now())))
		select {
		case <-ctx.Done():
			for _, s := range l.shards {
				l.invalidateLock(s, LossStopped)
			}
			return
		case outs := <-l.outcomes:
			for _, out := range outs {
				l.applyOutcome(out, time.Now())
			}
		case <-l.m.inboxWake:
		case <-timer.C:
		}
	}
}

// callWorker makes calls until ctx ends. Calls that keep locks take precedence over calls that gain them.
func (l *managerLoop) callWorker(ctx context.Context) {
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
		l.m.calls.doAll(ctx, next, func(outs []callOutcome) { l.outcomes <- outs })
	}
}

// drainInbox applies what the Manager's methods have queued.
func (l *managerLoop) drainInbox(now time.Time) {
	l.m.mu.Lock()
	view, statuses, woken, abandoned := l.m.mu.view, l.m.mu.statuses, l.m.mu.woken, l.m.mu.abandoned
	l.m.mu.view, l.m.mu.statuses, l.m.mu.woken, l.m.mu.abandoned = nil, nil, nil, nil
	l.draining = l.m.mu.draining
	drops := l.openRequests()
	l.m.mu.Unlock()

	if view != nil {
		l.applyView(*view, now)
	}
	if l.m.owners.Load() != l.appliedOwners {
		l.updateMembers(now)
	}
	for _, f := range statuses {
		l.applyStatus(f, now)
	}
	for _, shard := range woken {
		l.shards[shard].retryNow(now)
	}
	for shard, owner := range abandoned {
		l.substituteFor(l.shards[shard], owner, now)
	}
	for shard, reason := range drops {
		l.startDrop(l.shards[shard], reason, now)
	}
}

// advanceShards does what is due for every shard and returns when to look again.
func (l *managerLoop) advanceShards(now time.Time) time.Time {
	wakeAt := now.Add(idleSleep)
	sooner := func(t time.Time) {
		if t.Before(wakeAt) {
			wakeAt = t
		}
	}
	if !l.withdrawnAt.IsZero() {
		if now.Before(l.withdrawnAt) {
			sooner(l.withdrawnAt)
		} else {
			l.withdrawn, l.withdrawnAt = l.withdrawnNext, time.Time{}
			l.assignOwners(now)
		}
	}
	if next := l.expireStatuses(now); !next.IsZero() {
		sooner(next)
	}
	settled := l.ownersChangedAt.Add(l.o.HandoverDelay)
	refreshDue := false
	for _, s := range l.shards {
		if lock := l.m.validLocks[s.shard].Load(); lock != nil {
			if now.Before(lock.ValidUntil) {
				sooner(lock.ValidUntil)
			} else {
				l.invalidateLock(s, LossExpired)
			}
		}
		if l.isMisplaced(s, now) {
			if now.Before(settled) {
				sooner(settled)
			} else {
				l.startDrop(s, LossHandover, now)
			}
		}
		if now.Before(s.substituteUntil) {
			sooner(s.substituteUntil)
		}
		what, at := s.nextCall(l.wantsShard(s, now))
		if what == noCall {
			continue
		}
		switch {
		case now.Before(at):
			sooner(at)
		case what == refreshCall:
			refreshDue = true
		default:
			l.startCall(s, what, now)
		}
	}
	if refreshDue {
		l.refreshLocks(now)
	}
	return wakeAt
}

// refreshLocks renews the locks whose time has come, and with them those that are past half of their period, so
// that soon all of them are renewed together.
func (l *managerLoop) refreshLocks(now time.Time) {
	var batch []call
	for _, s := range l.shards {
		what, at := s.nextCall(l.wantsShard(s, now))
		if what != refreshCall || now.Before(at) && (s.failing || now.Sub(s.start) < l.o.refreshEvery()/2) {
			continue
		}
		s.busy, s.start = true, now
		batch = append(batch, call{kind: refreshCall, shard: s.shard, lock: s.lock})
	}
	l.urgent <- batch
}

func (l *managerLoop) wantsShard(s *shardState, now time.Time) bool {
	return (s.owner == l.o.Node || now.Before(s.substituteUntil)) && !l.draining
}

// isMisplaced is true for a lock of a shard that the ring gives to another live member. If the ring names none,
// or this node substitutes for that member, the lock is kept.
func (l *managerLoop) isMisplaced(s *shardState, now time.Time) bool {
	return s.lock != nil && s.dropReason == "" && s.owner != "" && s.owner != l.o.Node &&
		!now.Before(s.substituteUntil)
}

// isAlone is true if no other node is known to compete.
func (l *managerLoop) isAlone() bool {
	return len(l.members) == 0 || len(l.members) == 1 && l.members[l.o.Node]
}

func (l *managerLoop) startCall(s *shardState, what callKind, now time.Time) {
	c := call{kind: what, shard: s.shard, replaceValue: s.replaceValue, holderEnded: s.holderEnded,
		maxPTTL: s.maxPTTL, lock: s.lock}
	if s.lock == nil {
		if s.token == "" {
			s.token = newToken()
		}
		c.token = s.token
	}
	s.busy = true
	if what == releaseCall {
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
