package convert

import (
	"math"
	"slices"

	"github.com/fermata-io/fermata/internal/core/backoff"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Names by value.
var (
	strategies = [...]fermatav1.RetryPolicy_Strategy{
		backoff.Fixed:        fermatav1.RetryPolicy_STRATEGY_FIXED,
		backoff.Linear:       fermatav1.RetryPolicy_STRATEGY_LINEAR,
		backoff.Exponential:  fermatav1.RetryPolicy_STRATEGY_EXPONENTIAL,
		backoff.Decorrelated: fermatav1.RetryPolicy_STRATEGY_DECORRELATED,
	}
	jitterKinds = [...]fermatav1.Jitter_Kind{
		backoff.JitterDown:         fermatav1.Jitter_KIND_DOWN,
		backoff.JitterNone:         fermatav1.Jitter_KIND_NONE,
		backoff.JitterProportional: fermatav1.Jitter_KIND_PROPORTIONAL,
		backoff.JitterSpread:       fermatav1.Jitter_KIND_SPREAD,
		backoff.JitterFull:         fermatav1.Jitter_KIND_FULL,
		backoff.JitterEqual:        fermatav1.Jitter_KIND_EQUAL,
	}
)

// strategyFromPB converts a value; unspecified is exponential. An unknown value becomes one that the model refuses.
func strategyFromPB(word fermatav1.RetryPolicy_Strategy) backoff.Strategy {
	return enumFromPB(strategies[:], word, backoff.Exponential)
}

// jitterKindFromPB converts as strategyFromPB does; unspecified is down.
func jitterKindFromPB(word fermatav1.Jitter_Kind) backoff.JitterKind {
	return enumFromPB(jitterKinds[:], word, backoff.JitterDown)
}

// enumToPB returns UNSPECIFIED for an unknown value.
func enumToPB[P ~int32, M ~uint8](words []P, value M) P {
	if int(value) < len(words) {
		return words[value]
	}
	return 0
}

func enumFromPB[P ~int32, M ~uint8](words []P, word P, unspecified M) M {
	if word == 0 {
		return unspecified
	}
	if i := slices.Index(words, word); i >= 0 {
		return M(i)
	}
	return math.MaxUint8
}
