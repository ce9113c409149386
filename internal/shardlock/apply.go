package shardlock

import (
	"errors"
	"time"

	"github.com/bsm/redislock"
)

// apply takes over what a call has brought.
func (l *loop) apply(out outcome, now time.Time) {
	s := l.slots[out.shard]
	s.busy = false
	if out.kind == refresh {
		l.m.metrics.refresh.Observe(out.elapsed.Seconds())
	} else if out.kind == obtain || out.kind == seize {
		l.m.metrics.obtaining.Observe(out.elapsed.Seconds())
	}
	lost := errors.Is(out.err, redislock.ErrNotObtained)
	l.report(s, out, out.err != nil && !lost)

	switch {
	case lost:
		l.lost(s, now)
	case out.err != nil:
		l.failed(s, out, now)
	case out.kind == obtain || out.kind == seize:
		l.attempted(s, out, now)
	case out.kind == refresh:
		l.grant(s, out.start, now)
	case out.kind == release:
		l.released(s, now)
	default: // discard
		s.token, s.next = "", now
		l.endDrop(s, false)
	}
}

// attempted is for an obtain with a definite answer.
func (l *loop) attempted(s *slot, out outcome, now time.Time) {
	s.token, s.expect = "", ""
	if out.got == nil {
		l.endDrop(s, false)
		l.refused(s, out, now)
		return
	}
	s.lock, s.lostAt = out.got, time.Time{}
	if out.kind == seize {
		l.m.metrics.broken.Inc()
		l.o.Logger.Warn("took over the lock of a dead node", "shard", s.shard, "holder", holderName(out.expect))
	} else {
		l.m.metrics.free.Inc()
	}
	l.grant(s, out.start, now)
}

// grant publishes a lock that was confirmed by a call begun at start. An answer
// that took too long leaves the lock in doubt, to be refreshed at once.
func (l *loop) grant(s *slot, start, now time.Time) {
	s.start, s.next = start, now
	until := start.Add(l.o.TTL - l.o.Margin)
	if s.drop != "" || !now.Before(until) {
		return
	}
	every := l.o.refreshEvery()
	s.next = start.Add(every - jitter(every/10))
	before := l.m.grips[s.shard].Swap(&Grip{Shard: s.shard, Value: s.value(), ValidUntil: until})
	if before == nil {
		l.m.metrics.held.Inc()
		l.o.Logger.Debug("shard acquired", "shard", s.shard)
		l.o.OnAcquire(s.shard, s.value())
	}
}

// refused plans the next attempt at a lock that somebody else holds.
func (l *loop) refused(s *slot, out outcome, now time.Time) {
	cooled := s.lostAt.Add(l.o.TTL)
	patience := jitter(pollEvery)
	switch {
	case s.woken || out.seen == "":
		s.next = now.Add(jitter(10 * time.Millisecond))
	case !s.lostAt.IsZero() && now.Before(cooled) && !l.alone():
		s.next = cooled
	case l.lives(out.seen):
		s.next = now.Add(patience)
	case l.proven(out.seen) && out.life.known:
		if wait, _ := out.life.wait(); wait > 0 {
			s.next = now.Add(min(patience, wait+time.Millisecond))
			break
		}
		// What has been refreshed since this look is not replaced.
		s.expect, s.proven, s.below = out.seen, true, out.pttl+time.Millisecond
		s.next = l.burials.reserve(now)
	case out.pttl >= l.o.breakBelow():
		s.next = now.Add(min(patience, out.pttl-l.o.breakBelow()+time.Millisecond))
	default:
		s.expect, s.proven, s.below = out.seen, false, l.o.breakBelow()
		s.next = l.breaks.reserve(now)
	}
	s.woken = false
}

// lives is true if gossip knows the holder, and does not name another process of
// it. A lock in this node's own name that it does not have is an orphan, most likely
// of the process before this one.
func (l *loop) lives(value string) bool {
	h := parse(value)
	return h.node != l.o.Node && l.members[h.node] && !l.former(h)
}

// former is true of a process in whose place its node has another one.
func (l *loop) former(h holder) bool {
	now := l.process[h.node]
	return now != "" && h.process != "" && now != h.process
}

func holderName(value string) string {
	return parse(value).node
}

// lost is for a refresh that found another value, or none.
func (l *loop) lost(s *slot, now time.Time) {
	l.lose(s, LossTaken)
	s.lock, s.next, s.lostAt = nil, now, now
	l.endDrop(s, false)
}

// failed is for a call whose effect is unknown: it is repeated.
func (l *loop) failed(s *slot, out outcome, now time.Time) {
	s.next = now.Add(jitter(l.o.retryAfter()))
	switch {
	case out.kind == release && now.After(s.start.Add(l.o.TTL)):
		l.released(s, now) // it has expired by itself
	case out.kind == discard && out.got != nil:
		s.lock, s.token, s.start = out.got, "", out.start
		if s.drop == "" {
			s.drop = LossReleased
		}
	}
}

// released is for a lock that we gave up and that is now gone from Redis.
func (l *loop) released(s *slot, now time.Time) {
	s.lock, s.next = nil, now
	if s.drop == LossReleased && !l.alone() {
		s.next = now.Add(l.o.TTL)
	}
	l.endDrop(s, true)
	owner := s.owner
	if owner == l.o.Node {
		owner = ""
	}
	l.o.OnRelease(s.shard, owner)
}

// lose withdraws the grip, if there is one.
func (l *loop) lose(s *slot, reason string) {
	if l.m.grips[s.shard].Swap(nil) == nil {
		return
	}
	l.m.metrics.held.Dec()
	l.m.metrics.losses.WithLabelValues(reason).Inc()
	if reason == LossExpired || reason == LossTaken {
		l.o.Logger.Warn("shard lost", "shard", s.shard, "reason", reason)
	} else {
		l.o.Logger.Debug("shard given up", "shard", s.shard, "reason", reason)
	}
	l.o.OnLose(s.shard, reason)
}

// report logs the first failure of a series and the end of the last one: a
// stalled Redis must not fill the log with one line a shard and retry.
func (l *loop) report(s *slot, out outcome, failed bool) {
	if failed == s.failing {
		return
	}
	s.failing = failed
	if failed {
		if l.failing++; l.failing == 1 {
			l.o.Logger.Warn("calls on shard locks fail", "shard", s.shard, "error", out.err)
		}
		return
	}
	if l.failing--; l.failing == 0 {
		l.o.Logger.Info("calls on shard locks succeed again")
	}
}
