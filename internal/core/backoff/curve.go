package backoff

import (
	"math"
	"math/bits"
	"time"
)

const (
	forever = time.Duration(math.MaxInt64)

	// maxSteps bounds the work of one delay. An exponential curve has long
	// reached the largest duration by then unless its multiplier is below 1.05;
	// such a curve stays level from here on.
	maxSteps = 1000
)

// growDelay returns base * multiplier^n, at most limit. It multiplies step by step:
// unlike math.Pow this is monotone in n and the same on every architecture, and
// whole multipliers stay exact to the nanosecond.
func growDelay(base time.Duration, multiplier float64, n int, limit time.Duration) time.Duration {
	if base <= 0 {
		return 0
	}
	n = min(n, maxSteps)
	if n <= 0 || !(multiplier > 1) { // NaN too
		return min(base, limit)
	}
	if whole := uint64(min(multiplier, MaxMultiplier)); float64(whole) == multiplier {
		d := base
		for i := 0; i < n && d < limit; i++ {
			d = multiplyDelay(d, whole)
		}
		return min(d, limit)
	}
	f := float64(base)
	for i := 0; i < n && f < float64(limit); i++ {
		f *= min(multiplier, MaxMultiplier)
	}
	return min(max(base, durationFromFloat(f)), limit)
}

// scaleDelay returns d * factor, at least d.
func scaleDelay(d time.Duration, factor float64) time.Duration {
	if whole := uint64(max(0, min(factor, 1<<53))); float64(whole) == factor {
		return max(d, multiplyDelay(d, whole))
	}
	return max(d, durationFromFloat(float64(d)*factor))
}

// multiplyDelay returns d * n, saturating. d is not negative.
func multiplyDelay(d time.Duration, n uint64) time.Duration {
	hi, lo := bits.Mul64(uint64(d), n)
	return saturateProduct(hi, lo)
}

// addSaturating returns d + x, saturating. d is not negative.
func addSaturating(d time.Duration, x uint64) time.Duration {
	lo, hi := bits.Add64(uint64(d), x, 0)
	return saturateProduct(hi, lo)
}

// fractionOf returns d * fraction, rounded to the nearest nanosecond. The fraction
// is first made an exact multiple of 2^-63.
func fractionOf(d time.Duration, fraction float64) uint64 {
	if !(fraction > 0) { // NaN too
		return 0
	}
	hi, lo := bits.Mul64(uint64(d), uint64(min(fraction, 1)*(1<<63)))
	lo, carry := bits.Add64(lo, 1<<62, 0)
	return (hi+carry)<<1 | lo>>63
}

func saturateProduct(hi, lo uint64) time.Duration {
	if hi != 0 || lo > uint64(forever) {
		return forever
	}
	return time.Duration(lo)
}

func durationFromFloat(f float64) time.Duration {
	f = math.Round(f)
	if f < float64(forever) {
		return time.Duration(f)
	}
	return forever
}
