package shardlock

import "time"

// limiter spaces takeovers so that no more than a fixed number fall into any
// one second. It remembers when the last ones were allowed.
type limiter struct {
	at   []time.Time
	next int
}

func newLimiter(perSecond int) *limiter {
	return &limiter{at: make([]time.Time, max(perSecond, 1))}
}

// reserve returns the earliest instant, not before now, at which one more is
// allowed, and counts it as used.
func (l *limiter) reserve(now time.Time) time.Time {
	t := l.at[l.next].Add(time.Second)
	if t.Before(now) {
		t = now
	}
	l.at[l.next] = t
	l.next = (l.next + 1) % len(l.at)
	return t
}
