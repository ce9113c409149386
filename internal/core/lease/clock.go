package lease

import (
	"errors"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// JumpLimitMS is how far TIME may be ahead of what the caller's monotonic clock
// allows before it is refused.
const JumpLimitMS = 60_000

// ErrClockJump is returned when Redis's TIME is further ahead than the caller's
// monotonic clock allows. Nothing changes, so that a clock which is wrong for a
// second cannot fire all that is due within the next hour.
var ErrClockJump = errors.New("lease: Redis TIME is far ahead of the caller's monotonic clock")

// Clock is the stored state of a shard's clock. The zero value has handed out
// nothing yet.
//
// It is TIME, until that steps back. An anchor then remembers where the two clocks
// stood. While TIME is behind, the shard clock goes on from there at half of TIME's
// rate, so that nothing freezes and TIME catches up. When TIME is ahead, as it was put
// right meanwhile, the shard clock catches up at twice TIME's rate.
type Clock struct {
	// MS is the last instant handed out.
	MS unixtime.Milli
	// AnchorReal is TIME, and AnchorClock the shard clock, at the anchor. Both
	// are 0 without an anchor; AnchorClock never is 0 with one. It is less than
	// AnchorReal where the clock catches up, and not less where TIME does.
	AnchorReal, AnchorClock unixtime.Milli
}

// Behind reports whether the shard clock and TIME were apart at the last call.
func (c Clock) Behind() bool { return c.AnchorClock != 0 }

// catchesUp reports whether TIME is ahead.
func (c Clock) catchesUp() bool { return c.AnchorClock < c.AnchorReal }

// LagMS returns how far the clock may still run ahead of passing time, by a TIME that it was advanced
// by: what it has lost since TIME stepped back, should TIME be put right, or what it still has
// to catch up.
func (c Clock) LagMS(realMS unixtime.Milli) int64 {
	switch {
	case !c.Behind():
		return 0
	case c.catchesUp():
		return max(0, int64(realMS-c.MS))
	}
	return max(c.lagMS(), max(0, int64(realMS-c.AnchorReal))-max(0, int64(c.MS-c.AnchorClock)))
}

// lagMS returns the same for the TIME of the last call that moved the clock.
func (c Clock) lagMS() int64 {
	switch {
	case !c.Behind():
		return 0
	case c.catchesUp():
		return max(0, int64(addSaturating(c.AnchorReal, max(0, int64(c.MS-c.AnchorClock)+1)/2)-c.MS))
	}
	return addSaturating(max(0, int64(c.MS-c.AnchorClock)), 1) // half a millisecond may be lost already
}

// LeapMS is how far the clock may leap, beside going at twice the rate of passing time, when
// TIME is put right in part: half as far as it would have gone at the rate of passing time since the
// first caller that notices saw it last, which nearly always is less than this ago.
const LeapMS = 2000

// slackMS bounds what rounding may add to a lag when anchors are replaced repeatedly.
const slackMS = 20

// MaxAdvance returns how far the clock advances at most while that much time passes. A deadline that must not come
// early is the clock plus Span. The clock runs at twice the rate of passing time at most, except for a leap, and that
// only until it has made up for its lag.
func MaxAdvance(ms, lagMS int64) int64 {
	if lagMS <= 0 {
		return ms
	}
	return addSaturating(ms, min(addSaturating(max(ms, 0), LeapMS), addSaturating(lagMS, min(lagMS, slackMS))))
}

// ClockBound is the greatest instant that a shard clock may show now, as far as its reader knows.
type ClockBound struct {
	MS unixtime.Milli
	// LagMS is how far the clock may run ahead of passing time from then on.
	LagMS int64
}

// After returns an instant that the clock does not show before so many milliseconds have
// passed from now.
func (l ClockBound) After(ms int64) unixtime.Milli {
	return addSaturating(l.MS, MaxAdvance(ms, l.LagMS))
}

// Expectation bounds what the clock should show: the answer that a caller got last, and the time that
// has passed since by its monotonic clock.
type Expectation struct {
	// LeastMS is the lower bound, 0 without one. A TIME below it was stepped back since
	// that answer. It is at most MostMS.
	LeastMS unixtime.Milli
	// MostMS is the upper bound. It is negative when the caller got no answer yet, and 0 when it has
	// no monotonic clock: then TIME is taken for right whenever it is not behind.
	MostMS unixtime.Milli
}

// Advance moves the clock on. The instant handed out is MS of the result.
//
// realMS is TIME in milliseconds, at least 0. accept takes a jump that was confirmed, by an operator
// or by callers that agreed for long enough.
//
// The rule, for a script to mirror line by line. expectMS and leastMS are the bounds of expect.
// Divisions round down, "anchor" is AnchorClock ~= 0,
// and lag is 0 without one, max(0, AnchorReal + (MS - AnchorClock + 1) / 2 - MS) if AnchorClock <
// AnchorReal, else MS - AnchorClock + 1:
//
//	1  jump = expectMS > 0 and realMS > expectMS + lag + 60000
//	   if jump and not accept: answer ErrClockJump, change nothing
//	   if realMS >= MS, and jump, or no anchor and realMS >= leastMS: MS = realMS, no anchor
//	2  else if anchor and AnchorClock < AnchorReal:             the clock catches up
//	       if realMS < MS: line 4 with to = MS
//	       fast = AnchorClock + 2 * max(0, realMS - AnchorReal)
//	       to = max(MS, fast), line 5
//	3  else:                                                    TIME is behind, or was
//	       slow = max(MS, leastMS); if anchor and realMS >= AnchorReal: slow = AnchorClock + (realMS - AnchorReal) / 2
//	       if realMS >= MS, and realMS >= slow, or anchor and expectMS ~= 0:
//	           to = max(MS, realMS - lag), expectMS at most if that is > 0; line 5
//	       to = limit(slow)
//	       if the line of the anchor leads to it (to = slow): MS = to
//	       else line 4
//	4  if expectMS < 0: change nothing
//	   lag = 0, or if expectMS > 0 min(lag + max(to, expectMS) - to, realMS / 2)
//	   MS = to, AnchorReal = realMS - 2 * lag, AnchorClock = to - lag
//	5  if expectMS = 0 or to >= realMS: MS = realMS, no anchor
//	   else if the line of the anchor leads to it: MS = to
//	   else MS = to, AnchorReal = realMS, AnchorClock = to
//
// limit(x) is at least MS, and at most expectMS if that is > 0; MS if expectMS < 0. A TIME
// that is stepped leaps without having passed. A caller that knows the clock can tell that
// from time that passed; one that does not leaves the clock where it is. When TIME is ahead by
// more than the clock has lost, so much has passed.
//
// A shard that nobody has called since TIME stepped back has no anchor yet, and TIME may have passed its
// clock again meanwhile. leastMS shows the step all the same, and how far the clock may go at once.
//
// The lag stays when an anchor is replaced while TIME is behind, and what has passed since the
// last call is lost as well: the new anchor lies on the line of half the rate, as far back as
// the clock has lost (line 4).
func (c Clock) Advance(realMS unixtime.Milli, expect Expectation, accept bool) (Clock, error) {
	realMS = max(realMS, 0)
	expectMS := expect.MostMS
	jump := expectMS > 0 && realMS > addSaturating(addSaturating(expectMS, c.lagMS()), JumpLimitMS)
	switch {
	case jump && !accept:
		return c, ErrClockJump
	case realMS >= c.MS && (jump || !c.Behind() && realMS >= expect.LeastMS):
		return Clock{MS: realMS}, nil
	case c.Behind() && c.catchesUp():
		return c.catchUp(realMS, expectMS), nil
	}
	return c.waitForTime(realMS, expect), nil
}

// waitForTime goes on at half of TIME's rate, until TIME has caught up or is put right.
func (c Clock) waitForTime(realMS unixtime.Milli, expect Expectation) Clock {
	expectMS := expect.MostMS
	slow, anchored := max(c.MS, expect.LeastMS), c.Behind() && realMS >= c.AnchorReal
	if anchored {
		slow = addSaturating(c.AnchorClock, int64(realMS-c.AnchorReal)/2)
	}
	if realMS >= c.MS && (realMS >= slow || c.Behind() && expectMS != 0) {
		to := max(c.MS, realMS-unixtime.Milli(c.lagMS()))
		if expectMS > 0 {
			to = max(c.MS, min(to, expectMS))
		}
		return c.followAnchor(realMS, to, expectMS, false)
	}
	to := c.limitTo(slow, expectMS)
	if anchored && to == slow {
		return Clock{MS: to, AnchorReal: c.AnchorReal, AnchorClock: c.AnchorClock}
	}
	return c.anchorBehind(realMS, to, expectMS)
}

// catchUp goes on at twice TIME's rate, until the clock has caught up.
func (c Clock) catchUp(realMS, expectMS unixtime.Milli) Clock {
	if realMS < c.MS {
		return c.anchorBehind(realMS, c.MS, expectMS)
	}
	passed := max(0, int64(realMS-c.AnchorReal))
	fast := addSaturating(c.AnchorClock, addSaturating(passed, passed))
	to := max(c.MS, fast)
	return c.followAnchor(realMS, to, expectMS, to == fast)
}

// limitTo returns how far a caller with this expectation takes the clock.
func (c Clock) limitTo(to, expectMS unixtime.Milli) unixtime.Milli {
	switch {
	case expectMS < 0:
		return c.MS
	case expectMS > 0:
		to = min(to, expectMS)
	}
	return max(to, c.MS)
}

// followAnchor goes on behind TIME, on the line of the anchor if that leads there.
func (c Clock) followAnchor(realMS, to, expectMS unixtime.Milli, kept bool) Clock {
	switch {
	case expectMS == 0 || to >= realMS:
		return Clock{MS: realMS}
	case kept:
		return Clock{MS: to, AnchorReal: c.AnchorReal, AnchorClock: c.AnchorClock}
	}
	return Clock{MS: to, AnchorReal: realMS, AnchorClock: to}
}

// anchorBehind continues from a new anchor while TIME is behind. A caller that does not know the clock cannot
// compute what is lost, and leaves that to the next one; without a clock nothing is ever lost.
func (c Clock) anchorBehind(realMS, to, expectMS unixtime.Milli) Clock {
	if expectMS < 0 {
		return c
	}
	lag := int64(0)
	if expectMS > 0 {
		lag = min(addSaturating(c.lagMS(), int64(max(to, expectMS)-to)), int64(realMS/2))
	}
	return Clock{MS: to, AnchorReal: realMS - unixtime.Milli(2*lag), AnchorClock: to - unixtime.Milli(lag)}
}
