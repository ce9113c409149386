package shardlock

import (
	"errors"
	"time"

	"github.com/bsm/redislock"
)

// applyOutcome applies the outcome of a call.
func (l *managerLoop) applyOutcome(out callOutcome, now time.Time) {
	s := l.shards[out.shard]
	s.busy = false
	if out.kind == refreshCall {
		l.m.metrics.refresh.Observe(out.elapsed.Seconds())
	} else if out.kind == obtainCall || out.kind == seizeCall {
		l.m.metrics.obtaining.Observe(out.elapsed.Seconds())
	}
	lost := errors.Is(out.err, redislock.ErrNotObtained)
	l.logFailureSeries(s, out, out.err != nil && !lost)
	if out.err == nil || lost {
		l.m.noteAnswer(now)
	}

	switch {
	case lost:
		l.applyLost(s, now)
	case out.err != nil:
		l.applyFailed(s, out, now)
	case out.kind == obtainCall || out.kind == seizeCall:
		l.applyObtained(s, out, now)
	case out.kind == refreshCall:
		l.publishHeldLock(s, out.start, now)
	case out.kind == releaseCall:
		l.applyReleased(s, now)
	default: // discard
		s.token, s.nextAt = "", now
		l.settleDrop(s, false)
	}
}

// applyObtained applies a definite answer to an obtain.
func (l *managerLoop) applyObtained(s *shardState, out callOutcome, now time.Time) {
	s.token, s.replaceValue = "", ""
	if out.obtained == nil {
		l.settleDrop(s, false)
		l.planNextAttempt(s, out, now)
		return
	}
	s.lock, s.lostAt = out.obtained, time.Time{}
	if out.kind == seizeCall {
		l.m.metrics.broken.Inc()
		l.o.Logger.Warn("shard taken over from dead node", "shard", s.shard, "holder", holderName(out.replaceValue))
	} else if s.owner != l.o.Node && now.Before(s.substituteUntil) {
		l.m.metrics.abandoned.Inc()
		l.o.Logger.Warn("shard taken over from live node that does not hold it", "shard", s.shard, "owner", s.owner)
	} else {
		l.m.metrics.free.Inc()
	}
	l.publishHeldLock(s, out.start, now)
}

// publishHeldLock publishes a lock that was confirmed by a call begun at start. If the answer took too long, the
// lock is doubtful and refreshed at once.
func (l *managerLoop) publishHeldLock(s *shardState, start, now time.Time) {
	s.start, s.nextAt = start, now
	until := start.Add(l.o.TTL - l.o.Margin)
	if s.dropReason != "" || !now.Before(until) {
		return
	}
	every := l.o.refreshEvery()
	s.nextAt = start.Add(every - jitter(every/10))
	before := l.m.validLocks[s.shard].Swap(&ValidLock{Shard: s.shard, Value: s.lockValue(), ValidUntil: until})
	if before == nil {
		l.m.metrics.held.Inc()
		l.o.Logger.Debug("shard acquired", "shard", s.shard)
		l.o.OnAcquire(s.shard, s.lockValue())
	}
}

// planNextAttempt plans the next attempt at a lock that another process holds.
func (l *managerLoop) planNextAttempt(s *shardState, out callOutcome, now time.Time) {
	cooled := s.lostAt.Add(l.o.TTL)
	patience := jitter(l.o.pollEvery)
	switch {
	case s.woken || out.holderValue == "":
		s.nextAt = now.Add(jitter(10 * time.Millisecond))
	case !s.lostAt.IsZero() && now.Before(cooled) && !l.isAlone():
		s.nextAt = cooled
	case l.holderIsAlive(out.holderValue):
		s.nextAt, s.substituteUntil = now.Add(patience), time.Time{}
	case l.holderHasEnded(out.holderValue) && out.heartbeat.known:
		if wait, _ := out.heartbeat.untilSilent(); wait > 0 {
			s.nextAt = now.Add(min(patience, wait+time.Millisecond))
			break
		}
		// A lock that is refreshed after this look is not replaced.
		s.replaceValue, s.holderEnded, s.maxPTTL = out.holderValue, true, out.pttl+time.Millisecond
		s.nextAt = l.deadHolderLimiter.reserveNext(now)
	case out.pttl >= l.o.breakBelowPTTL():
		s.nextAt = now.Add(min(patience, out.pttl-l.o.breakBelowPTTL()+time.Millisecond))
	default:
		s.replaceValue, s.holderEnded, s.maxPTTL = out.holderValue, false, l.o.breakBelowPTTL()
		s.nextAt = l.lostHolderLimiter.reserveNext(now)
	}
	s.woken = false
}

