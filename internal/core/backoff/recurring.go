package backoff

import "time"

// Recurring is how the interval between the runs of a failing recurring job
// grows. It needs two things from the job's state, both durable there: the
// number of failed runs in a row, and when the last of them ended.
type Recurring struct {
	// Disabled: a failing job keeps its interval.
	Disabled bool
	// Multiplier for each failed run, 1 to [MaxMultiplier].
	Multiplier float64
	// MaxExponent is the number of failures after which the interval grows no
	// more, 0 to [MaxExponent].
	MaxExponent int
	// MaxDelay is the absolute cap. It never shortens the job's own interval:
	// the cap in force is max(base, MaxDelay). 0 is no cap.
	MaxDelay time.Duration
	// MaxRatio caps the interval at MaxRatio * base; at least 1, 0 is no cap.
	MaxRatio float64
	// Jitter of the backed-off interval. That of a healthy job is its schedule's.
	Jitter Jitter
	// StaleAfter is the age from which a stored backoff is not trusted; 0 is never.
	StaleAfter time.Duration
	// StaleHalve halves the failures for each StaleAfter that passed, instead of
	// forgetting all of them.
	StaleHalve bool
	// WithinSlot is for cron schedules, which otherwise are exempt from backoff: the waits between the attempts
	// of a run also grow with the failed runs before it ([Retry.NextAfterFailedRuns]), and never reach the next nominal
	// time.
	WithinSlot bool
}

// DefaultRecurring doubles for up to five failures, under an hour, less up to
// 10 %.
func DefaultRecurring() Recurring {
	return Recurring{
		Multiplier:  2,
		MaxExponent: 5,
		MaxDelay:    time.Hour,
		Jitter:      DefaultJitter(),
	}
}

// Interval returns the backed-off interval after so many failed runs in a row,
// before jitter and without the job's clamps. Without failures it is base.
func (r Recurring) Interval(base time.Duration, failures int64) time.Duration {
	base = max(base, 0)
	if r.Disabled || failures <= 0 {
		return base
	}
	exponent := int(min(failures, int64(max(r.MaxExponent, 0))))
	return growDelay(base, r.Multiplier, exponent, r.effectiveCap(base))
}

// Delay returns the wait before the next run, between min and max (0: no bound; min
// wins over a smaller max). After failures it is Interval, spread by Jitter;
// without, or disabled, it is base. The upper bound is applied before jitter as
// well, so that jitter drawn downward is drawn from what will be waited. Jitter
// may draw below base; only min bounds the result from below.
func (r Recurring) Delay(base time.Duration, failures int64, min, max time.Duration, seed uint64) time.Duration {
	d := r.Interval(base, failures)
	if !r.Disabled && failures > 0 {
		d = r.Jitter.Apply(d, capDelay(r.effectiveCap(base), max), seed)
	}
	d = capDelay(d, max)
	if d < min {
		return min
	}
	return d
}

// Trusted judges a stored failure count of this age: the count to go on with,
// and whether the next run is a probe, that is, whether the stored count was too
// old to be believed.
//
// The age is counted from the instant at which the backed-off run was due, not
// from the failure: a backoff that is still being waited out is not stale,
// however long it is.
func (r Recurring) Trusted(failures int64, age time.Duration) (effective int64, probe bool) {
	if failures <= 0 {
		return 0, false
	}
	if r.StaleAfter <= 0 || age < r.StaleAfter {
		return failures, false
	}
	if r.StaleHalve {
		return failures >> min(uint64(age/r.StaleAfter), 63), true
	}
	return 0, true
}

// Ladder lists the intervals after 0, 1, 2 ... failures, before jitter, up to
// the first that later ones do not exceed.
func (r Recurring) Ladder(base time.Duration) []time.Duration {
	steps := []time.Duration{r.Interval(base, 0)}
	for f := int64(1); f <= MaxExponent; f++ {
		d := r.Interval(base, f)
		if d <= steps[len(steps)-1] {
			break
		}
		steps = append(steps, d)
	}
	return steps
}

// effectiveCap returns the smallest cap in force, never below base.
func (r Recurring) effectiveCap(base time.Duration) time.Duration {
	limit := forever
	if r.MaxDelay > 0 {
		limit = max(base, r.MaxDelay)
	}
	if r.MaxRatio > 0 {
		limit = min(limit, scaleDelay(max(base, 0), r.MaxRatio))
	}
	return limit
}

// capDelay applies an upper bound; the bound 0 is none.
func capDelay(d, bound time.Duration) time.Duration {
	if bound > 0 && d > bound {
		return bound
	}
	return d
}
