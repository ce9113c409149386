package lease

import "errors"

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
// While TIME is behind, an anchor remembers where the two clocks stood when that
// was noticed; from there the shard clock goes on at half of TIME's rate, so that
// nothing freezes and TIME catches up.
type Clock struct {
	// MS is the last instant handed out.
	MS int64
	// AnchorReal is TIME, and AnchorClock the shard clock, at the anchor. Both
	// are 0 without an anchor; AnchorClock never is 0 with one.
	AnchorReal, AnchorClock int64
}

// Behind tells whether TIME was behind the shard clock at the last call.
func (c Clock) Behind() bool { return c.AnchorClock != 0 }

// Advance moves the clock on. The instant handed out is MS of the result.
//
// realMS is TIME in milliseconds, at least 0. expectMS is the instant that the
// caller last got plus the time passed since on its monotonic clock; 0 when it
// got none. accept takes a jump that was confirmed, by an operator or by callers
// that agreed for long enough.
//
// The rule, for a script to mirror line by line. C is the clock, slow an
// integer, floor rounds down:
//
//	1  if expectMS > 0 and not accept and realMS > expectMS + 60000:
//	       answer ErrClockJump, change nothing
//	2  anchored = AnchorClock ~= 0 and realMS >= AnchorReal
//	   slow = MS
//	   if anchored: slow = AnchorClock + floor((realMS - AnchorReal) / 2)
//	   leapt = expectMS > 0 and slow > expectMS
//	   if leapt: slow = max(MS, expectMS)
//	3  if realMS >= slow and realMS >= MS:      TIME has caught up, or leads
//	       MS = realMS, AnchorReal = 0, AnchorClock = 0
//	4  else if not anchored or leapt or slow < MS: TIME has fallen behind (again), or was set forward
//	       MS = max(MS, slow), AnchorReal = realMS, AnchorClock = MS
//	5  else:                                    TIME is behind, and both go on
//	       MS = slow
//
// A TIME that was stepped back and is put right leaps, without having passed. Half of
// that leap would take the clock ahead of both; so it goes no faster than the clock
// of a caller who knows it.
//
// slow < MS in line 4 means that TIME was stepped back again, though not as far
// as the anchor. Without a new anchor the clock would stand still until TIME had
// made up for that step.
func (c Clock) Advance(realMS, expectMS int64, accept bool) (Clock, error) {
	realMS = max(realMS, 0)
	if expectMS > 0 && !accept && realMS > add(expectMS, JumpLimitMS) {
		return c, ErrClockJump
	}
	anchored := c.AnchorClock != 0 && realMS >= c.AnchorReal
	slow := c.MS
	if anchored {
		slow = add(c.AnchorClock, (realMS-c.AnchorReal)/2)
	}
	leapt := expectMS > 0 && slow > expectMS
	if leapt {
		slow = max(c.MS, expectMS)
	}
	switch {
	case realMS >= slow && realMS >= c.MS:
		return Clock{MS: realMS}, nil
	case !anchored || leapt || slow < c.MS:
		now := max(c.MS, slow)
		return Clock{MS: now, AnchorReal: realMS, AnchorClock: now}, nil
	default:
		return Clock{MS: slow, AnchorReal: c.AnchorReal, AnchorClock: c.AnchorClock}, nil
	}
}
