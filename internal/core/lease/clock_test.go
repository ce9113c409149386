package lease_test

import (
	"errors"
	"math"
	"testing"

	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"pgregory.net/rapid"
)

// advance is Advance without an expectation.
func advance(t interface{ Fatal(...any) }, c lease.Clock, real unixtime.Milli) lease.Clock {
	next, err := c.Advance(real, lease.Expectation{}, false)
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
			{19000, lease.Clock{MS: 19000}},
			{11000, lease.Clock{MS: 19000, AnchorReal: 11000, AnchorClock: 19000}},
			{15000, lease.Clock{MS: 21000, AnchorReal: 11000, AnchorClock: 19000}},
			{13000, lease.Clock{MS: 21000, AnchorReal: 13000, AnchorClock: 21000}},
			{14000, lease.Clock{MS: 21500, AnchorReal: 13000, AnchorClock: 21000}},
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
				if c = advance(t, c, unixtime.Milli(s.real)); c != s.want {
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
		real         unixtime.Milli
		expect       int64
		accept, jump bool
	}{
		{lease.Clock{MS: 1000}, 61_500, 1500, false, false}, // exactly the limit
		{lease.Clock{MS: 1000}, 61_501, 1500, false, true},
		{lease.Clock{MS: 1000}, 61_501, 1500, true, false},
		{lease.Clock{MS: 1000}, math.MaxInt64, 0, false, false}, // no expectation
		{lease.Clock{MS: 1000}, math.MaxInt64, -1, false, false},
		{lease.Clock{MS: 1000}, math.MaxInt64, math.MaxInt64 - 1, false, false},
		{behind, 62_001, 2000, false, false}, // it may have lost 1 ms
		{behind, 62_002, 2000, false, true},
	} {
		got, err := c.clock.Advance(c.real, lease.Expectation{MostMS: unixtime.Milli(c.expect)}, c.accept)
		if errors.Is(err, lease.ErrClockJump) != c.jump {
			t.Errorf("%+v: %v", c, err)
		}
		want := lease.Clock{MS: c.real}
		if c.jump {
			want = c.clock
		}
		if c.clock.Behind() && !c.jump { // TIME was put right
			want = lease.Clock{MS: 2000, AnchorReal: c.real, AnchorClock: 2000}
		}
		if got != want {
			t.Errorf("%+v: %+v, want %+v", c, got, want)
		}
	}
}

// Over any course of TIME with steps both ways the clock never decreases, goes
// on at half of the rate of passing time or faster, and exceeds TIME's maximum by
// no more than half of the time that passed.
func TestClockInvariantsForAnyTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		real := rapid.Int64Range(1, 4_000_000_000_000).Draw(t, "start")
		c := advance(t, lease.Clock{}, unixtime.Milli(real))
		bound := real // what the clock may show: TIME, or a watermark and half of what passed
		var halves int64
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			passed := rapid.Int64Range(0, 100_000).Draw(t, "passed")
			step := rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(-10_000_000, 10_000_000)).Draw(t, "step")
			before, last := c, real
			real = max(0, real+passed+step)
			c = advance(t, c, unixtime.Milli(real))

			if c.MS < before.MS {
				t.Fatalf("%+v, then %+v", before, c)
			}
			if c.MS < unixtime.Milli(real) {
				t.Fatalf("TIME is %d, the clock shows %d", real, c.MS)
			}
			forward := max(0, real-last)
			if real >= last && int64(c.MS-before.MS) < (forward-1)/2 {
				t.Fatalf("%d passed, %+v to %+v", forward, before, c)
			}
			halves += forward
			bound = max(bound, real)
			if c.MS > unixtime.Milli(bound+halves/2) {
				t.Fatalf("the clock shows %d, above %d + %d/2", c.MS, bound, halves)
			}
			if c.Behind() != (c.MS > unixtime.Milli(real)) {
				t.Fatalf("TIME %d, %+v", real, c)
			}
			if !c.Behind() && (c.AnchorReal != 0 || c.MS != unixtime.Milli(real)) {
				t.Fatalf("TIME %d, %+v", real, c)
			}
			if c.MS == unixtime.Milli(real) {
				bound, halves = real, 0
			}
		}
	})
}