// holderIsAlive is true if gossip knows the holder, and does not name another process of it. A lock in this
// node's own name that it does not hold is orphaned, most likely by its previous process.
func (l *managerLoop) holderIsAlive(value string) bool {
	h := parseHolder(value)
	return h.node != l.o.Node && l.members[h.node] && !l.isReplacedProcess(h)
}

// isReplacedProcess is true if the holder's node runs another process now: one that gossip names, and that has had a
// heartbeat in this keyspace. Gossip alone proves nothing.
func (l *managerLoop) isReplacedProcess(h lockHolder) bool {
	now, seen := l.currentProcess[h.node], l.m.seen.Load()
	return now != "" && h.process != "" && now != h.process && seen != nil && (*seen)[h.node] == now
}

func holderName(value string) string {
	return parseHolder(value).node
}

// applyLost handles a refresh that found another value, or none.
func (l *managerLoop) applyLost(s *shardState, now time.Time) {
	l.invalidateLock(s, LossTaken)
	s.lock, s.nextAt, s.lostAt = nil, now, now
	l.settleDrop(s, false)
}

// applyFailed handles a call whose effect is unknown: it is repeated.
func (l *managerLoop) applyFailed(s *shardState, out callOutcome, now time.Time) {
	s.nextAt = now.Add(jitter(l.o.retryAfter()))
	switch {
	case out.kind == releaseCall && now.After(s.start.Add(l.o.TTL)):
		l.applyReleased(s, now) // it has expired by itself
	case out.kind == discardCall && out.obtained != nil:
		s.lock, s.token, s.start = out.obtained, "", out.start
		if s.dropReason == "" {
			s.dropReason = LossReleased
		}
	}
}

// applyReleased handles a lock that was given up and is now gone from Redis.
func (l *managerLoop) applyReleased(s *shardState, now time.Time) {
	s.lock, s.nextAt = nil, now
	if s.dropReason == LossReleased && !l.isAlone() {
		s.nextAt = now.Add(l.o.TTL)
	}
	l.settleDrop(s, true)
	owner := s.owner
	if owner == l.o.Node {
		owner = ""
	}
	l.o.OnRelease(s.shard, owner)
}

// invalidateLock ends the reliance on the lock, if the shard is held.
func (l *managerLoop) invalidateLock(s *shardState, reason string) {
	if l.m.validLocks[s.shard].Swap(nil) == nil {
		return
	}
	l.m.metrics.held.Dec()
	l.m.metrics.losses.WithLabelValues(reason).Inc()
	if reason == LossExpired || reason == LossTaken {
		l.o.Logger.Warn("shard lost", "shard", s.shard, "reason", reason)
	} else {
		l.o.Logger.Debug("releasing shard", "shard", s.shard, "reason", reason)
	}
	l.o.OnLose(s.shard, reason)
}

// logFailureSeries logs the first failure of a series and its end, so that a stalled Redis does not cause one
// line a shard and retry.
func (l *managerLoop) logFailureSeries(s *shardState, out callOutcome, failed bool) {
	if failed == s.failing {
		return
	}
	s.failing = failed
	if failed {
		l.failingSlots++
		if l.failingSlots == 1 {
			l.o.Logger.Warn("shard lock calls failing", "shard", s.shard, "error", out.err)
		}
		return
	}
	l.failingSlots--
	if l.failingSlots == 0 {
		l.o.Logger.Info("shard lock calls succeed again")
	}
}
