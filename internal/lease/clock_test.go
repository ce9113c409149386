package lease_test

import (
	"errors"
	"math"
	"testing"

	"github.com/fermata-io/fermata/internal/lease"
	"pgregory.net/rapid"
)

// advance is Advance without an expectation.
func advance(t interface{ Fatal(...any) }, c lease.Clock, real int64) lease.Clock {
	next, err := c.Advance(real, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// Each step gives TIME and what the whole state must be afterwards: the vectors
// that a mirror of the rule can be tested against.
func TestClockVectors(t *testing.T) {
	type step struct {
		real int64
		want lease.Clock
	}
	for name, steps := range map[string][]step{
		"follows": {
			{1000, lease.Clock{MS: 1000}}, {1000, lease.Clock{MS: 1000}}, {5000, lease.Clock{MS: 5000}},
		},
		"behind, then caught up": {
			{2000, lease.Clock{MS: 2000}},
			{1000, lease.Clock{MS: 2000, AnchorReal: 1000, AnchorClock: 2000}},
			{1001, lease.Clock{MS: 2000, AnchorReal: 1000, AnchorClock: 2000}},
			{1500, lease.Clock{MS: 2250, AnchorReal: 1000, AnchorClock: 2000}},
			{2500, lease.Clock{MS: 2750, AnchorReal: 1000, AnchorClock: 2000}}, // past the old watermark, still behind
			{2998, lease.Clock{MS: 2999, AnchorReal: 1000, AnchorClock: 2000}},
			{2999, lease.Clock{MS: 2999}},
			{3100, lease.Clock{MS: 3100}},
		},
		"stepped back below the anchor": {
			{2000, lease.Clock{MS: 2000}},
			{1000, lease.Clock{MS: 2000, AnchorReal: 1000, AnchorClock: 2000}},
			{1200, lease.Clock{MS: 2100, AnchorReal: 1000, AnchorClock: 2000}},
			{500, lease.Clock{MS: 2100, AnchorReal: 500, AnchorClock: 2100}},
			{700, lease.Clock{MS: 2200, AnchorReal: 500, AnchorClock: 2100}},
		},
		"stepped back above the anchor": {
			{9000, lease.Clock{MS: 9000}},
			{1000, lease.Clock{MS: 9000, AnchorReal: 1000, AnchorClock: 9000}},
			{5000, lease.Clock{MS: 11000, AnchorReal: 1000, AnchorClock: 9000}},
			{3000, lease.Clock{MS: 11000, AnchorReal: 3000, AnchorClock: 11000}},
			{4000, lease.Clock{MS: 11500, AnchorReal: 3000, AnchorClock: 11000}},
		},
		"ahead in one leap": {
			{2000, lease.Clock{MS: 2000}},
			{1000, lease.Clock{MS: 2000, AnchorReal: 1000, AnchorClock: 2000}},
			{90000, lease.Clock{MS: 90000}},
		},
		"from zero": {
			{0, lease.Clock{}},
			{7, lease.Clock{MS: 7}},
			{0, lease.Clock{MS: 7, AnchorReal: 0, AnchorClock: 7}},
			{4, lease.Clock{MS: 9, AnchorReal: 0, AnchorClock: 7}},
			{-5, lease.Clock{MS: 9, AnchorReal: 0, AnchorClock: 9}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var c lease.Clock
			for i, s := range steps {
				if c = advance(t, c, s.real); c != s.want {
					t.Fatalf("step %d, TIME %d: %+v, want %+v", i, s.real, c, s.want)
				}
				if c.Behind() != (s.want.AnchorClock != 0) {
					t.Fatalf("step %d: Behind is %v", i, c.Behind())
				}
			}
		})
	}
}

func TestClockJump(t *testing.T) {
	behind := lease.Clock{MS: 2000, AnchorReal: 1000, AnchorClock: 2000}
	for _, c := range []struct {
		clock        lease.Clock
		real, expect int64
		accept, jump bool
	}{
		{lease.Clock{MS: 1000}, 61_500, 1500, false, false}, // exactly the limit
		{lease.Clock{MS: 1000}, 61_501, 1500, false, true},
		{lease.Clock{MS: 1000}, 61_501, 1500, true, false},
		{lease.Clock{MS: 1000}, math.MaxInt64, 0, false, false}, // no expectation
		{lease.Clock{MS: 1000}, math.MaxInt64, -1, false, false},
		{lease.Clock{MS: 1000}, math.MaxInt64, math.MaxInt64 - 1, false, false},
		{behind, 62_001, 2000, false, true},
	} {
		got, err := c.clock.Advance(c.real, c.expect, c.accept)
		if errors.Is(err, lease.ErrClockJump) != c.jump {
			t.Errorf("%+v: %v", c, err)
		}
		want := lease.Clock{MS: c.real}
		if c.jump {
			want = c.clock
		}
		if got != want {
			t.Errorf("%+v: %+v, want %+v", c, got, want)
		}
	}
}

// Over any course of TIME with steps both ways the clock never decreases, goes
// on at half of the rate of passing time or faster, and exceeds TIME's maximum by
// no more than half of the time that passed.
func TestClockOverAnyCourse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		real := rapid.Int64Range(1, 4_000_000_000_000).Draw(t, "start")
		c := advance(t, lease.Clock{}, real)
		bound := real // what the clock may show: TIME, or a watermark and half of what passed
		var halves int64
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			passed := rapid.Int64Range(0, 100_000).Draw(t, "passed")
			step := rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(-10_000_000, 10_000_000)).Draw(t, "step")
			before, last := c, real
			real = max(0, real+passed+step)
			c = advance(t, c, real)

			if c.MS < before.MS {
				t.Fatalf("%+v, then %+v", before, c)
			}
			if c.MS < real {
				t.Fatalf("TIME is %d, the clock shows %d", real, c.MS)
			}
			forward := max(0, real-last)
			if real >= last && c.MS-before.MS < (forward-1)/2 {
				t.Fatalf("%d passed, %+v to %+v", forward, before, c)
			}
			halves += forward
			bound = max(bound, real)
			if c.MS > bound+halves/2 {
				t.Fatalf("the clock shows %d, above %d + %d/2", c.MS, bound, halves)
			}
			if c.Behind() != (c.MS > real) {
				t.Fatalf("TIME %d, %+v", real, c)
			}
			if !c.Behind() && (c.AnchorReal != 0 || c.MS != real) {
				t.Fatalf("TIME %d, %+v", real, c)
			}
			if c.MS == real {
				bound, halves = real, 0
			}
		}
	})
}