// What is written Span later is not due early, whatever is done to a TIME that was stepped
// back: by callers that see the clock often, seldom, or for the first time, it goes no further
// than that, and never ahead of true time. When TIME is right again, it catches up.
func TestDeadlinesAreNeverEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const callers = 3
		var calls int64
		stepped := false
		now := rapid.Int64Range(100_000_000, 4_000_000_000_000).Draw(t, "start") // true time
		c := advance(t, lease.Clock{}, unixtime.Milli(now))
		off := int64(0)
		var sights [callers]struct{ at, ms, lag int64 }
		var written []struct {
			at   unixtime.Milli
			due  unixtime.Milli
			span int64
		}
		call := func(i int) {
			expect := lease.Expectation{MostMS: -1}
			if s := sights[i]; s.at != 0 {
				expect.MostMS, expect.LeastMS = unixtime.Milli(s.ms+now-s.at), unixtime.Milli(s.ms+now-s.at)
				if s.lag > 0 {
					expect.LeastMS = unixtime.Milli(s.ms + (now-s.at)/2)
				}
			}
			next, err := c.Advance(unixtime.Milli(now+off), expect, false)
			if err != nil {
				t.Fatalf("TIME %d, expected %+v: %+v: %v", now+off, expect, c, err)
			}
			calls++
			if next.MS < c.MS || next.MS > unixtime.Milli(now+calls) { // each step may make a millisecond too much of the lag
				t.Fatalf("true time is %d, TIME %d: %+v to %+v", now, now+off, c, next)
			}
			c = next
			sights[i].at, sights[i].ms, sights[i].lag = now, int64(c.MS), c.LagMS(unixtime.Milli(now+off))
			for _, w := range written {
				if c.MS >= w.due && now-int64(w.at) < w.span {
					t.Fatalf("what was to come after %d came after %d: %+v", w.span, now-int64(w.at), c)
				}
			}
			if n := rapid.Int64Range(0, 60_000).Draw(t, "span"); n > 0 && expect.MostMS > 0 {
				written = append(written, struct {
					at, due unixtime.Milli
					span    int64
				}{unixtime.Milli(now), lease.ClockBound{MS: c.MS, LagMS: c.LagMS(unixtime.Milli(now + off))}.After(n), n})
			}
		}
		for i := range callers {
			call(i) // without the clock it cannot be known what was lost
		}
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			passed := rapid.OneOf(rapid.Int64Range(0, 900), rapid.Int64Range(0, 20_000)).Draw(t, "passed")
			now += passed
			i := rapid.IntRange(0, callers-1).Draw(t, "caller")
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				if stepped {
					break // the effect of another step, before all have seen the first put right, is unknown
				}
				stepped = true
				off -= rapid.Int64Range(1, 60_000).Draw(t, "back")
			case 1:
				if sights[i].at == 0 || now-sights[i].at > 900 {
					break // see LeapMS
				}
				off = min(0, off+rapid.Int64Range(1, 60_000).Draw(t, "put right in part"))
			case 2:
				off = 0
			}
			if unixtime.Milli(now+off) >= c.MS && c.Behind() && off < 0 {
				off = 0 // the two have met: from then on TIME is taken for right
			}
			call(i)
			if !c.Behind() {
				off = 0
			}
		}
		off = 0
		call(0)
		for lag := int64(unixtime.Milli(now)-c.MS) + 1000; lag > 0; lag -= 500 {
			now += 500
			call(0)
		}
		if c.MS != unixtime.Milli(now) || c.Behind() || c.LagMS(unixtime.Milli(now)) != 0 {
			t.Fatalf("TIME is right, %d: %+v", now, c)
		}
	})
}

// The same with a second between two calls, to the millisecond: a lease of 8 s that is
// granted while TIME is 30 s behind, and runs when it is put right.
func TestLeaseSurvivesAClockCorrection(t *testing.T) {
	c, now := advance(t, lease.Clock{}, 1_000_000), unixtime.Milli(1_000_000)
	seen := lease.ClockBound{MS: c.MS}
	off := int64(-30_000)
	call := func() {
		next, err := c.Advance(now+unixtime.Milli(off), lease.Expectation{MostMS: seen.After(1000)}, false)
		if err != nil {
			t.Fatal(err)
		}
		c, seen = next, lease.ClockBound{MS: next.MS, LagMS: next.LagMS(now + unixtime.Milli(off))}
	}
	for range 15 {
		now += 1000
		call()
	}
	if lag := c.LagMS(now + unixtime.Milli(off)); c.MS < 1_006_900 || c.MS+unixtime.Milli(lag) < now || c.MS+unixtime.Milli(lag) > now+1000 {
		t.Fatalf("after 15 s behind: %+v, lag %d", c, lag)
	}
	deadline := seen.After(8000)
	off = 0
	for passed := int64(1000); ; passed += 1000 {
		now += 1000
		call()
		if c.MS >= deadline {
			if passed < 8000 {
				t.Errorf("the lease ended after %d ms", passed)
			}
			break
		}
	}
	for c.Behind() && now < 1_040_000 {
		now += 1000
		call()
	}
	if c.MS != now || now > 1_025_000 {
		t.Errorf("the clock shows %d, true time is %d", c.MS, now)
	}
}

