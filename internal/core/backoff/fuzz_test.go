package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
)

// Whatever a policy holds, its waits are within its bounds; if Validate takes it,
// it also keeps the promises that only good policies make.

func FuzzRetry(f *testing.F) {
	f.Add(uint8(2), int64(time.Second), 2.0, 1, 3, int64(time.Hour), 5, int64(time.Hour), uint8(0), 0.1, 5, int64(0), uint64(1))
	f.Add(uint8(3), int64(math.MaxInt64), math.Inf(1), -7, -1, int64(-1), -1, int64(-1), uint8(9), math.NaN(), math.MaxInt, int64(math.MaxInt64), uint64(0))
	f.Add(uint8(3), int64(1), 1.0, 0, 0, int64(0), 0, int64(0), uint8(5), 1.0, 1<<31-1, int64(1<<31), uint64(7))
	f.Add(uint8(1), int64(backoff.MaxDelay), 0.0, 0, 0, int64(0), 1000, int64(1), uint8(2), 1.0, 999, int64(-1), uint64(9))
	f.Fuzz(func(t *testing.T, strategy uint8, base int64, multiplier float64, offset, doublings int, maxDelay int64, attempts int,
		maxElapsed int64, kind uint8, fraction float64, failed int, before int64, seed uint64) {
		r := backoff.Retry{
			Strategy: backoff.Strategy(strategy), Base: time.Duration(base), Multiplier: multiplier,
			Offset: offset, MaxDoublings: doublings, MaxDelay: time.Duration(maxDelay),
			MaxAttempts: attempts, MaxElapsed: time.Duration(maxElapsed),
			Jitter: backoff.Jitter{Kind: backoff.JitterKind(kind), Fraction: fraction},
		}
		d := r.Delay(failed, seed)
		if d < 0 || failed < 1 && d != 0 {
			t.Fatalf("%v after %d", d, failed)
		}
		limit := unlimited(r.MaxDelay)
		if r.Jitter.Kind != backoff.JitterProportional && d > limit {
			t.Fatalf("%v is above %v", d, limit)
		}
		if d > limit && d/2 > limit {
			t.Fatalf("%v is more than twice %v", d, limit)
		}
		within, ok := r.NextAfterFailedRuns(failed, before, time.Duration(seed>>1), seed)
		switch {
		case within < 0 || !ok && within != 0:
			t.Fatalf("%v %v", within, ok)
		case ok && r.MaxAttempts > 0 && failed >= r.MaxAttempts:
			t.Fatalf("another attempt after %d of %d", failed, r.MaxAttempts)
		case ok && r.MaxElapsed > 0 && within > r.MaxElapsed-time.Duration(seed>>1):
			t.Fatalf("%v after %v is later than %v", within, time.Duration(seed>>1), r.MaxElapsed)
		}
		ladder := r.Ladder(50)
		for i, wait := range ladder {
			if wait < 0 || wait > limit || i > 0 && wait < ladder[i-1] {
				t.Fatalf("%v", ladder)
			}
		}
		if len(r.Validate()) > 0 {
			return
		}
		if again := r; again != r {
			t.Fatalf("%+v does not equal itself", r)
		}
		if wait := r.Ladder(1); len(wait) == 1 && wait[0] < min(r.Base, limit) {
			t.Fatalf("the first wait %v is below the base %v", wait[0], r.Base)
		}
		if r.Strategy == backoff.Decorrelated && failed > 0 && d < r.Base {
			t.Fatalf("%v is below the base %v", d, r.Base)
		}
	})
}

