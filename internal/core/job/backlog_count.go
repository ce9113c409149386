package job

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const (
	// longBacklog is the number of counted times from which on the count is remembered.
	longBacklog = 100
	// maxForgotten bounds the times by which a remembered count is cut at its early end. One that needs more cuts is not
	// used.
	maxForgotten = 100
)

// countedBacklog are n nominal times in a row, both ends included. A walk from the last back to the first passes over
// so many excluded times.
type countedBacklog struct {
	first, last unixtime.Milli
	n           int64
	passed      int
}

// nthLatestNominal returns the n-th nominal time counted backwards from an instant, but not
// before floor, which is one. The count may pass over as many excluded times as one search; what lies
// before that is not caught up with.
//
// Each run of a backlog asks again. One that is within its limit, as it is from the second run on, is
// not counted time by time, and of another one only the times that have come since the last count are. That
// changes no result.
func (c *Compiled) nthLatestNominal(upTo unixtime.Milli, n int64, floor unixtime.Milli) unixtime.Milli {
	if int64(upTo-floor)/c.minNominalGap()+1 < n {
		return floor
	}
	b := schedule.NewBudget(1)
	bounded, counted := c.Within(b), countedBacklog{first: upTo + 1}
	beforeLast := 0 // passed over until the last time was found
	for counted.n < n && counted.first > floor {
		prev, ok := bounded.nominalUpTo(counted.first - 1)
		if !ok && b.Exhausted() && counted.n > 0 {
			break
		}
		if !ok || prev < floor {
			return floor
		}
		counted.first = prev
		counted.n++
		if counted.n == 1 {
			counted.last, beforeLast = prev, b.Used(1)
		}
		if c.backlog != nil && prev == c.backlog.last {
			if rest, ok := c.cutBacklog(*c.backlog, floor, n-counted.n+1, b); ok {
				b.Charge(rest.passed)
				counted.first = rest.first
				counted.n += rest.n - 1
			}
		}
		counted.passed = b.Used(1) - beforeLast
	}
	if c.backlog != nil && counted.n >= longBacklog {
		*c.backlog = counted
	}
	return counted.first
}

// cutBacklog returns the late part of a counted backlog that does not reach beyond floor, has n times at most, and can
// be walked within what is left of a budget. It is false if that takes as long as a new count.
func (c *Compiled) cutBacklog(k countedBacklog, floor unixtime.Milli, n int64,
	b *schedule.Budget) (countedBacklog, bool) {
	for range maxForgotten {
		if k.first >= floor && k.n <= n && b.Covers(k.passed) {
			return k, true
		}
		next, ok := c.nominalAfter(k.first)
		if !ok || next > k.last {
			return k, false
		}
		back := schedule.NewBudget(1)
		first, ok := c.Within(back).nominalUpTo(next - 1)
		if !ok || first != k.first {
			return k, false
		}
		k.first, k.n, k.passed = next, k.n-1, k.passed-back.Used(1)
	}
	return k, false
}

// minNominalGap returns what lies between two nominal times at least, in milliseconds.
func (c *Compiled) minNominalGap() int64 {
	switch {
	case c.schedule.Kind() == schedule.KindInterval:
		return max(1, c.schedule.Period(time.Time{}).Milliseconds())
	case c.Schedule.Seconds:
		return time.Second.Milliseconds()
	}
	return time.Minute.Milliseconds()
}
