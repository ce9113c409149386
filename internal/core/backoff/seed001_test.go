package backoff_test

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"pgregory.net/rapid"
)

// Monitors: target = B * 2^n; cap = max(B, 60 m); jitter of +-round(target*0.1);
// delay = max(5 s, jittered target).
//
// Stated here: the table of parameters as far as it is arithmetic (minimum 5 s,
// +-10 %, 2^n, 60 m but never below the base), the four steps of the delay and
// their order, both ends and the evenness of the jitter, monitors apart from each
// other, success that resets, and the staleness window.
//
// Tested by behaviour, where jobs are decided on and run: the 30 s timeout and its
// 5 s grace, which count as failures; a manual check that runs now and resets the
// backoff, or waits for the run under way, at most one; no overlapping runs; a new
// correlation id for each run; the lifecycle events; the failure count and the next
// due time that survive a restart. Jitter of a healthy monitor is that of its
// schedule.

func monitorDelay(t *testing.T, base time.Duration, n int64, seed uint64) time.Duration {
	t.Helper()
	p := preset(t, "monitor")
	return p.Recurring.Delay(base, n, p.MinInterval, 0, seed)
}

func TestSeed001Parameters(t *testing.T) {
	p := preset(t, "monitor")
	if p.MinInterval != 5*time.Second {
		t.Errorf("minimum check interval %v", p.MinInterval)
	}
	if p.Recurring.Jitter != (backoff.Jitter{Kind: backoff.JitterProportional, Fraction: 0.1}) {
		t.Errorf("jitter %+v", p.Recurring.Jitter)
	}
	if p.Recurring.Multiplier != 2 || p.Recurring.MaxDelay != 60*time.Minute {
		t.Errorf("multiplier %v, cap %v", p.Recurring.Multiplier, p.Recurring.MaxDelay)
	}
}

func TestSeed001Target(t *testing.T) {
	r := *preset(t, "monitor").Recurring
	equalDurations(t, r.Ladder(time.Minute), seconds(60, 120, 240, 480, 960, 1920, 3600))
	equalDurations(t, r.Ladder(5*time.Second), seconds(5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600))
}

// "never clamps below the base interval"
func TestSeed001CapIsNeverBelowBase(t *testing.T) {
	r := *preset(t, "monitor").Recurring
	for _, base := range []time.Duration{time.Hour, 61 * time.Minute, 2 * time.Hour, 24 * time.Hour} {
		for _, n := range []int64{0, 1, 5, 1000} {
			if got := r.Interval(base, n); got != base {
				t.Errorf("Interval(%v, %d) = %v", base, n, got)
			}
		}
	}
}

func TestSeed001FormulaWithJitter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		base := time.Duration(rapid.Int64Range(5_000, 100_000_000).Draw(rt, "base ms")) * time.Millisecond
		n := rapid.Int64Range(1, 40).Draw(rt, "n")
		target := max(base, time.Hour)
		if n <= 15 {
			target = min(target, base<<n)
		}
		span := (target + 5) / 10 // round(target * 0.1)
		got := monitorDelay(t, base, n, rapid.Uint64().Draw(rt, "seed"))
		if got < max(5*time.Second, target-span) || got > target+span {
			rt.Fatalf("B=%v n=%d: %v, want %v +- %v", base, n, got, target, span)
		}
	})
}

// The jitter reaches both ends of its range and is even in between, at the cap
// too: it is added after the cap and may pass it.
func TestSeed001JitterFillsItsRange(t *testing.T) {
	var below, above int
	low, high := time.Hour, time.Duration(0)
	const draws = 20_000
	for i := range int64(draws) {
		d := monitorDelay(t, time.Minute, 10, backoff.Seed("site|monitor", i, 1))
		low, high = min(low, d), max(high, d)
		if d < time.Hour {
			below++
		} else if d > time.Hour {
			above++
		}
	}
	if low > 54*time.Minute+2*time.Second || high < 66*time.Minute-2*time.Second {
		t.Errorf("range %v to %v, want 54 m to 66 m", low, high)
	}
	if below < draws*48/100 || above < draws*48/100 {
		t.Errorf("%d below, %d above the cap of %d", below, above, draws)
	}
}

