package backoff

import (
	"fmt"
	"time"
)

// Limits of policies.
const (
	// MaxDelay is the upper bound of every duration in a policy.
	MaxDelay = 366 * 24 * time.Hour
	// MaxMultiplier is the upper bound of multipliers.
	MaxMultiplier = 100
	// MaxExponent is the upper bound of Recurring.MaxExponent. 2^62 times any interval exceeds every cap, so
	// this value means no bound.
	MaxExponent = 62
	// MaxAttempts is the upper bound of Retry.MaxAttempts and MaxDoublings.
	MaxAttempts = 1000
)

// FieldError is one reason why a policy is refused. Field is the path of the
// field in the public API, relative to the policy.
type FieldError struct{ Field, Reason string }

func (e FieldError) Error() string { return e.Field + " " + e.Reason }

// Validate lists invalid fields; none for a valid policy. Fields that the strategy does not use may be zero, but
// must be valid otherwise: a policy with a NaN does not equal itself, and would always look edited.
func (r Retry) Validate() []FieldError {
	var c checker
	c.addUnless(int(r.Strategy) < len(strategyNames), "strategy", "is unknown")
	c.checkDuration("base_delay", r.Base)
	c.addUnless(r.Base != 0 || r.Strategy == Fixed, "base_delay", "is needed: without it %s has no effect", r.Strategy)
	if r.Strategy == Exponential || r.Multiplier != 0 {
		c.checkMultiplier(r.Multiplier)
	}
	c.checkRange("exponent_offset", r.Offset, 0, 1)
	c.checkRange("max_doublings", r.MaxDoublings, 0, MaxAttempts)
	c.checkDuration("max_delay", r.MaxDelay)
	c.addUnless(r.MaxDelay <= 0 || r.MaxDelay >= r.Base, "max_delay", "%v is shorter than base_delay %v", r.MaxDelay,
		r.Base)
	c.checkRange("max_attempts", r.MaxAttempts, 0, MaxAttempts)
	c.checkDuration("max_elapsed", r.MaxElapsed)
	c.checkJitter(r.Jitter)
	return c.errors
}

// Validate lists invalid fields; none for a valid policy. Disabled requires none of the other fields, but those
// that are set must be valid.
func (r Recurring) Validate() []FieldError {
	var c checker
	c.addUnless(!r.StaleHalve || r.StaleAfter != 0, "stale_halve", "has no effect without stale_after")
	c.checkDuration("stale_after", r.StaleAfter)
	if !r.Disabled || r.Multiplier != 0 {
		c.checkMultiplier(r.Multiplier)
	}
	c.checkRange("max_exponent", r.MaxExponent, 0, MaxExponent)
	c.checkDuration("max_delay", r.MaxDelay)
	c.addUnless(r.MaxRatio == 0 || (r.MaxRatio >= 1 && r.MaxRatio <= 1e9), "max_ratio",
		"is %v, want 0 (none) or 1 to 1e9", r.MaxRatio)
	c.checkJitter(r.Jitter)
	return c.errors
}

type checker struct{ errors []FieldError }

func (c *checker) addUnless(ok bool, field, format string, args ...any) {
	if !ok {
		c.addError(field, format, args...)
	}
}

func (c *checker) addError(field, format string, args ...any) {
	c.errors = append(c.errors, FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
}

func (c *checker) checkDuration(field string, d time.Duration) {
	if d < 0 || d > MaxDelay { // not require: its arguments would be allocated for each good policy
		c.addError(field, "is %v, want 0 to %v", d, MaxDelay)
	}
}

func (c *checker) checkRange(field string, n, low, high int) {
	c.addUnless(n >= low && n <= high, field, "is %d, want %d to %d", n, low, high)
}

func (c *checker) checkMultiplier(m float64) {
	if !(m >= 1 && m <= MaxMultiplier) {
		c.addError("multiplier", "is %v, want 1 to %d", m, MaxMultiplier)
	}
}

func (c *checker) checkJitter(j Jitter) {
	c.addUnless(int(j.Kind) < len(jitterNames), "jitter.kind", "is unknown")
	if !(j.Fraction >= 0 && j.Fraction <= 1) {
		c.addError("jitter.fraction", "is %v, want 0 to 1", j.Fraction)
	}
}
