package backoff_test

import (
	"testing"
	"time"
)

// Webhooks: delay = min(RETRY_BASE_DELAY * 2^attempts, RETRY_MAX_DELAY), where
// attempts is counted up before; defaults 5 s, 300 s, MAX_ATTEMPTS 5.

func TestSeed002Defaults(t *testing.T) {
	r := *preset(t, "webhook").Retry
	if r.Base != 5*time.Second || r.MaxDelay != 300*time.Second || r.MaxAttempts != 5 {
		t.Errorf("%+v", r)
	}
}

func TestSeed002Delays(t *testing.T) {
	r := *preset(t, "webhook").Retry
	r.MaxAttempts = 0
	for attempts, want := range map[int]int{1: 10, 2: 20, 3: 40, 4: 80, 5: 160, 6: 300, 7: 300, 1000: 300} {
		for seed := range uint64(20) {
			if got := r.Delay(attempts, seed); got != time.Duration(want)*time.Second {
				t.Errorf("after %d attempts: %v, want %d s", attempts, got, want)
			}
		}
	}
}

// "If attempts < MAX_ATTEMPTS: retry; if attempts >= MAX_ATTEMPTS: no further
// retries."
func TestSeed002Attempts(t *testing.T) {
	r := *preset(t, "webhook").Retry
	for attempts := 1; attempts <= 4; attempts++ {
		want := 5 * time.Second << attempts
		if got, ok := r.Next(attempts, 0, 1); !ok || got != want {
			t.Errorf("after %d attempts: %v %v, want %v", attempts, got, ok, want)
		}
	}
	for _, attempts := range []int{5, 6, 1 << 31} {
		if got, ok := r.Next(attempts, 0, 1); ok {
			t.Errorf("after %d attempts: %v, want none", attempts, got)
		}
	}
}

func TestSeed002Configurable(t *testing.T) {
	r := *preset(t, "webhook").Retry
	r.Base, r.MaxDelay, r.MaxAttempts = time.Second, 7*time.Second, 8
	equalDurations(t, r.Ladder(100), seconds(2, 4, 7, 7, 7, 7, 7))
}
