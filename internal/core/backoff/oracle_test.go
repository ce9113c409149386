package backoff_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"pgregory.net/rapid"
)

// The formulas as they are documented, in arithmetic without bounds.

func integer(n int64) *big.Int { return big.NewInt(n) }

// saturated is the nearest duration.
func saturated(n *big.Int) time.Duration {
	if n.IsInt64() {
		return time.Duration(n.Int64())
	}
	return math.MaxInt64
}

func least(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func power(base time.Duration, m, n int64) *big.Int {
	p := new(big.Int).Exp(integer(m), integer(n), nil)
	return p.Mul(p, integer(int64(base)))
}

// retryOracle: fixed, linear, exponential with offset, doublings and cap.
func retryOracle(r backoff.Retry, k int64) time.Duration {
	var d *big.Int
	switch r.Strategy {
	case backoff.Fixed:
		d = integer(int64(r.Base))
	case backoff.Linear:
		d = new(big.Int).Mul(integer(int64(r.Base)), integer(k))
	default:
		m, n := int64(r.Multiplier), k-1+int64(r.Offset)
		if limit := int64(r.MaxDoublings); limit > 0 && n > limit {
			step := power(r.Base, m, limit)
			d = step.Mul(step, integer(n-limit+1))
		} else {
			d = power(r.Base, m, n)
		}
	}
	if r.MaxDelay > 0 {
		d = least(d, integer(int64(r.MaxDelay)))
	}
	return saturated(d)
}

func TestRetryMatchesTheFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRetry().Draw(t, "retry")
		r.Strategy = rapid.SampledFrom([]backoff.Strategy{backoff.Fixed, backoff.Linear, backoff.Exponential}).Draw(t, "strategy")
		r.Multiplier = float64(rapid.Int64Range(1, 100).Draw(t, "multiplier"))
		r.Jitter = backoff.Jitter{Kind: backoff.JitterNone}
		k := rapid.IntRange(1, 200).Draw(t, "k")
		if r.Strategy == backoff.Linear || r.MaxDoublings > 0 {
			k = drawFailed().Draw(t, "any k")
		}
		if got, want := r.Delay(k, 1), retryOracle(r, int64(k)); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// recurringOracle: base * multiplier^min(f, max_exponent), the absolute cap, which
// is never below base, and the cap relative to base.
func recurringOracle(r backoff.Recurring, base time.Duration, failures int64) time.Duration {
	d := power(base, int64(r.Multiplier), min(failures, int64(r.MaxExponent)))
	if r.MaxDelay > 0 {
		d = least(d, integer(int64(max(base, r.MaxDelay))))
	}
	if r.MaxRatio > 0 {
		d = least(d, new(big.Int).Mul(integer(int64(base)), integer(int64(r.MaxRatio))))
	}
	return saturated(d)
}

func TestRecurringMatchesTheFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, base := drawRecurring().Draw(t, "recurring"), drawDuration().Draw(t, "base")
		r.Multiplier = float64(rapid.Int64Range(1, 100).Draw(t, "multiplier"))
		r.MaxRatio = float64(rapid.Int64Range(0, 1e9).Draw(t, "ratio"))
		failures := drawFailures().Draw(t, "failures")
		if got, want := r.Interval(base, failures), recurringOracle(r, base, failures); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// At 2^31 failures, and at as many as can be counted, every curve has arrived.
func TestSaturationAtManyFailures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recurring, base := drawRecurring().Draw(t, "recurring"), drawDuration().Draw(t, "base")
		if a, b := recurring.Interval(base, 1<<31), recurring.Interval(base, math.MaxInt64); a != b {
			t.Fatalf("%v after 2^31 failures, %v after all", a, b)
		}
		r := drawRetry().Draw(t, "retry")
		r.Strategy, r.MaxDoublings = backoff.Exponential, 0
		r.Jitter = backoff.Jitter{Kind: backoff.JitterNone}
		if a, b := r.Delay(1<<31-1, 0), r.Delay(math.MaxInt, 0); a != b || a < min(r.Base, unlimited(r.MaxDelay)) {
			t.Fatalf("%v after 2^31 failures, %v after all", a, b)
		}
	})
}