// A healthy monitor's interval is spread by the same rule; in Fermata that
// belongs to the schedule, and the rule itself is Jitter.Apply with no cap.
func TestSeed001HealthyJitter(t *testing.T) {
	p := preset(t, "monitor")
	for i := range int64(1000) {
		d := p.Recurring.Jitter.Apply(time.Minute, 0, backoff.Seed("m", i, 0))
		if d < 54*time.Second || d > 66*time.Second {
			t.Fatalf("%v", d)
		}
	}
	if got := monitorDelay(t, time.Minute, 0, 1); got != time.Minute {
		t.Errorf("healthy interval %v", got)
	}
}

func TestSeed001MinimumInterval(t *testing.T) {
	for seed := range uint64(1000) {
		if got := monitorDelay(t, 2500*time.Millisecond, 1, seed); got < 5*time.Second {
			t.Fatalf("%v is below the minimum check interval", got)
		}
	}
	if got := monitorDelay(t, time.Second, 0, 0); got != 5*time.Second {
		t.Errorf("%v, want 5 s", got)
	}
}

// "per-monitor backoff state to avoid cross-talk", "jitter staggers": monitors
// that fail together do not come back together.
func TestSeed001MonitorsSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for _, id := range []string{"site|a", "site|b", "site|c", "site|d", "site|e"} {
		seen[monitorDelay(t, time.Minute, 3, backoff.Seed(id, 1, 3))] = true
	}
	if len(seen) != 5 {
		t.Errorf("five monitors share %d delays", len(seen))
	}
}

// "Persistence must include a staleness window (for example, if the app was
// closed for hours, we should not resume a long backoff attempt blindly)."
func TestSeed001Staleness(t *testing.T) {
	r := *preset(t, "monitor").Recurring
	r.StaleAfter = 2 * time.Hour
	if n, probe := r.Trusted(6, time.Hour); n != 6 || probe {
		t.Errorf("fresh: %d %v", n, probe)
	}
	if n, probe := r.Trusted(6, 3*time.Hour); n != 0 || !probe {
		t.Errorf("stale: %d %v", n, probe)
	}
	r.StaleHalve = true
	if n, probe := r.Trusted(6, 3*time.Hour); n != 3 || !probe {
		t.Errorf("halved: %d %v", n, probe)
	}
}

// Steps 1 to 4, computed in the order of the specification from the random offset that was drawn; there is no
// other step.
func TestSeed001StepsInOrder(t *testing.T) {
	p := preset(t, "monitor")
	rapid.Check(t, func(rt *rapid.T) {
		base := time.Duration(rapid.Int64Range(0, int64(3*time.Hour)).Draw(rt, "base"))
		n := rapid.Int64Range(1, 1<<31).Draw(rt, "n")
		seed := rapid.Uint64().Draw(rt, "seed")
		target := max(base, time.Hour)
		if base <= time.Hour>>min(n, 62) {
			target = base << min(n, 62)
		}
		offset := p.Recurring.Jitter.Apply(target, 0, seed) - target
		if span := (target + 5) / 10; offset < -span || offset > span {
			rt.Fatalf("an offset of %v for %v", offset, target)
		}
		if got, want := monitorDelay(t, base, n, seed), max(5*time.Second, target+offset); got != want {
			rt.Fatalf("B=%v n=%d: %v, want %v", base, n, got, want)
		}
	})
}

// round(target * 0.1) rounds half up, and both ends of the range are reached.
func TestSeed001JitterRounds(t *testing.T) {
	j := preset(t, "monitor").Recurring.Jitter
	for target, span := range map[time.Duration]time.Duration{4: 0, 5: 1, 14: 1, 15: 2, 24: 2, 25: 3, 100: 10} {
		low, high := target, target
		for seed := range uint64(500) {
			d := j.Apply(target, 0, seed)
			low, high = min(low, d), max(high, d)
		}
		if low != target-span || high != target+span {
			t.Errorf("%d: %d to %d, want +- %d", target, low, high, span)
		}
	}
}

// "reset on success"
func TestSeed001SuccessResets(t *testing.T) {
	for seed := range uint64(100) {
		if got := monitorDelay(t, time.Minute, 0, seed); got != time.Minute {
			t.Fatalf("%v", got)
		}
	}
}

// The minimum is applied last: jitter does not undercut it.
func TestSeed001MinimumIsLast(t *testing.T) {
	atMinimum := 0
	for seed := range uint64(1000) {
		if monitorDelay(t, 2500*time.Millisecond, 1, seed) == 5*time.Second {
			atMinimum++
		}
	}
	if atMinimum < 450 || atMinimum > 550 { // half of the offsets are below zero
		t.Errorf("%d of 1000 at the minimum, want half", atMinimum)
	}
}
