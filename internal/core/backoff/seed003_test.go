package backoff_test

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"pgregory.net/rapid"
)

// Module calls: `with retry: N, delay: D, backoff: fixed|linear|exponential`,
// capped at 30 s. N counts retries, so there are N+1 attempts.
//
// Stated here: both tables, the cap, its default and the delays of its example, the
// other examples, the default strategy, that backoff needs a delay, the names, the
// function and the loop of its implementation, and the decorrelated strategy that
// it asks for.
//
// Tested by behaviour, where attempts run: the timeout is that of each attempt, and
// no wait is part of it; a policy in a definition is refused with the name of its
// field.

func moduleCall(t *testing.T, strategy string, delay time.Duration, retry int) backoff.Retry {
	t.Helper()
	r := *preset(t, "module-"+strategy).Retry
	s, ok := backoff.ParseStrategy(strategy)
	if !ok || r.Strategy != s {
		t.Fatalf("%s: %v", strategy, r.Strategy)
	}
	r.Base, r.MaxAttempts = delay, retry+1
	return r
}

// The table of strategies: delay pattern of a 1 s base.
func TestSeed003Patterns(t *testing.T) {
	for strategy, want := range map[string][]time.Duration{
		"fixed":       seconds(1, 1, 1, 1),
		"linear":      seconds(1, 2, 3, 4),
		"exponential": seconds(1, 2, 4, 8),
	} {
		equalDurations(t, moduleCall(t, strategy, time.Second, 4).Ladder(10), want)
	}
}

// The table of attempts: N -> N+1 waits D, N*D, 2^(N-1)*D.
func TestSeed003Attempts(t *testing.T) {
	const d = 10 * time.Millisecond
	for n := 1; n <= 11; n++ {
		for strategy, want := range map[string]time.Duration{
			"fixed":       d,
			"linear":      time.Duration(n) * d,
			"exponential": d << (n - 1),
		} {
			for seed := range uint64(10) {
				if got := moduleCall(t, strategy, d, 20).Delay(n, seed); got != want {
					t.Errorf("%s %d: %v, want %v", strategy, n, got, want)
				}
			}
		}
	}
}

// "Delays: 1s, 2s, 4s, 8s, 16s, 30s, 30s, 30s, 30s (capped at 30s)"; the code
// beside it caps every strategy.
func TestSeed003Cap(t *testing.T) {
	equalDurations(t, moduleCall(t, "exponential", time.Second, 9).Ladder(100), seconds(1, 2, 4, 8, 16, 30, 30, 30, 30))
	equalDurations(t, moduleCall(t, "linear", 10*time.Second, 5).Ladder(100), seconds(10, 20, 30, 30, 30))
	equalDurations(t, moduleCall(t, "fixed", time.Minute, 2).Ladder(100), seconds(30, 30))
}

func TestSeed003CapIsConfigurable(t *testing.T) {
	r := moduleCall(t, "exponential", time.Second, 5)
	r.MaxDelay = 5 * time.Second
	equalDurations(t, r.Ladder(100), seconds(1, 2, 4, 5, 5))
}

func TestSeed003Examples(t *testing.T) {
	millis := func(ms ...int) (ds []time.Duration) {
		for _, m := range ms {
			ds = append(ds, time.Duration(m)*time.Millisecond)
		}
		return ds
	}
	equalDurations(t, moduleCall(t, "exponential", 100*time.Millisecond, 5).Ladder(100), millis(100, 200, 400, 800, 1600))
	equalDurations(t, moduleCall(t, "linear", time.Second, 5).Ladder(100), seconds(1, 2, 3, 4, 5))
	equalDurations(t, moduleCall(t, "exponential", 500*time.Millisecond, 4).Ladder(100), millis(500, 1000, 2000, 4000))
	equalDurations(t, moduleCall(t, "fixed", time.Second, 5).Ladder(100), seconds(1, 1, 1, 1, 1))
}

func TestSeed003RetryCount(t *testing.T) {
	r := moduleCall(t, "exponential", time.Second, 5)
	for failed := 1; failed <= 5; failed++ {
		if _, ok := r.Next(failed, 0, 0); !ok {
			t.Errorf("no retry after failure %d of 6", failed)
		}
	}
	if _, ok := r.Next(6, 0, 0); ok {
		t.Error("a sixth retry of five")
	}
}

