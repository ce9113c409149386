package rpc

import (
	"cmp"
	"time"

	"github.com/fermata-io/fermata/internal/backoff"
	"github.com/fermata-io/fermata/internal/policypb"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// retry reads a policy, or the preset that it names; fields that are unset keep
// their default.
func (r *reader) retry(field string, p *fermatav1.RetryPolicy) backoff.Retry {
	if preset, ok := r.preset(field, p.GetPreset(), p, hasRetry); ok {
		return *preset.Retry
	}
	def := backoff.DefaultRetry()
	retry := backoff.Retry{
		Strategy:     policypb.Strategy(p.GetStrategy()),
		Base:         r.duration(field, ".base_delay", p.GetBaseDelay(), def.Base),
		Multiplier:   cmp.Or(p.GetMultiplier(), def.Multiplier),
		Offset:       int(p.GetExponentOffset()),
		MaxDoublings: int(p.GetMaxDoublings()),
		MaxAttempts:  cmp.Or(int(p.GetMaxAttempts()), def.MaxAttempts),
		MaxElapsed:   r.duration(field, ".max_elapsed", p.GetMaxElapsed(), 0),
		Jitter:       jitterFromPB(p.GetJitter()),
	}
	// A long base delay alone is no contradiction to a cap that nobody set.
	retry.MaxDelay = r.duration(field, ".max_delay", p.GetMaxDelay(), max(def.MaxDelay, min(retry.Base, backoff.Longest)))
	return retry
}

// recurring is a backoff policy with the bounds of the interval, which the model
// keeps beside it.
type recurring struct {
	backoff.Recurring
	min, max time.Duration
}

// backoff reads a policy, or the preset that it names.
func (r *reader) backoff(field string, p *fermatav1.BackoffPolicy) recurring {
	if preset, ok := r.preset(field, p.GetPreset(), p, hasRecurring); ok {
		return recurring{Recurring: *preset.Recurring, min: preset.MinInterval}
	}
	def := backoff.DefaultRecurring()
	b := backoff.Recurring{
		Disabled:    p.GetDisabled(),
		Multiplier:  cmp.Or(p.GetMultiplier(), def.Multiplier),
		MaxExponent: def.MaxExponent,
		MaxDelay:    r.duration(field, ".max_delay", p.GetMaxDelay(), def.MaxDelay),
		MaxRatio:    p.GetMaxRatio(),
		Jitter:      jitterFromPB(p.GetJitter()),
		StaleAfter:  r.duration(field, ".stale_after", p.GetStaleAfter(), 0),
		StaleHalve:  p.GetStaleHalve(),
		WithinSlot:  p.GetWithinSlot(),
	}
	if p.MaxExponent != nil {
		b.MaxExponent = int(*p.MaxExponent)
	}
	return recurring{
		Recurring: b,
		min:       r.duration(field, ".min_interval", p.GetMinInterval(), 0),
		max:       r.duration(field, ".max_interval", p.GetMaxInterval(), 0),
	}
}

func jitterFromPB(p *fermatav1.Jitter) backoff.Jitter {
	if p == nil {
		return backoff.DefaultJitter()
	}
	j := backoff.Jitter{Kind: policypb.JitterKind(p.GetKind())}
	switch {
	case p.Fraction != nil:
		j.Fraction = *p.Fraction
	case j.Kind == backoff.JitterDown || j.Kind == backoff.JitterProportional:
		j.Fraction = backoff.DefaultJitter().Fraction
	}
	return j
}

// pair is one name of an enum on both sides.
type pair[P ~int32, M ~uint8] struct {
	api   P
	model M
}

// enum translates both ways. Of several pairs with the same value the first
// counts. Values without a pair become unknown, which the model refuses, and the
// API's unspecified.
type enum[P ~int32, M ~uint8] []pair[P, M]

const unknown = 255

func (e enum[P, M]) model(p P) M {
	for _, row := range e {
		if row.api == p {
			return row.model
		}
	}
	return unknown
}

func (e enum[P, M]) pb(m M) P {
	for _, row := range e {
		if row.model == m && row.api != 0 {
			return row.api
		}
	}
	return 0
}
