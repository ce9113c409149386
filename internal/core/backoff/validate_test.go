package backoff_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
)

func fieldTable(errs []backoff.FieldError) (names []string) {
	for _, e := range errs {
		if e.Reason == "" || e.Error() != e.Field+" "+e.Reason {
			names = append(names, "bad text of "+e.Field)
		}
		names = append(names, e.Field)
	}
	return names
}

func TestValidateRetry(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*backoff.Retry)
		want   []string
	}{
		"default":              {func(*backoff.Retry) {}, nil},
		"at once":              {func(r *backoff.Retry) { *r = backoff.Retry{MaxAttempts: 3} }, nil},
		"unlimited":            {func(r *backoff.Retry) { r.MaxAttempts, r.MaxDelay, r.MaxElapsed = 0, 0, 0 }, nil},
		"strategy":             {func(r *backoff.Retry) { r.Strategy = 4 }, []string{"strategy"}},
		"no base":              {func(r *backoff.Retry) { r.Base = 0 }, []string{"base_delay"}},
		"negative base":        {func(r *backoff.Retry) { r.Base = -1 }, []string{"base_delay"}},
		"long base":            {func(r *backoff.Retry) { r.Base, r.MaxDelay = backoff.MaxDelay+1, 0 }, []string{"base_delay"}},
		"multiplier":           {func(r *backoff.Retry) { r.Multiplier = 0.5 }, []string{"multiplier"}},
		"NaN":                  {func(r *backoff.Retry) { r.Multiplier = math.NaN() }, []string{"multiplier"}},
		"Inf":                  {func(r *backoff.Retry) { r.Multiplier = math.Inf(1) }, []string{"multiplier"}},
		"fixed needs none":     {func(r *backoff.Retry) { r.Strategy, r.Multiplier = backoff.Fixed, 0 }, nil},
		"linear, NaN":          {func(r *backoff.Retry) { r.Strategy, r.Multiplier = backoff.Linear, math.NaN() }, []string{"multiplier"}},
		"fixed, half":          {func(r *backoff.Retry) { r.Strategy, r.Multiplier = backoff.Fixed, 0.5 }, []string{"multiplier"}},
		"linear, offset":       {func(r *backoff.Retry) { r.Strategy, r.Offset = backoff.Linear, -1 }, []string{"exponent_offset"}},
		"offset":               {func(r *backoff.Retry) { r.Offset = 2 }, []string{"exponent_offset"}},
		"doublings":            {func(r *backoff.Retry) { r.MaxDoublings = -1 }, []string{"max_doublings"}},
		"max delay":            {func(r *backoff.Retry) { r.MaxDelay = -1 }, []string{"max_delay"}},
		"max delay below base": {func(r *backoff.Retry) { r.MaxDelay = time.Millisecond }, []string{"max_delay"}},
		"attempts":             {func(r *backoff.Retry) { r.MaxAttempts = 1001 }, []string{"max_attempts"}},
		"negative attempts":    {func(r *backoff.Retry) { r.MaxAttempts = -1 }, []string{"max_attempts"}},
		"elapsed":              {func(r *backoff.Retry) { r.MaxElapsed = -1 }, []string{"max_elapsed"}},
		"jitter kind":          {func(r *backoff.Retry) { r.Jitter.Kind = 6 }, []string{"jitter.kind"}},
		"jitter fraction":      {func(r *backoff.Retry) { r.Jitter.Fraction = math.NaN() }, []string{"jitter.fraction"}},
		"two": {func(r *backoff.Retry) { r.Multiplier, r.Jitter.Fraction = 101, 1.1 },
			[]string{"multiplier", "jitter.fraction"}},
	} {
		r := backoff.DefaultRetry()
		c.change(&r)
		if got := fieldTable(r.Validate()); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestValidateRecurring(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*backoff.Recurring)
		want   []string
	}{
		"default":         {func(*backoff.Recurring) {}, nil},
		"disabled":        {func(r *backoff.Recurring) { *r = backoff.Recurring{Disabled: true} }, nil},
		"no caps":         {func(r *backoff.Recurring) { r.MaxDelay, r.MaxExponent = 0, backoff.MaxExponent }, nil},
		"zero":            {func(r *backoff.Recurring) { *r = backoff.Recurring{} }, []string{"multiplier"}},
		"exponent":        {func(r *backoff.Recurring) { r.MaxExponent = 63 }, []string{"max_exponent"}},
		"negative":        {func(r *backoff.Recurring) { r.MaxExponent = -1 }, []string{"max_exponent"}},
		"delay":           {func(r *backoff.Recurring) { r.MaxDelay = -1 }, []string{"max_delay"}},
		"ratio":           {func(r *backoff.Recurring) { r.MaxRatio = 0.9 }, []string{"max_ratio"}},
		"NaN ratio":       {func(r *backoff.Recurring) { r.MaxRatio = math.NaN() }, []string{"max_ratio"}},
		"jitter":          {func(r *backoff.Recurring) { r.Jitter.Fraction = 2 }, []string{"jitter.fraction"}},
		"stale":           {func(r *backoff.Recurring) { r.StaleAfter = -1 }, []string{"stale_after"}},
		"halve":           {func(r *backoff.Recurring) { r.StaleAfter, r.StaleHalve = time.Hour, true }, nil},
		"halve of never":  {func(r *backoff.Recurring) { r.StaleHalve = true }, []string{"stale_halve"}},
		"disabled, kept":  {func(r *backoff.Recurring) { r.Disabled = true }, nil},
		"disabled, NaN":   {func(r *backoff.Recurring) { r.Disabled, r.Multiplier = true, math.NaN() }, []string{"multiplier"}},
		"disabled, ratio": {func(r *backoff.Recurring) { r.Disabled, r.MaxRatio = true, math.NaN() }, []string{"max_ratio"}},
		"disabled, stale": {func(r *backoff.Recurring) { r.Disabled, r.StaleAfter = true, -1 }, []string{"stale_after"}},
	} {
		r := backoff.DefaultRecurring()
		c.change(&r)
		if got := fieldTable(r.Validate()); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Policies that Validate refuses still give waits, those of the nearest policy
// that it accepts.
func TestRefusedPoliciesAreTotal(t *testing.T) {
	for _, m := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -3, 0, 0.5, 1e300} {
		want := time.Second
		if m > 1 {
			want = 100 * time.Second
		}
		r := backoff.Retry{Strategy: backoff.Exponential, Base: time.Second, Multiplier: m}
		if got := r.Delay(2, 0); got != want {
			t.Errorf("multiplier %v: %v, want %v", m, got, want)
		}
	}
	if got := (backoff.Recurring{Multiplier: 2, MaxExponent: -4}).Interval(-time.Second, 3); got != 0 {
		t.Errorf("negative base: %v", got)
	}
	if got := (backoff.Recurring{Multiplier: 2, MaxExponent: 9, MaxRatio: math.Inf(1)}).Interval(time.Second, 3); got != 8*time.Second {
		t.Errorf("infinite ratio: %v", got)
	}
	if got := (backoff.Recurring{Multiplier: 2, MaxExponent: 9, MaxRatio: 0.1}).Interval(time.Second, 3); got != time.Second {
		t.Errorf("ratio below one: %v", got)
	}
}
