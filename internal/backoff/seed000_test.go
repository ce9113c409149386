package backoff_test

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/backoff"
)

// Endpoints: effectiveInterval = baseInterval * 2^min(failureCount, 5).

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
