package backoff_test

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"pgregory.net/rapid"
)

// Webhooks: delay = min(RETRY_BASE_DELAY * 2^attempts, RETRY_MAX_DELAY), where
// attempts is counted up before; defaults 5 s, 300 s, MAX_ATTEMPTS 5.
//
// Stated here: the formula, its defaults, that each is configurable, and when
// retries end.
//
// Tested by behaviour, where runs are settled and stored: attempts and the last
// error are counted up and kept in one step with the next due time; nothing is
// leased before that time, after a restart neither; what is out of attempts stays
// as a dead letter that can be listed, until its TTL.

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

// The preset is the formula: base, cap and attempts as they come.
func TestSeed002Formula(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := *preset(t, "webhook").Retry
		r.Base = time.Duration(rapid.Int64Range(1, 3600).Draw(rt, "base")) * time.Second
		r.MaxDelay = r.Base + time.Duration(rapid.Int64Range(0, 7200).Draw(rt, "more"))*time.Second
		r.MaxAttempts = rapid.IntRange(1, backoff.MaxAttempts).Draw(rt, "max attempts")
		attempts := rapid.IntRange(1, backoff.MaxAttempts+10).Draw(rt, "attempts")
		got, ok := r.Next(attempts, 0, rapid.Uint64().Draw(rt, "seed"))
		if ok != (attempts < r.MaxAttempts) {
			rt.Fatalf("after %d of %d attempts: %v", attempts, r.MaxAttempts, ok)
		}
		want := r.MaxDelay
		if attempts < 20 {
			want = min(r.Base<<attempts, r.MaxDelay)
		}
		if ok && got != want {
			rt.Fatalf("after %d: %v, want %v", attempts, got, want)
		}
	})
}

// All that a webhook waits for under the defaults.
func TestSeed002Ladder(t *testing.T) {
	equalDurations(t, preset(t, "webhook").Retry.Ladder(100), seconds(10, 20, 40, 80))
}
