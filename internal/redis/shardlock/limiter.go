package shardlock

import "time"

// takeoverLimiter spaces takeovers so that no more than a fixed number fall into any one second. It remembers
// when the last ones were allowed.
type takeoverLimiter struct {
	at   []time.Time
	next int
}

func newTakeoverLimiter(perSecond int) *takeoverLimiter {
	return &takeoverLimiter{at: make([]time.Time, max(perSecond, 1))}
}

// reserveNext returns the earliest instant, not before now, at which one more is allowed, and counts it as used.
func (l *takeoverLimiter) reserveNext(now time.Time) time.Time {
	t := l.at[l.next].Add(time.Second)
	if t.Before(now) {
		t = now
	}
	l.at[l.next] = t
	l.next = (l.next + 1) % len(l.at)
	return t
}