// A TIME that was stepped back and is put right, at once or in parts, takes the clock
// no further ahead than it was, when its callers know how much time has passed: the
// clock shows what they expect at most, or TIME.
func TestClockPutRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Int64Range(10_000_000, 4_000_000_000_000).Draw(t, "start") // true time
		back := rapid.Int64Range(1, 10_000_000).Draw(t, "back")
		c := advance(t, lease.Clock{}, now)
		off := -back
		for off < 0 {
			passed := rapid.Int64Range(0, 5_000).Draw(t, "passed")
			if rapid.IntRange(0, 4).Draw(t, "put right") == 0 {
				off = min(0, off+rapid.Int64Range(1, back).Draw(t, "by"))
			}
			now += passed
			next, err := c.Advance(now+off, c.MS+passed, true)
			if err != nil {
				t.Fatal(err)
			}
			if next.MS < c.MS || next.MS > max(c.MS+passed, now+off) || next.MS > now {
				t.Fatalf("true time is %d, TIME %d: %+v to %+v after %d", now, now+off, c, next, passed)
			}
			c = next
		}
		if c.MS != now || c.Behind() {
			t.Fatalf("TIME is right, %d: %+v", now, c)
		}
	})
}

// After one step back by b, TIME catches up when 2b have passed, and not a
// moment before; meanwhile the clock shows the watermark plus half of the time
// passed, however often it is asked.
func TestClockCatchesUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mark := rapid.Int64Range(10_000_000, 4_000_000_000_000).Draw(t, "watermark")
		back := rapid.Int64Range(1, 10_000_000).Draw(t, "back")
		c := advance(t, advance(t, lease.Clock{}, mark), mark-back)
		var passed int64
		for passed < 2*back {
			passed += rapid.Int64Range(1, max(1, back)).Draw(t, "passed")
			c = advance(t, c, mark-back+passed)
			if want := max(mark+passed/2, mark-back+passed); c.MS != want {
				t.Fatalf("%d passed since the step of %d: %d, want %d", passed, back, c.MS, want)
			}
			if passed < 2*back-1 && !c.Behind() {
				t.Fatalf("caught up %d early", 2*back-passed)
			}
		}
		if c.Behind() {
			t.Fatalf("still behind after %d: %+v", passed, c)
		}
	})
}

// A refused jump leaves no trace: the next sound call goes on as if it had not
// happened.
func TestClockJumpLeavesNoTrace(t *testing.T) {
	c := advance(t, advance(t, lease.Clock{}, 100_000), 90_000)
	after, err := c.Advance(10_000_000, 100_500, false)
	if !errors.Is(err, lease.ErrClockJump) || after != c {
		t.Fatalf("%+v, %v", after, err)
	}
	if got := advance(t, after, 92_000); got.MS != 101_000 {
		t.Errorf("%+v", got)
	}
}

func FuzzClock(f *testing.F) {
	f.Add(int64(2000), int64(1000), int64(2000), int64(1500), int64(0), false)
	f.Add(int64(math.MaxInt64), int64(0), int64(math.MaxInt64), int64(math.MaxInt64-1), int64(math.MaxInt64), false)
	f.Fuzz(func(t *testing.T, ms, anchorReal, anchorClock, real, expect int64, accept bool) {
		const positive = math.MaxInt64 // no clock stores a negative instant
		before := lease.Clock{MS: ms & positive, AnchorReal: anchorReal & positive, AnchorClock: anchorClock & positive}
		after, err := before.Advance(real, expect, accept)
		if after.MS < before.MS {
			t.Fatalf("%+v, then %+v", before, after)
		}
		if err != nil && after != before {
			t.Fatalf("refused, but %+v became %+v", before, after)
		}
	})
}
