package backoff_test

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"pgregory.net/rapid"
)

// Workflow steps: fixed, linear, exponential; jitter multiplies the computed
// delay by [0.5, 1.5), then clamps to maxDelayMs; maxAttempts counts the first.
//
// Stated here: the three formulas, maxDelayMs, the jitter and what it is clamped
// to, jitter that is off, maxAttempts, the example's policy, and that steps have
// policies of their own.
//
// Tested by behaviour, where definitions are validated and runs are settled: fewer
// than one attempt are refused; each job carries its own policy.

func TestSeed004Policy(t *testing.T) {
	r := *preset(t, "workflow").Retry
	want := backoff.Retry{
		Strategy: backoff.Exponential, Base: 1000 * time.Millisecond, Multiplier: 2,
		MaxDelay: 60_000 * time.Millisecond, MaxAttempts: 5, Jitter: backoff.Jitter{Kind: backoff.JitterSpread},
	}
	if r != want {
		t.Errorf("%+v", r)
	}
}

// delay = baseDelay | baseDelay * attempt | baseDelay * 2^(attempt-1), up to
// maxDelayMs.
func TestSeed004Formulas(t *testing.T) {
	for _, c := range []struct {
		strategy string
		want     []time.Duration
	}{
		{"FIXED", seconds(1, 1, 1, 1, 1, 1, 1, 1)},
		{"LINEAR", seconds(1, 2, 3, 4, 5, 6, 7, 8)},
		{"EXPONENTIAL", seconds(1, 2, 4, 8, 16, 32, 60, 60)},
	} {
		r := *preset(t, "workflow").Retry
		r.Strategy, _ = backoff.ParseStrategy(c.strategy)
		r.MaxAttempts, r.Jitter = 9, backoff.Jitter{Kind: backoff.JitterNone}
		for attempt, want := range c.want {
			if got, ok := r.Next(attempt+1, 0, 99); !ok || got != want {
				t.Errorf("%s after attempt %d: %v %v, want %v", c.strategy, attempt+1, got, ok, want)
			}
		}
	}
}

// "Total attempts including the initial execution (minimum 1)"
func TestSeed004MaxAttempts(t *testing.T) {
	r := *preset(t, "workflow").Retry
	if _, ok := r.Next(4, 0, 0); !ok {
		t.Error("the fifth attempt is refused")
	}
	if _, ok := r.Next(5, 0, 0); ok {
		t.Error("a sixth attempt")
	}
	r.MaxAttempts = 1
	if _, ok := r.Next(1, 0, 0); ok {
		t.Error("a retry with one attempt in all")
	}
}

func TestSeed004Jitter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := *preset(t, "workflow").Retry
		failed := rapid.IntRange(1, 20).Draw(rt, "failed")
		computed := 60 * time.Second
		if failed < 7 {
			computed = time.Second << (failed - 1)
		}
		got := r.Delay(failed, rapid.Uint64().Draw(rt, "seed"))
		if got < computed/2 || got >= computed*3/2 || got > r.MaxDelay {
			rt.Fatalf("after %d: %v of %v", failed, got, computed)
		}
	})
}

func TestSeed004JitterSpreadsAndClamps(t *testing.T) {
	r := *preset(t, "workflow").Retry
	const draws = 20_000
	low, high, capped := time.Hour, time.Duration(0), 0
	for i := range int64(draws) {
		d := r.Delay(3, backoff.Seed("step", i, 3)) // 4 s
		low, high = min(low, d), max(high, d)
		if r.Delay(10, backoff.Seed("step", i, 10)) == r.MaxDelay {
			capped++
		}
	}
	if low > 2*time.Second+5*time.Millisecond || high < 6*time.Second-5*time.Millisecond {
		t.Errorf("range %v to %v, want 2 s to 6 s", low, high)
	}
	// Half of the factors are above 1 and are clamped.
	if capped < draws*48/100 || capped > draws*52/100 {
		t.Errorf("%d of %d are on the cap, want half", capped, draws)
	}
}

// The factor is in [0.5, 1.5): of ten nanoseconds 5 to 14 occur, 15 never.
func TestSeed004FactorIsHalfOpen(t *testing.T) {
	j := preset(t, "workflow").Retry.Jitter
	seen := map[time.Duration]int{}
	for seed := range uint64(5000) {
		seen[j.Apply(10, 0, seed)]++
	}
	for d := time.Duration(5); d < 15; d++ {
		if seen[d] < 400 || seen[d] > 600 {
			t.Errorf("%d occurs %d times of 5000, want a tenth", d, seen[d])
		}
	}
	if len(seen) != 10 {
		t.Errorf("%v", seen)
	}
}

// The cap is there before and after the jitter: without it the factor would be of
// the curve, and hardly any late wait would lie below the cap.
func TestSeed004JitterIsOfTheCappedDelay(t *testing.T) {
	r := *preset(t, "workflow").Retry
	below := 0
	for i := range int64(1000) {
		if r.Delay(30, backoff.Seed("step", i, 30)) < r.MaxDelay {
			below++
		}
	}
	if below < 450 || below > 550 {
		t.Errorf("%d of 1000 below the cap, want half", below)
	}
}

// "jitter: when enabled"
func TestSeed004WithoutJitter(t *testing.T) {
	r := *preset(t, "workflow").Retry
	r.Jitter = backoff.Jitter{Kind: backoff.JitterNone}
	equalDurations(t, r.Ladder(100), seconds(1, 2, 4, 8))
	for failed, want := range map[int]int{1: 1, 4: 8, 6: 32, 7: 60, 100: 60} {
		for seed := range uint64(20) {
			if got := r.Delay(failed, seed); got != time.Duration(want)*time.Second {
				t.Errorf("after %d: %v, want %d s", failed, got, want)
			}
		}
	}
}

// "A database call might use fixed backoff with 3 attempts"
func TestSeed004PerStep(t *testing.T) {
	r := *preset(t, "workflow").Retry
	r.Strategy, r.MaxAttempts = backoff.Fixed, 3
	equalDurations(t, r.Ladder(100), seconds(1, 1))
	if got := preset(t, "workflow").Retry; got.Strategy != backoff.Exponential || got.MaxAttempts != 5 {
		t.Errorf("another step's policy is %+v", got)
	}
}
