package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"pgregory.net/rapid"
)

func drawRetry() *rapid.Generator[backoff.Retry] {
	return rapid.Custom(func(t *rapid.T) backoff.Retry {
		return backoff.Retry{
			Strategy:     backoff.Strategy(rapid.IntRange(0, 3).Draw(t, "strategy")),
			Base:         drawDuration().Draw(t, "base"),
			Multiplier:   drawMultiplier().Draw(t, "multiplier"),
			Offset:       rapid.IntRange(0, 1).Draw(t, "offset"),
			MaxDoublings: rapid.IntRange(0, 70).Draw(t, "doublings"),
			MaxDelay:     drawDuration().Draw(t, "max delay"),
			Jitter:       drawJitter().Draw(t, "jitter"),
		}
	})
}

func drawMultiplier() *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.Float64Range(1, 100),
		rapid.Float64Range(1, 1.001),
		rapid.SampledFrom([]float64{1, 2, 3, 10, 100}),
	)
}

func drawFailed() *rapid.Generator[int] {
	return rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(1, 1<<31))
}

func TestRetryBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, failed := drawRetry().Draw(t, "retry"), drawFailed().Draw(t, "failed")
		seed := rapid.Uint64().Draw(t, "seed")
		d := r.Delay(failed, seed)
		if again := r.Delay(failed, seed); again != d {
			t.Fatalf("%v, then %v", d, again)
		}
		if d < 0 {
			t.Fatalf("negative: %v", d)
		}
		bound := float64(r.MaxDelay)
		if r.Jitter.Kind == backoff.JitterProportional && r.Strategy != backoff.Decorrelated {
			bound = bound*(1+r.Jitter.Fraction)*(1+1e-12) + 1
		}
		if r.MaxDelay > 0 && float64(d) > bound {
			t.Fatalf("%v is above %v", d, time.Duration(bound))
		}
		if r.Base > 0 && r.Strategy == backoff.Decorrelated {
			if low := min(r.Base, unlimited(r.MaxDelay)); d < low {
				t.Fatalf("%v is below %v", d, low)
			}
		}
	})
}

func unlimited(d time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return math.MaxInt64
}

func TestRetryIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRetry().Draw(t, "retry")
		r.Strategy = backoff.Strategy(rapid.IntRange(0, 2).Draw(t, "strategy"))
		r.Jitter = backoff.Jitter{Kind: backoff.JitterNone}
		failed := drawFailed().Draw(t, "failed")
		if a, b := r.Delay(failed, 0), r.Delay(failed+1, 0); b < a {
			t.Fatalf("%v after %d, %v after %d", a, failed, b, failed+1)
		}
	})
}

// Whole multipliers are exact: the oracle multiplies with overflow checks.
func TestRetryExponentialIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "base"))
		m := rapid.Int64Range(1, 100).Draw(t, "multiplier")
		failed := rapid.IntRange(1, 80).Draw(t, "failed")
		want := base
		for range failed - 1 {
			if want > math.MaxInt64/time.Duration(m) {
				want = math.MaxInt64
				break
			}
			want *= time.Duration(m)
		}
		r := backoff.Retry{Strategy: backoff.Exponential, Base: base, Multiplier: float64(m)}
		if got := r.Delay(failed, 0); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

func TestRetryFractionalMultiplier(t *testing.T) {
	r := backoff.Retry{Strategy: backoff.Exponential, Base: time.Second, Multiplier: 1.5}
	equalDurations(t, r.Ladder(5), []time.Duration{
		time.Second, 1500 * time.Millisecond, 2250 * time.Millisecond, 3375 * time.Millisecond, 5062500 * time.Microsecond,
	})
	r.Multiplier = 1.1
	equalDurations(t, r.Ladder(3), []time.Duration{time.Second, 1100 * time.Millisecond, 1210 * time.Millisecond})
}

// The example of Google's reference: 10 s, at most 300 s, three doublings.
func TestRetryMaxDoublings(t *testing.T) {
	r := backoff.Retry{Strategy: backoff.Exponential, Base: 10 * time.Second, Multiplier: 2, MaxDoublings: 3, MaxDelay: 300 * time.Second}
	equalDurations(t, r.Ladder(8), seconds(10, 20, 40, 80, 160, 240, 300, 300))
	r.Offset = 1
	equalDurations(t, r.Ladder(7), seconds(20, 40, 80, 160, 240, 300, 300))
	r.Offset, r.MaxDoublings, r.MaxDelay = 0, 1, 0
	equalDurations(t, r.Ladder(5), seconds(10, 20, 40, 60, 80))
}

func TestRetryLimits(t *testing.T) {
	r := backoff.Retry{Strategy: backoff.Fixed, Base: 10 * time.Second, MaxAttempts: 3, MaxElapsed: time.Minute}
	for _, c := range []struct {
		failed  int
		elapsed time.Duration
		ok      bool
	}{
		{0, 0, true},
		{1, 0, true},
		{2, 50 * time.Second, true}, // starts exactly at the limit
		{2, 50*time.Second + 1, false},
		{2, math.MaxInt64, false},
		{2, -time.Hour, true},
		{3, 0, false},
		{math.MaxInt, 0, false},
	} {
		d, ok := r.Next(c.failed, c.elapsed, 1)
		if ok != c.ok {
			t.Errorf("%+v: %v", c, ok)
		}
		if want := min(c.failed, 1) * 10; ok && d != time.Duration(want)*time.Second {
			t.Errorf("%+v: %v", c, d)
		}
	}
	r.MaxAttempts, r.MaxElapsed = 0, 0
	if _, ok := r.Next(1<<31, math.MaxInt64, 1); !ok {
		t.Error("unlimited retries ended")
	}
	if d := r.Delay(0, 1); d != 0 {
		t.Errorf("the first attempt waits %v", d)
	}
	r.MaxAttempts = 1
	if ladder := r.Ladder(10); len(ladder) != 0 {
		t.Errorf("one attempt has the waits %v", ladder)
	}
}

// With one seed for all attempts the walk is a walk: each wait is drawn from
// [base, 3 * the one before], under the cap.
func TestDecorrelatedWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := backoff.Retry{
			Strategy: backoff.Decorrelated,
			Base:     time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "base")),
			MaxDelay: drawDuration().Draw(t, "cap"),
		}
		limit, seed := unlimited(r.MaxDelay), rapid.Uint64().Draw(t, "seed")
		previous := min(r.Base, limit)
		for failed := 1; failed <= 60; failed++ {
			d := r.Delay(failed, seed)
			if d < min(r.Base, limit) || d > limit || d/3 > previous {
				t.Fatalf("%d: %v after %v", failed, d, previous)
			}
			if longest := r.Ladder(failed)[failed-1]; d > longest {
				t.Fatalf("%d: %v is above %v", failed, d, longest)
			}
			previous = d
		}
	})
}

func TestDecorrelatedSpreadsCappedWaits(t *testing.T) {
	r := backoff.Retry{Strategy: backoff.Decorrelated, Base: time.Second, MaxDelay: 400 * time.Second}
	const draws = 20_000
	nearCap, sum := 0, time.Duration(0)
	for i := range int64(draws) {
		d := r.Delay(30, backoff.Seed("job", i, 0))
		if d > r.MaxDelay-r.MaxDelay/1000 {
			nearCap++
		}
		sum += d / draws
	}
	if nearCap > draws/100 {
		t.Errorf("%d of %d waits are on the cap", nearCap, draws)
	}
	if sum < 100*time.Second || sum > 300*time.Second {
		t.Errorf("mean wait %v", sum)
	}
}
