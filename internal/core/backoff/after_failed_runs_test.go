package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"pgregory.net/rapid"
)

func TestNextAfterFailedRunsGrows(t *testing.T) {
	r := backoff.Retry{Strategy: backoff.Exponential, Base: time.Second, Multiplier: 2, MaxDelay: time.Minute, MaxAttempts: 3}
	linear := backoff.Retry{Strategy: backoff.Linear, Base: 1}
	for _, c := range []struct {
		r      backoff.Retry
		failed int
		before int64
		want   time.Duration
		ok     bool
	}{
		{r, 1, 0, time.Second, true},
		{r, 1, 1, 2 * time.Second, true},
		{r, 1, 3, 8 * time.Second, true},
		{r, 2, 3, 16 * time.Second, true},
		{r, 2, 100, time.Minute, true},
		{r, 1, math.MaxInt64, time.Minute, true},
		{r, 3, 0, 0, false}, // attempts are those of this run
		{r, 3, 100, 0, false},
		{r, 0, 100, 0, true}, // the first attempt waits for nothing
		{r, 1, -5, time.Second, true},
		{linear, 1, 1 << 31, 1<<31 + 1, true},
		{linear, 1, math.MaxInt64, math.MaxInt64, true},
		{linear, math.MaxInt, 5, math.MaxInt64, true},
		{linear, math.MaxInt, math.MaxInt64, math.MaxInt64, true},
	} {
		if d, ok := c.r.NextAfterFailedRuns(c.failed, c.before, 0, 1); d != c.want || ok != c.ok {
			t.Errorf("%d failed after %d runs: %v %v, want %v %v", c.failed, c.before, d, ok, c.want, c.ok)
		}
	}
	r.MaxElapsed = 20 * time.Second
	if _, ok := r.NextAfterFailedRuns(1, 3, 12*time.Second, 1); !ok {
		t.Error("8 s after 12 s are within 20 s")
	}
	if _, ok := r.NextAfterFailedRuns(1, 3, 12*time.Second+1, 1); ok {
		t.Error("the longer wait passes max_elapsed")
	}
}

// Next and NextAfterFailedRuns are one rule: failed runs before it move a run up the curve,
// and use up none of its attempts.
func TestNextAfterFailedRunsIsNextFurtherOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRetry().Draw(t, "retry")
		r.MaxAttempts = rapid.IntRange(0, 5).Draw(t, "attempts")
		failed := rapid.IntRange(0, 7).Draw(t, "failed")
		before := rapid.OneOf(rapid.Int64Range(-1, 20), rapid.Int64Range(0, 1<<31)).Draw(t, "before")
		seed := rapid.Uint64().Draw(t, "seed")
		d, ok := r.NextAfterFailedRuns(failed, before, 0, seed)
		plain, more := r.Next(failed, 0, seed)
		if ok != more {
			t.Fatalf("%v after failed runs, %v without", ok, more)
		}
		if !ok {
			if d != 0 {
				t.Fatalf("a wait of %v for nothing", d)
			}
			return
		}
		if before <= 0 && d != plain {
			t.Fatalf("%v without failed runs, want %v", d, plain)
		}
		want := time.Duration(0)
		if failed > 0 {
			want = r.Delay(failed+int(max(before, 0)), seed)
		}
		if d != want {
			t.Fatalf("%v, want %v", d, want)
		}
		if calm := r.Jitter.Kind == backoff.JitterNone; calm && r.Strategy != backoff.Decorrelated && d < plain {
			t.Fatalf("%v is shorter than %v", d, plain)
		}
	})
}
