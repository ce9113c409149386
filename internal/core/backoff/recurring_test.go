package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"pgregory.net/rapid"
)

func drawRecurring() *rapid.Generator[backoff.Recurring] {
	return rapid.Custom(func(t *rapid.T) backoff.Recurring {
		r := backoff.Recurring{
			Multiplier:  drawMultiplier().Draw(t, "multiplier"),
			MaxExponent: rapid.IntRange(0, backoff.MaxExponent).Draw(t, "exponent"),
			MaxDelay:    drawDuration().Draw(t, "max delay"),
			Jitter:      drawJitter().Draw(t, "jitter"),
		}
		if rapid.Bool().Draw(t, "relative") {
			r.MaxRatio = rapid.Float64Range(1, 1000).Draw(t, "ratio")
		}
		return r
	})
}

func drawFailures() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(0, 70), rapid.Int64Range(0, 1<<31), rapid.Just[int64](math.MaxInt64))
}

func TestRecurringInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, base := drawRecurring().Draw(t, "recurring"), drawDuration().Draw(t, "base")
		failures := drawFailures().Draw(t, "failures")
		d := r.Interval(base, failures)
		if d < base {
			t.Fatalf("%v is below the base %v", d, base)
		}
		if r.MaxDelay > 0 && d > max(base, r.MaxDelay) {
			t.Fatalf("%v is above the absolute cap %v", d, r.MaxDelay)
		}
		if r.MaxRatio > 0 && float64(d) > float64(base)*r.MaxRatio*(1+1e-12)+1 {
			t.Fatalf("%v is above %v * %v", d, r.MaxRatio, base)
		}
		if failures < math.MaxInt64 && r.Interval(base, failures+1) < d {
			t.Fatal("shrinks with one more failure")
		}
		if top := r.Interval(base, int64(r.MaxExponent)); d > top {
			t.Fatalf("%v is above the interval at the largest exponent, %v", d, top)
		}
	})
}

func TestRecurringDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, base := drawRecurring().Draw(t, "recurring"), drawDuration().Draw(t, "base")
		failures, seed := drawFailures().Draw(t, "failures"), rapid.Uint64().Draw(t, "seed")
		low, high := drawDuration().Draw(t, "min"), drawDuration().Draw(t, "max")
		d := r.Delay(base, failures, low, high, seed)
		if d != r.Delay(base, failures, low, high, seed) {
			t.Fatal("not deterministic")
		}
		if d < low {
			t.Fatalf("%v is below the minimum %v", d, low)
		}
		if high > 0 && d > max(low, high) {
			t.Fatalf("%v is above the maximum %v", d, high)
		}
		interval := r.Interval(base, failures)
		bound := float64(interval)
		switch r.Jitter.Kind {
		case backoff.JitterProportional:
			bound *= (1 + r.Jitter.Fraction) * (1 + 1e-12)
		case backoff.JitterSpread:
			bound *= 1.5
		}
		if float64(d) > max(bound+1, float64(low)) {
			t.Fatalf("%v from an interval of %v", d, interval)
		}
		if failures == 0 && high >= base && low <= base && high > 0 && d != base {
			t.Fatalf("a healthy job waits %v instead of %v", d, base)
		}
	})
}

func TestRecurringCaps(t *testing.T) {
	minute, hour := time.Minute, time.Hour
	for name, c := range map[string]struct {
		r    backoff.Recurring
		want []time.Duration
	}{
		"exponent":         {backoff.Recurring{Multiplier: 2, MaxExponent: 3}, seconds(60, 120, 240, 480)},
		"absolute":         {backoff.Recurring{Multiplier: 2, MaxExponent: 62, MaxDelay: 5 * minute}, seconds(60, 120, 240, 300)},
		"never below base": {backoff.Recurring{Multiplier: 2, MaxExponent: 62, MaxDelay: time.Second}, seconds(60)},
		"relative":         {backoff.Recurring{Multiplier: 2, MaxExponent: 62, MaxRatio: 3}, seconds(60, 120, 180)},
		"relative, 2.5":    {backoff.Recurring{Multiplier: 2, MaxExponent: 62, MaxRatio: 2.5}, seconds(60, 120, 150)},
		"the smallest":     {backoff.Recurring{Multiplier: 10, MaxExponent: 62, MaxDelay: hour, MaxRatio: 20}, seconds(60, 600, 1200)},
		"no growth":        {backoff.Recurring{Multiplier: 1, MaxExponent: 62}, seconds(60)},
		"exponent 0":       {backoff.Recurring{Multiplier: 2}, seconds(60)},
		"disabled":         {backoff.Recurring{Disabled: true, Multiplier: 2, MaxExponent: 5}, seconds(60)},
		"default":          {backoff.DefaultRecurring(), seconds(60, 120, 240, 480, 960, 1920)},
	} {
		t.Run(name, func(t *testing.T) { equalDurations(t, c.r.Ladder(minute), c.want) })
	}
}

func TestRecurringDisabledHasNoJitter(t *testing.T) {
	r := backoff.DefaultRecurring()
	r.Disabled = true
	for seed := range uint64(100) {
		if got := r.Delay(time.Minute, 4, 0, 0, seed); got != time.Minute {
			t.Fatalf("%v", got)
		}
	}
}

// Downward jitter is drawn from what the upper clamp leaves, so that a clamped
// fleet does not come back in one instant.
func TestRecurringClampDoesNotUndoJitter(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range int64(1000) {
		d := backoff.DefaultRecurring().Delay(time.Minute, 5, 0, 10*time.Minute, backoff.Seed("job", i, 5))
		if d > 10*time.Minute || d < 9*time.Minute {
			t.Fatalf("%v", d)
		}
		seen[d] = true
	}
	if len(seen) < 990 {
		t.Errorf("1000 jobs share %d delays", len(seen))
	}
}

func TestRecurringTrusted(t *testing.T) {
	hour := time.Hour
	reset := backoff.Recurring{StaleAfter: hour}
	halve := backoff.Recurring{StaleAfter: hour, StaleHalve: true}
	for _, c := range []struct {
		r         backoff.Recurring
		failures  int64
		age       time.Duration
		effective int64
		probe     bool
	}{
		{backoff.Recurring{}, 9, math.MaxInt64, 9, false},
		{reset, 9, hour - 1, 9, false},
		{reset, 9, hour, 0, true},
		{reset, 0, 9 * hour, 0, false},
		{reset, 9, -hour, 9, false},
		{halve, 9, hour - 1, 9, false},
		{halve, 9, hour, 4, true},
		{halve, 9, 3*hour - 1, 2, true},
		{halve, 9, 4 * hour, 0, true},
		{halve, math.MaxInt64, math.MaxInt64, 0, true},
		{halve, math.MaxInt64, hour, math.MaxInt64 / 2, true},
		{backoff.Recurring{StaleAfter: 1, StaleHalve: true}, math.MaxInt64, math.MaxInt64, 0, true},
	} {
		if n, probe := c.r.Trusted(c.failures, c.age); n != c.effective || probe != c.probe {
			t.Errorf("%+v: %d %v", c, n, probe)
		}
	}
}

// Nothing is rounded where nothing grows: float64 cannot hold this interval.
func TestRecurringLeavesLongIntervalsExact(t *testing.T) {
	const base = math.MaxInt64 - 1
	r := backoff.Recurring{Multiplier: 1.5}
	if got := r.Interval(base, 1); got != base {
		t.Errorf("%d, want %d", got, time.Duration(base))
	}
}