// "backoff modifies delay, so it requires delay to be specified"
func TestSeed003BackoffNeedsDelay(t *testing.T) {
	for strategy, valid := range map[string]bool{"fixed": true, "linear": false, "exponential": false} {
		errs := moduleCall(t, strategy, 0, 3).Validate()
		if (len(errs) == 0) != valid {
			t.Errorf("%s without delay: %v", strategy, errs)
		}
	}
}

// Without an explicit strategy it is fixed: the zero value.
func TestSeed003DefaultStrategy(t *testing.T) {
	if s := (backoff.Retry{}).Strategy; s != backoff.Fixed {
		t.Errorf("zero strategy is %v", s)
	}
}

// The presets match the language: delay 1 s, retry 5, cap 30 s.
func TestSeed003Presets(t *testing.T) {
	for name, strategy := range map[string]backoff.Strategy{
		"fixed": backoff.Fixed, "linear": backoff.Linear, "exponential": backoff.Exponential,
	} {
		want := backoff.Retry{
			Strategy: strategy, Base: time.Second, Multiplier: 2, MaxDelay: 30 * time.Second, MaxAttempts: 6,
			Jitter: backoff.Jitter{Kind: backoff.JitterNone},
		}
		if got := *preset(t, "module-"+name).Retry; got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// computeDelay, as it stands there, without its overflow.
func computeDelay(base time.Duration, attempt int, strategy string, longest time.Duration) time.Duration {
	computed := base
	switch {
	case strategy == "linear" && int64(attempt) > int64(longest/base):
		return longest
	case strategy == "linear":
		computed = base * time.Duration(attempt)
	case strategy == "exponential" && attempt > 24: // 1 ms has passed an hour
		return longest
	case strategy == "exponential":
		computed = base * (1 << (attempt - 1))
	}
	return min(computed, longest)
}

func TestSeed003ComputeDelay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		strategy := rapid.SampledFrom([]string{"fixed", "linear", "exponential"}).Draw(rt, "strategy")
		base := time.Duration(rapid.Int64Range(1, 4000).Draw(rt, "delay")) * time.Millisecond
		r := moduleCall(t, strategy, base, 5)
		r.MaxDelay = time.Duration(rapid.Int64Range(1, 3_600_000).Draw(rt, "cap")) * time.Millisecond
		attempt := drawFailed().Draw(rt, "attempt")
		got, want := r.Delay(attempt, rapid.Uint64().Draw(rt, "seed")), computeDelay(base, attempt, strategy, r.MaxDelay)
		if got != want {
			rt.Fatalf("%s of %v after %d: %v, want %v", strategy, base, attempt, got, want)
		}
	})
}

// executeWithBackoff: remaining goes down from the retries, attemptNum up from 1.
func TestSeed003Loop(t *testing.T) {
	for _, strategy := range []string{"fixed", "linear", "exponential"} {
		for retries := range 12 {
			r := moduleCall(t, strategy, time.Second, retries)
			var want, got []time.Duration
			for remaining, attempt := retries, 1; remaining > 0; remaining, attempt = remaining-1, attempt+1 {
				want = append(want, computeDelay(time.Second, attempt, strategy, 30*time.Second))
			}
			for failed := 1; ; failed++ {
				d, ok := r.Next(failed, 0, 0)
				if !ok {
					break
				}
				got = append(got, d)
			}
			equalDurations(t, got, want)
		}
	}
}

// BackoffStrategy ::= 'fixed' | 'linear' | 'exponential', and "should we add a
// decorrelated strategy?"
func TestSeed003Names(t *testing.T) {
	for name, want := range map[string]backoff.Strategy{
		"fixed": backoff.Fixed, "linear": backoff.Linear, "exponential": backoff.Exponential, "decorrelated": backoff.Decorrelated,
	} {
		if got, ok := backoff.ParseStrategy(name); !ok || got != want || got.String() != name {
			t.Errorf("%s is %v %v", name, got, ok)
		}
	}
}