// A shard that is not called while TIME is stepped back has no anchor. A caller that has seen its clock still
// knows by how much TIME is behind, also when TIME has passed that clock again, and nothing that is written then
// comes early when TIME is put right.
func TestClockStepIsDetectedWithoutCalls(t *testing.T) {
	c := advance(t, lease.Clock{}, 8000)
	const now = 17_700 // true time; TIME was stepped back by 8134 at 8012
	next, err := c.Advance(now-8134, lease.Expectation{LeastMS: now - 30, MostMS: now + 3}, false)
	if want := (lease.Clock{MS: now - 30, AnchorReal: now - 8134 - 2*33, AnchorClock: now - 30 - 33}); err != nil || next != want {
		t.Fatalf("%+v, %v, want %+v", next, err, want)
	}
	due := lease.ClockBound{MS: next.MS, LagMS: next.LagMS(now - 8134)}.After(1800)
	if next, err = next.Advance(now+1000, lease.Expectation{LeastMS: now + 400, MostMS: now + 1003}, false); err != nil || next.MS >= due {
		t.Errorf("after a second: %+v, %v; what is due in 1800 ms is due at %d", next, err, due)
	}
	if next, err = c.Advance(8980, lease.Expectation{LeastMS: 8980, MostMS: 9100}, false); err != nil || next != (lease.Clock{MS: 8980}) {
		t.Errorf("a TIME that is as expected: %+v, %v", next, err)
	}
}

// After one step back by b, TIME catches up when 2b have passed, and not a
// moment before; meanwhile the clock shows the watermark plus half of the time
// passed, however often it is asked.
func TestClockCatchesUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mark := rapid.Int64Range(10_000_000, 4_000_000_000_000).Draw(t, "watermark")
		back := rapid.Int64Range(1, 10_000_000).Draw(t, "back")
		c := advance(t, advance(t, lease.Clock{}, unixtime.Milli(mark)), unixtime.Milli(mark-back))
		var passed int64
		for passed < 2*back {
			passed += rapid.Int64Range(1, max(1, back)).Draw(t, "passed")
			c = advance(t, c, unixtime.Milli(mark-back+passed))
			if want := max(mark+passed/2, mark-back+passed); c.MS != unixtime.Milli(want) {
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
func TestRefusedClockJumpChangesNothing(t *testing.T) {
	c := advance(t, advance(t, lease.Clock{}, 100_000), 90_000)
	after, err := c.Advance(10_000_000, lease.Expectation{MostMS: 100_500}, false)
	if !errors.Is(err, lease.ErrClockJump) || after != c {
		t.Fatalf("%+v, %v", after, err)
	}
	if got := advance(t, after, 92_000); got.MS != 101_000 {
		t.Errorf("%+v", got)
	}
}

func FuzzClock(f *testing.F) {
	f.Add(int64(2000), int64(1000), int64(2000), int64(1500), int64(0), int64(0), false)
	f.Add(int64(math.MaxInt64), int64(0), int64(math.MaxInt64), int64(math.MaxInt64-1), int64(math.MaxInt64), int64(math.MaxInt64), false)
	f.Fuzz(func(t *testing.T, ms, anchorReal, anchorClock, real, least, most int64, accept bool) {
		const positive = math.MaxInt64 // no clock stores a negative instant
		before := lease.Clock{MS: unixtime.Milli(ms & positive), AnchorReal: unixtime.Milli(anchorReal & positive), AnchorClock: unixtime.Milli(anchorClock & positive)}
		expect := lease.Expectation{LeastMS: unixtime.Milli(least), MostMS: unixtime.Milli(most)}
		after, err := before.Advance(unixtime.Milli(real), expect, accept)
		if after.MS < before.MS {
			t.Fatalf("%+v, then %+v", before, after)
		}
		if err != nil && after != before {
			t.Fatalf("refused, but %+v became %+v", before, after)
		}
	})
}
