package backoff

import "time"

// JitterKind is how a wait is spread.
type JitterKind uint8

// Jitter kinds. d is the wait under its cap, p the fraction.
const (
	// JitterDown draws from [d*(1-p), d]: never above the cap, and waits that
	// have reached the cap still differ. With p = 0 there is no jitter.
	JitterDown JitterKind = iota
	// JitterNone leaves d alone.
	JitterNone
	// JitterProportional draws from [d - round(d*p), d + round(d*p)], after the
	// cap and past it, rounded to the nanosecond.
	JitterProportional
	// JitterSpread draws from [d*0.5, d*1.5), then applies the cap again: half of
	// the waits that have reached the cap lie exactly on it.
	JitterSpread
	// JitterFull draws from [0, d].
	JitterFull
	// JitterEqual draws from [d/2, d].
	JitterEqual
)

var jitterNames = [...]string{"down", "none", "proportional", "spread", "full", "equal"}

// String returns the name in lower case, "unknown" for a value without one.
func (k JitterKind) String() string { return enumName(jitterNames[:], int(k)) }

// ParseJitterKind finds a kind by its name, whatever its case.
func ParseJitterKind(name string) (JitterKind, bool) {
	i, ok := enumIndex(jitterNames[:], name)
	return JitterKind(i), ok
}

// Jitter spreads waits, so that runs that failed together do not retry together. The zero value is no jitter.
type Jitter struct {
	Kind JitterKind
	// Fraction of the wait, 0 to 1; of JitterDown and JitterProportional only.
	Fraction float64
}

// DefaultJitter returns jitter down by up to 10 %.
func DefaultJitter() Jitter { return Jitter{Kind: JitterDown, Fraction: 0.1} }

// Apply spreads the wait d under a cap; cap <= 0 is no cap. Any seed will do,
// related ones too. A wait of zero stays zero.
func (j Jitter) Apply(d, cap time.Duration, seed uint64) time.Duration {
	if cap <= 0 {
		cap = forever
	}
	d = min(d, cap)
	if d <= 0 {
		return 0
	}
	random := mixBits(seed)
	half := d - d/2 // of an odd number of nanoseconds the larger one: bounds are exact
	switch j.Kind {
	case JitterDown:
		return d - time.Duration(scaleRandom(fractionOf(d, j.Fraction), random))
	case JitterProportional:
		span := fractionOf(d, j.Fraction)
		return addSaturating(d-time.Duration(span), scaleRandom(2*span, random))
	case JitterSpread:
		return min(addSaturating(half, scaleRandom(uint64(d)-1, random)), cap)
	case JitterFull:
		return time.Duration(scaleRandom(uint64(d), random))
	case JitterEqual:
		return half + time.Duration(scaleRandom(uint64(d-half), random))
	default:
		return d
	}
}