func FuzzRecurring(f *testing.F) {
	f.Add(false, 2.0, 5, int64(time.Hour), 0.0, uint8(0), 0.1, int64(0), false, int64(time.Minute), int64(3), int64(0), int64(0), uint64(1))
	f.Add(true, math.NaN(), -1, int64(-1), math.Inf(1), uint8(77), math.NaN(), int64(-1), true, int64(-1), int64(-1), int64(-1), int64(-1), uint64(0))
	f.Add(false, 100.0, 62, int64(0), 1e9, uint8(3), 1.0, int64(1), true, int64(math.MaxInt64), int64(math.MaxInt64), int64(5), int64(math.MaxInt64), uint64(3))
	f.Add(false, 1.5, 62, int64(time.Hour), 2.5, uint8(2), 1.0, int64(time.Hour), true, int64(backoff.MaxDelay), int64(1<<31), int64(9), int64(7), uint64(3))
	f.Fuzz(func(t *testing.T, disabled bool, multiplier float64, exponent int, maxDelay int64, ratio float64, kind uint8, fraction float64,
		stale int64, halve bool, every, failures, low, high int64, seed uint64) {
		r := backoff.Recurring{
			Disabled: disabled, Multiplier: multiplier, MaxExponent: exponent, MaxDelay: time.Duration(maxDelay), MaxRatio: ratio,
			Jitter:     backoff.Jitter{Kind: backoff.JitterKind(kind), Fraction: fraction},
			StaleAfter: time.Duration(stale), StaleHalve: halve,
		}
		base, lowest, highest := time.Duration(every), time.Duration(low), time.Duration(high)
		interval := r.Interval(base, failures)
		if interval < max(base, 0) {
			t.Fatalf("%v is below %v", interval, base)
		}
		if r.MaxDelay > 0 && interval > max(base, r.MaxDelay) {
			t.Fatalf("%v is above %v", interval, r.MaxDelay)
		}
		d := r.Delay(base, failures, lowest, highest, seed)
		if d < max(lowest, 0) {
			t.Fatalf("%v is below %v", d, lowest)
		}
		if highest > 0 && d > max(lowest, highest) {
			t.Fatalf("%v is above %v", d, highest)
		}
		if d > lowest && d/2 > interval {
			t.Fatalf("%v is more than twice %v", d, interval)
		}
		if n, _ := r.Trusted(failures, lowest); n < 0 || n > max(failures, 0) {
			t.Fatalf("%d of %d are trusted", n, failures)
		}
		ladder := r.Ladder(base)
		if len(ladder) > backoff.MaxExponent+1 || ladder[0] != max(base, 0) {
			t.Fatalf("%v", ladder)
		}
		if len(r.Validate()) > 0 {
			return
		}
		if again := r; again != r {
			t.Fatalf("%+v does not equal itself", r)
		}
		if top := ladder[len(ladder)-1]; interval > top {
			t.Fatalf("%v is above the top of the ladder %v", interval, top)
		}
	})
}

func FuzzJitter(f *testing.F) {
	for kind := range uint8(7) {
		f.Add(kind, 0.1, int64(time.Hour), int64(time.Minute), uint64(kind))
	}
	f.Add(uint8(2), 1.0, int64(math.MaxInt64), int64(0), uint64(1))
	f.Add(uint8(3), math.NaN(), int64(math.MinInt64), int64(math.MinInt64), uint64(0))
	f.Fuzz(func(t *testing.T, kind uint8, fraction float64, wait, limit int64, seed uint64) {
		j := backoff.Jitter{Kind: backoff.JitterKind(kind), Fraction: fraction}
		got := j.Apply(time.Duration(wait), time.Duration(limit), seed)
		if wait <= 0 {
			if got != 0 {
				t.Fatalf("%v of no wait", got)
			}
			return
		}
		if !(fraction >= 0) {
			j.Fraction = 0
		}
		j.Fraction = min(j.Fraction, 1)
		capped := min(time.Duration(wait), unlimited(time.Duration(limit)))
		if low, high := exactly(j, capped, unlimited(time.Duration(limit))); got < low || got > high {
			t.Fatalf("%d is outside [%d, %d]", got, low, high)
		}
	})
}

func FuzzNames(f *testing.F) {
	for _, name := range []string{"", "fixed", "LINEAR", "Exponential", "decorrelated", "down", "none", "ſpread", "full", "unknown"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if s, ok := backoff.ParseStrategy(name); ok {
			if again, ok := backoff.ParseStrategy(s.String()); !ok || again != s {
				t.Fatalf("%q is %v, which is %v", name, s, again)
			}
		}
		if k, ok := backoff.ParseJitterKind(name); ok {
			if again, ok := backoff.ParseJitterKind(k.String()); !ok || again != k {
				t.Fatalf("%q is %v, which is %v", name, k, again)
			}
		}
		if p, ok := backoff.PresetByName(name); ok && p.Name != name {
			t.Fatalf("%q is %q", name, p.Name)
		}
	})
}
