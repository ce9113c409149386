package backoff

import (
	"math"
	"time"
)

// Retry is the policy for the attempts of one run.
type Retry struct {
	Strategy Strategy
	// Base is the unit of the curve, 0 to [MaxDelay]. Zero, with Fixed only,
	// retries at once.
	Base time.Duration
	// Multiplier of Exponential, 1 to [MaxMultiplier].
	Multiplier float64
	// Offset of the exponent of Exponential. 0: the first wait is Base.
	// 1: it is Base * Multiplier.
	Offset int
	// MaxDoublings is how often Exponential multiplies before it goes on in
	// equal steps, each as long as the last wait it multiplied to. 0 is no
	// limit. This is the curve of Google Cloud Tasks, where none at all (there 0)
	// is Linear here.
	MaxDoublings int
	// MaxDelay caps every wait; 0 is no cap.
	MaxDelay time.Duration
	// MaxAttempts counts the first one too: 1 is no retries, 0 no limit.
	MaxAttempts int
	// MaxElapsed is the latest start of an attempt after the start of the first;
	// 0 is no limit.
	MaxElapsed time.Duration
	// Jitter of every strategy but Decorrelated, which is random by itself.
	Jitter Jitter
}

// DefaultRetry returns three attempts, 1 s and 2 s apart, less up to 10 %. The curve
// doubles up to 5 minutes for those who only raise the number of attempts.
func DefaultRetry() Retry {
	return Retry{
		Strategy:    Exponential,
		Base:        time.Second,
		Multiplier:  2,
		MaxDelay:    5 * time.Minute,
		MaxAttempts: 3,
		Jitter:      DefaultJitter(),
	}
}

// Delay returns the wait before attempt failed+1. Before the first attempt
// (failed < 1) there is none.
//
// A decorrelated wait is the last of a walk of that many steps, all derived from
// the seed. With a seed that is the same for all attempts of a run each wait
// builds on the one before; with a seed for each attempt it is distributed
// alike.
func (r Retry) Delay(failed int, seed uint64) time.Duration {
	if failed < 1 {
		return 0
	}
	if r.Strategy == Decorrelated {
		return r.decorrelatedDelay(failed, seed)
	}
	return r.Jitter.Apply(r.undisturbedDelay(failed), r.effectiveCap(), seed)
}

// Next returns Delay, and whether there is another attempt at all: false when failed
// attempts have used up MaxAttempts, or when the next one would start later than
// MaxElapsed. elapsed is the time since the first attempt started.
func (r Retry) Next(failed int, elapsed time.Duration, seed uint64) (time.Duration, bool) {
	return r.NextAfterFailedRuns(failed, 0, elapsed, seed)
}

// NextAfterFailedRuns is Next for a run that follows that many failed ones in a row (before), as
// [Recurring.WithinSlot] has it: its waits start that far up the curve. The failed
// runs use up none of its attempts, and its first one does not wait for them.
func (r Retry) NextAfterFailedRuns(failed int, before int64, elapsed time.Duration, seed uint64) (time.Duration, bool) {
	if r.MaxAttempts > 0 && failed >= r.MaxAttempts {
		return 0, false
	}
	index := failed
	if failed > 0 && before > 0 {
		index += int(min(before, int64(math.MaxInt-failed)))
	}
	d := r.Delay(index, seed)
	if r.MaxElapsed > 0 && addSaturating(max(elapsed, 0), uint64(d)) > r.MaxElapsed {
		return 0, false
	}
	return d, true
}

// Ladder lists the first waits before jitter, at most limit and no more than
// there are retries. For Decorrelated they are the longest ones possible.
func (r Retry) Ladder(limit int) []time.Duration {
	if r.MaxAttempts > 0 {
		limit = min(limit, r.MaxAttempts-1)
	}
	waits := make([]time.Duration, max(limit, 0))
	for i := range waits {
		waits[i] = r.undisturbedDelay(i + 1)
	}
	return waits
}

// undisturbedDelay returns the wait before jitter, under the cap.
func (r Retry) undisturbedDelay(failed int) time.Duration {
	base, limit := max(r.Base, 0), r.effectiveCap()
	switch r.Strategy {
	case Linear:
		return min(multiplyDelay(base, uint64(failed)), limit)
	case Exponential:
		return r.exponentialDelay(base, failed-1+min(max(r.Offset, 0), 1), limit)
	case Decorrelated:
		return growDelay(base, decorrelatedFactor, failed, limit)
	default:
		return min(base, limit)
	}
}

func (r Retry) exponentialDelay(base time.Duration, exponent int, limit time.Duration) time.Duration {
	if r.MaxDoublings <= 0 || exponent <= r.MaxDoublings {
		return growDelay(base, r.Multiplier, exponent, limit)
	}
	step := growDelay(base, r.Multiplier, r.MaxDoublings, limit)
	return min(multiplyDelay(step, uint64(exponent-r.MaxDoublings)+1), limit)
}

// decorrelatedFactor bounds a decorrelated wait by the one before.
const decorrelatedFactor = 3

// decorrelatedDelay returns the decorrelated wait. The cap bounds the range that a step is drawn
// from, not what was drawn: otherwise a quarter of all long waits would lie
// exactly on the cap. A walk forgets where it began, so a long one may begin
// late.
func (r Retry) decorrelatedDelay(failed int, seed uint64) time.Duration {
	if r.Base <= 0 {
		return 0
	}
	limit := r.effectiveCap()
	low := min(r.Base, limit)
	wait := low
	steps := min(failed, maxSteps)
	for i := range steps {
		step := uint64(failed - steps + 1 + i)
		high := min(multiplyDelay(wait, decorrelatedFactor), limit)
		wait = low + time.Duration(scaleRandom(uint64(high-low), mixBits(seed+step*goldenGamma)))
	}
	return wait
}

func (r Retry) effectiveCap() time.Duration {
	if r.MaxDelay > 0 {
		return r.MaxDelay
	}
	return forever
}
