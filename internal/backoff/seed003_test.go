package backoff_test

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/backoff"
)

// Module calls: `with retry: N, delay: D, backoff: fixed|linear|exponential`,
// capped at 30 s. N counts retries, so there are N+1 attempts.

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
