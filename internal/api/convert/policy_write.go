package convert

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/core/backoff"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// RetryPolicyToPB writes a policy of the attempts of one run.
func RetryPolicyToPB(r backoff.Retry) *fermatav1.RetryPolicy {
	return &fermatav1.RetryPolicy{
		Strategy:       enumToPB(strategies[:], r.Strategy),
		BaseDelay:      durationpb.New(r.Base),
		Multiplier:     r.Multiplier,
		ExponentOffset: int32(r.Offset),
		MaxDoublings:   int32(r.MaxDoublings),
		MaxDelay:       durationpb.New(r.MaxDelay),
		MaxAttempts:    int32(r.MaxAttempts),
		MaxElapsed:     nonZeroDurationToPB(r.MaxElapsed),
		Jitter:         jitterToPB(r.Jitter),
	}
}

// BackoffPolicyToPB writes a policy of the intervals between runs, with the bounds of the
// interval, which the model keeps beside it; 0 is none.
func BackoffPolicyToPB(b backoff.Recurring, shortest, longest time.Duration) *fermatav1.BackoffPolicy {
	return &fermatav1.BackoffPolicy{
		Disabled:     b.Disabled,
		Multiplier:   b.Multiplier,
		MaxExponent:  new(int32(b.MaxExponent)),
		MaxDelay:     durationpb.New(b.MaxDelay),
		MaxRatio:     b.MaxRatio,
		Jitter:       jitterToPB(b.Jitter),
		StaleAfter:   nonZeroDurationToPB(b.StaleAfter),
		StaleHalve:   b.StaleHalve,
		WithinPeriod: b.WithinSlot,
		MinInterval:  nonZeroDurationToPB(shortest),
		MaxInterval:  nonZeroDurationToPB(longest),
	}
}

// jitterToPB writes how delays are spread.
func jitterToPB(j backoff.Jitter) *fermatav1.Jitter {
	return &fermatav1.Jitter{Kind: enumToPB(jitterKinds[:], j.Kind), Fraction: new(j.Fraction)}
}
