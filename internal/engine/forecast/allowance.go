package forecast

import (
	"sync"
	"time"
)

// allowance is time that may be spent: it grows with a share of the time that passes. It may become negative: then
// there is a debt to wait for.
type allowance struct {
	limit time.Duration

	mu    sync.Mutex
	share float64
	left  time.Duration
	since time.Time
}

func newAllowance(share float64, limit time.Duration, now time.Time) *allowance {
	return &allowance{share: share, limit: limit, left: limit, since: now}
}

// grow adds what has come up to now.
func (a *allowance) grow(now time.Time) {
	passed := max(0, now.Sub(a.since))
	a.left = min(a.limit, a.left+time.Duration(float64(passed)*a.share))
	a.since = now
}

// setShare changes the share from now on.
func (a *allowance) setShare(share float64, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.grow(now)
	a.share = share
}

// suffices reports whether work of a duration can be paid.
func (a *allowance) suffices(work time.Duration, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.grow(now)
	return a.left > 0 && a.left >= min(work, a.limit)
}

// spend pays for work that was done, and returns how long to wait before the next.
func (a *allowance) spend(work time.Duration, now time.Time) (wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.grow(now)
	a.left -= work
	if a.left >= 0 {
		return 0
	}
	return time.Duration(float64(-a.left) / a.share)
}
