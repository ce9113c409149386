package lease

import (
	"math"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Window is how long a caller may rely on a lock or lease that it acquired or renewed. It counts
// from the moment the call was *started*: the answer may have taken any time, but the right cannot
// have begun earlier.
//
// At the end of the window the caller stops acting on the right, whatever answers it has received
// since. The zero Window has ended.
type Window struct {
	start  time.Time
	ttl    time.Duration
	margin time.Duration
}

// NewWindow returns the window of a right for ttl, acquired by a call that started at
// callStarted (with its monotonic reading). It ends margin before the right does.
func NewWindow(callStarted time.Time, ttl, margin time.Duration) Window {
	return Window{start: callStarted, ttl: max(ttl, 0), margin: max(margin, 0)}
}

// Remaining returns how much longer the right may be relied on; never negative, and
// never more than ttl - margin.
func (w Window) Remaining(now time.Time) time.Duration {
	elapsed := max(now.Sub(w.start), 0)
	return max(w.ttl-w.margin-min(elapsed, w.ttl), 0)
}

// Valid reports whether the right may still be relied on.
func (w Window) Valid(now time.Time) bool { return w.Remaining(now) > 0 }

// Deadline returns when a lease ends that was granted or renewed at nowMS for ttl:
//
//	min(nowMS + ttl, hardStopMS)
//
// hardStopMS is the end of the attempt's timeout and grace, past which no
// renewal reaches; 0 is none. Parts of a millisecond are dropped.
func Deadline(nowMS unixtime.Milli, ttl time.Duration, hardStopMS unixtime.Milli) unixtime.Milli {
	end := addSaturating(nowMS, max(ttl, 0).Milliseconds())
	if hardStopMS > 0 {
		return min(end, hardStopMS)
	}
	return end
}

// addSaturating saturates. b is not negative.
func addSaturating[T ~int64](a T, b int64) T {
	if int64(a) > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + T(b)
}
