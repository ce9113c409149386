package rpc

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/backoff"
	"github.com/fermata-io/fermata/internal/job"
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
		Strategy:     strategyFromPB(p.GetStrategy()),
		Base:         r.duration(field+".base_delay", p.GetBaseDelay(), def.Base),
		Multiplier:   cmp.Or(p.GetMultiplier(), def.Multiplier),
		Offset:       int(p.GetExponentOffset()),
		MaxDoublings: int(p.GetMaxDoublings()),
		MaxAttempts:  cmp.Or(int(p.GetMaxAttempts()), def.MaxAttempts),
		MaxElapsed:   r.duration(field+".max_elapsed", p.GetMaxElapsed(), 0),
		Jitter:       jitterFromPB(p.GetJitter()),
	}
	// A long base delay alone is no contradiction to a cap that nobody set.
	retry.MaxDelay = r.duration(field+".max_delay", p.GetMaxDelay(), max(def.MaxDelay, min(retry.Base, backoff.Longest)))
	return retry
}

func retryToPB(r backoff.Retry) *fermatav1.RetryPolicy {
	return &fermatav1.RetryPolicy{
		Strategy:       strategyToPB(r.Strategy),
		BaseDelay:      durationpb.New(r.Base),
		Multiplier:     r.Multiplier,
		ExponentOffset: int32(r.Offset),
		MaxDoublings:   int32(r.MaxDoublings),
		MaxDelay:       durationpb.New(r.MaxDelay),
		MaxAttempts:    int32(r.MaxAttempts),
		MaxElapsed:     positive(r.MaxElapsed),
		Jitter:         jitterToPB(r.Jitter),
	}
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
		MaxDelay:    r.duration(field+".max_delay", p.GetMaxDelay(), def.MaxDelay),
		MaxRatio:    p.GetMaxRatio(),
		Jitter:      jitterFromPB(p.GetJitter()),
		StaleAfter:  r.duration(field+".stale_after", p.GetStaleAfter(), 0),
		StaleHalve:  p.GetStaleHalve(),
		WithinSlot:  p.GetWithinSlot(),
	}
	if p.MaxExponent != nil {
		b.MaxExponent = int(*p.MaxExponent)
	}
	return recurring{
		Recurring: b,
		min:       r.duration(field+".min_interval", p.GetMinInterval(), 0),
		max:       r.duration(field+".max_interval", p.GetMaxInterval(), 0),
	}
}

func backoffToPB(d *job.Definition) *fermatav1.BackoffPolicy {
	b := d.Backoff
	return &fermatav1.BackoffPolicy{
		Disabled:    b.Disabled,
		Multiplier:  b.Multiplier,
		MaxExponent: new(int32(b.MaxExponent)),
		MaxDelay:    durationpb.New(b.MaxDelay),
		MaxRatio:    b.MaxRatio,
		Jitter:      jitterToPB(b.Jitter),
		StaleAfter:  positive(b.StaleAfter),
		StaleHalve:  b.StaleHalve,
		WithinSlot:  b.WithinSlot,
		MinInterval: positive(d.MinInterval),
		MaxInterval: positive(d.MaxInterval),
	}
}

func jitterFromPB(p *fermatav1.Jitter) backoff.Jitter {
	if p == nil {
		return backoff.DefaultJitter()
	}
	j := backoff.Jitter{Kind: jitterKinds.model(p.GetKind())}
	switch {
	case p.Fraction != nil:
		j.Fraction = *p.Fraction
	case j.Kind == backoff.JitterDown || j.Kind == backoff.JitterProportional:
		j.Fraction = backoff.DefaultJitter().Fraction
	}
	return j
}

func jitterToPB(j backoff.Jitter) *fermatav1.Jitter {
	return &fermatav1.Jitter{Kind: jitterKinds.pb(j.Kind), Fraction: new(j.Fraction)}
}

func strategyFromPB(s fermatav1.RetryPolicy_Strategy) backoff.Strategy { return strategies.model(s) }
func strategyToPB(s backoff.Strategy) fermatav1.RetryPolicy_Strategy   { return strategies.pb(s) }

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

var strategies = enum[fermatav1.RetryPolicy_Strategy, backoff.Strategy]{
	{fermatav1.RetryPolicy_STRATEGY_UNSPECIFIED, backoff.Exponential},
	{fermatav1.RetryPolicy_STRATEGY_FIXED, backoff.Fixed},
	{fermatav1.RetryPolicy_STRATEGY_LINEAR, backoff.Linear},
	{fermatav1.RetryPolicy_STRATEGY_EXPONENTIAL, backoff.Exponential},
	{fermatav1.RetryPolicy_STRATEGY_DECORRELATED, backoff.Decorrelated},
}

var jitterKinds = enum[fermatav1.Jitter_Kind, backoff.JitterKind]{
	{fermatav1.Jitter_KIND_UNSPECIFIED, backoff.JitterDown},
	{fermatav1.Jitter_KIND_NONE, backoff.JitterNone},
	{fermatav1.Jitter_KIND_DOWN, backoff.JitterDown},
	{fermatav1.Jitter_KIND_PROPORTIONAL, backoff.JitterProportional},
	{fermatav1.Jitter_KIND_SPREAD, backoff.JitterSpread},
	{fermatav1.Jitter_KIND_FULL, backoff.JitterFull},
	{fermatav1.Jitter_KIND_EQUAL, backoff.JitterEqual},
}
