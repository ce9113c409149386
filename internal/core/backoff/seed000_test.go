package backoff_test

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"pgregory.net/rapid"
)

// Endpoints: effectiveInterval = baseInterval * 2^min(failureCount, 5).
//
// Stated here: the formula, the cap at five failures (32 times), the table of the
// 60-second interval, the 5-second loop that backs off, the min and max clamps,
// that it is a pure function without jitter, that success starts anew, and that
// each of its numbers can be customised.
//
// Tested by behaviour, where jobs are planned: intervals back off, cron does not;
// a planner's hint overrides backoff inside the clamps; a failing job recovers by
// itself and is not paused unless a number of failures to pause at is set.

func endpoint(t *testing.T) backoff.Recurring {
	t.Helper()
	return *preset(t, "endpoint").Recurring
}

func TestSeed000Progression(t *testing.T) {
	r := endpoint(t)
	for failures, want := range []int{60, 120, 240, 480, 960, 1920, 1920, 1920} {
		for seed := range uint64(20) {
			got := r.Delay(60*time.Second, int64(failures), 0, 0, seed)
			if got != time.Duration(want)*time.Second {
				t.Errorf("%d failures: %v, want %d s", failures, got, want)
			}
		}
	}
}

func TestSeed000CapsAtFiveFailures(t *testing.T) {
	r := endpoint(t)
	for _, base := range []time.Duration{time.Second, 5 * time.Second, 60 * time.Second, 24 * time.Hour} {
		for _, failures := range []int64{5, 6, 100, 1 << 31} {
			if got := r.Interval(base, failures); got != 32*base {
				t.Errorf("Interval(%v, %d) = %v, want %v", base, failures, got, 32*base)
			}
		}
	}
}

// "With a 5-second poll interval and no backoff mechanism, failing endpoints
// would be retried every 5 seconds indefinitely."
func TestSeed000NoTightLoop(t *testing.T) {
	r := endpoint(t)
	previous := r.Interval(5*time.Second, 0)
	for failures := int64(1); failures <= 5; failures++ {
		got := r.Interval(5*time.Second, failures)
		if got != 2*previous {
			t.Errorf("%d failures: %v, want twice %v", failures, got, previous)
		}
		previous = got
	}
}

func TestSeed000RespectsClamps(t *testing.T) {
	r := endpoint(t)
	for _, c := range []struct {
		failures       int64
		min, max, want time.Duration
	}{
		{0, 90 * time.Second, 0, 90 * time.Second},
		{1, 90 * time.Second, 0, 2 * time.Minute},
		{3, 0, 5 * time.Minute, 5 * time.Minute},
		{1, time.Minute, 5 * time.Minute, 2 * time.Minute},
		{5, time.Minute, 40 * time.Minute, 32 * time.Minute},
	} {
		if got := r.Delay(time.Minute, c.failures, c.min, c.max, 7); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// The default policy has the same ladder; its jitter only shortens it.
func TestSeed000IsTheDefaultLadder(t *testing.T) {
	seeds, ours := endpoint(t).Ladder(time.Minute), backoff.DefaultRecurring().Ladder(time.Minute)
	equalDurations(t, ours, seeds)
	equalDurations(t, seeds, seconds(60, 120, 240, 480, 960, 1920))
}

// The preset is the formula, to the nanosecond, for every interval and every count;
// the seed of the jitter has no part in it.
func TestSeed000Formula(t *testing.T) {
	r := endpoint(t)
	rapid.Check(t, func(rt *rapid.T) {
		base := time.Duration(rapid.Int64Range(0, int64(backoff.MaxDelay)).Draw(rt, "base"))
		failures := drawFailures().Draw(rt, "failures")
		want := base << min(failures, 5)
		if got := r.Delay(base, failures, 0, 0, rapid.Uint64().Draw(rt, "seed")); got != want {
			rt.Fatalf("%v after %d: %v, want %v", base, failures, got, want)
		}
	})
}

// "max(min, min(max, effectiveInterval))", whatever the failures.
func TestSeed000ClampsAlways(t *testing.T) {
	r := endpoint(t)
	rapid.Check(t, func(rt *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(rt, "base"))
		low := time.Duration(rapid.Int64Range(1, int64(48*time.Hour)).Draw(rt, "min"))
		high := low + time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(rt, "range"))
		failures := rapid.Int64Range(0, 9).Draw(rt, "failures")
		want := max(low, min(high, base<<min(failures, 5)))
		if got := r.Delay(base, failures, low, high, 1); got != want {
			rt.Fatalf("%v after %d in [%v, %v]: %v, want %v", base, failures, low, high, got, want)
		}
	})
}

// A success takes the count back to 0, and the interval with it.
func TestSeed000SuccessResets(t *testing.T) {
	r := endpoint(t)
	if got := r.Delay(time.Minute, 5, 0, 0, 1); got != 32*time.Minute {
		t.Errorf("before: %v", got)
	}
	if got := r.Delay(time.Minute, 0, 0, 0, 1); got != time.Minute {
		t.Errorf("after: %v", got)
	}
}

// "No per-endpoint backoff customization (can add later if needed)": it can be had.
func TestSeed000Customised(t *testing.T) {
	r := endpoint(t)
	r.MaxExponent = 3
	equalDurations(t, r.Ladder(time.Minute), seconds(60, 120, 240, 480))
	r.Multiplier, r.MaxDelay = 3, 10*time.Minute
	equalDurations(t, r.Ladder(time.Minute), seconds(60, 180, 540, 600))
	r.Disabled = true
	equalDurations(t, r.Ladder(time.Minute), seconds(60))
}
