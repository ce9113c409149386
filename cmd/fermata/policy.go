package main

import (
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/backoff"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// retryPolicy and backoffPolicy write policies of the model as those of the API.
// Every field that has a default is set, also where it is zero: the server takes
// an unset one for its default, and no cap is not the default cap.

func retryPolicy(r backoff.Retry) *client.RetryPolicy {
	p := &client.RetryPolicy{
		Strategy:       fermatav1.RetryPolicy_Strategy(fermatav1.RetryPolicy_Strategy_value["STRATEGY_"+strings.ToUpper(r.Strategy.String())]),
		BaseDelay:      durationpb.New(r.Base),
		Multiplier:     r.Multiplier,
		ExponentOffset: int32(r.Offset),
		MaxDoublings:   int32(r.MaxDoublings),
		MaxDelay:       durationpb.New(r.MaxDelay),
		MaxAttempts:    int32(r.MaxAttempts),
		Jitter:         jitterPolicy(r.Jitter),
	}
	if r.MaxElapsed > 0 {
		p.MaxElapsed = durationpb.New(r.MaxElapsed)
	}
	return p
}

// backoffPolicy takes the bound of the interval from the preset beside its policy.
func backoffPolicy(preset backoff.Preset) *client.BackoffPolicy {
	r := preset.Recurring
	p := &client.BackoffPolicy{
		Disabled:    r.Disabled,
		Multiplier:  r.Multiplier,
		MaxExponent: new(int32(r.MaxExponent)),
		MaxDelay:    durationpb.New(r.MaxDelay),
		MaxRatio:    r.MaxRatio,
		Jitter:      jitterPolicy(r.Jitter),
		StaleHalve:  r.StaleHalve,
		WithinSlot:  r.WithinSlot,
	}
	if r.StaleAfter > 0 {
		p.StaleAfter = durationpb.New(r.StaleAfter)
	}
	if preset.MinInterval > 0 {
		p.MinInterval = durationpb.New(preset.MinInterval)
	}
	return p
}

func jitterPolicy(j backoff.Jitter) *fermatav1.Jitter {
	kind := fermatav1.Jitter_Kind_value["KIND_"+strings.ToUpper(j.Kind.String())]
	return &fermatav1.Jitter{Kind: fermatav1.Jitter_Kind(kind), Fraction: new(j.Fraction)}
}
