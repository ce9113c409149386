package convert

import (
	"math"
	"slices"

	"github.com/fermata-io/fermata/internal/core/backoff"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Words by the values that they mean.
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

// strategyFromPB reads a word; unspecified is exponential. One that is not known becomes a
// value that the model refuses.
func strategyFromPB(word fermatav1.RetryPolicy_Strategy) backoff.Strategy {
	return enumFromPB(strategies[:], word, backoff.Exponential)
}

// jitterKindFromPB reads a word as strategyFromPB does; unspecified is down.
func jitterKindFromPB(word fermatav1.Jitter_Kind) backoff.JitterKind {
	return enumFromPB(jitterKinds[:], word, backoff.JitterDown)
}

// enumToPB is the unspecified word for a value that has none.
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