// exactly are the ends of a jitter's range, to the nanosecond.
func exactly(j backoff.Jitter, d, limit time.Duration) (low, high time.Duration) {
	// The fraction counts in multiples of 2^-63.
	fraction := new(big.Float).SetPrec(200).SetFloat64(math.Floor(j.Fraction*(1<<63)) / (1 << 63))
	fraction.Mul(fraction, new(big.Float).SetInt64(int64(d))).Add(fraction, big.NewFloat(0.5))
	rounded, _ := fraction.Int(nil)
	span := time.Duration(rounded.Int64())
	half := (d + 1) / 2
	if d == math.MaxInt64 {
		half = d/2 + 1
	}
	switch j.Kind {
	case backoff.JitterDown:
		return d - span, d
	case backoff.JitterProportional:
		return d - span, saturated(new(big.Int).Add(integer(int64(d)), integer(int64(span))))
	case backoff.JitterSpread: // [d/2, 3d/2): the last is below the upper end
		return min(half, limit), min(limit, saturated(new(big.Int).Add(integer(int64(half)), integer(int64(d-1)))))
	case backoff.JitterFull:
		return 0, d
	case backoff.JitterEqual:
		return half, d
	default:
		return d, d
	}
}

// Of short waits every duration of the range occurs, both ends too, and none
// beyond them.
func TestJitterRangesAreExact(t *testing.T) {
	for _, kind := range kinds {
		for _, fraction := range []float64{0, 0.1, 0.25, 0.5, 1} {
			for d := time.Duration(1); d <= 25; d++ {
				for _, limit := range []time.Duration{0, 12} {
					j := backoff.Jitter{Kind: kind, Fraction: fraction}
					seen := map[time.Duration]bool{}
					for seed := range uint64(1200) {
						seen[j.Apply(d, limit, seed)] = true
					}
					capped := d
					if limit > 0 {
						capped = min(d, limit)
					}
					low, high := exactly(j, capped, unlimited(limit))
					for x := low; x <= high; x++ {
						if !seen[x] {
							t.Errorf("%v %v of %d under %d: %d never occurs", kind, fraction, d, limit, x)
						}
					}
					if n := int(high-low) + 1; len(seen) != n {
						t.Errorf("%v %v of %d under %d: %d durations, want %d", kind, fraction, d, limit, len(seen), n)
					}
				}
			}
		}
	}
}

func TestJitterEndsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawJitter().Draw(t, "jitter")
		d, limit := drawDuration().Draw(t, "d"), drawDuration().Draw(t, "cap")
		got := j.Apply(d, limit, rapid.Uint64().Draw(t, "seed"))
		low, high := exactly(j, min(d, unlimited(limit)), unlimited(limit))
		if d == 0 {
			low, high = 0, 0
		}
		if got < low || got > high {
			t.Fatalf("%d is outside [%d, %d]", got, low, high)
		}
	})
}

// Staleness: a count that is too old is not trusted, the older the less; a higher
// one is never trusted less than a lower one of the same age.
func TestTrustedShrinksWithAge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := backoff.Recurring{StaleAfter: drawDuration().Draw(t, "stale after"), StaleHalve: rapid.Bool().Draw(t, "halve")}
		failures := drawFailures().Draw(t, "failures")
		age, later := drawDuration().Draw(t, "age"), drawDuration().Draw(t, "later")
		age, later = min(age, later), max(age, later)
		n, probe := r.Trusted(failures, age)
		if n < 0 || n > failures {
			t.Fatalf("%d of %d are trusted", n, failures)
		}
		if stale := r.StaleAfter > 0 && age >= r.StaleAfter && failures > 0; probe != stale || !stale && n != failures {
			t.Fatalf("stale %v: %d of %d, probe %v", stale, n, failures, probe)
		}
		if probe {
			want := int64(0)
			if r.StaleHalve {
				want = failures
				for range min(age/r.StaleAfter, 64) {
					want /= 2
				}
			}
			if n != want {
				t.Fatalf("%d of %d are trusted, want %d", n, failures, want)
			}
		}
		if older, _ := r.Trusted(failures, later); older > n {
			t.Fatalf("%d are trusted later, %d before", older, n)
		}
		if less, _ := r.Trusted(failures/2, age); less > n {
			t.Fatalf("%d of half of them are trusted, %d of all", less, n)
		}
	})
}
