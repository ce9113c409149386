package convert

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fermata-io/fermata/internal/core/backoff"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestWordsAndValues: every word of the API comes back, every value of the model has a
// word, and what is neither is not taken for something else.
func TestWordsAndValues(t *testing.T) {
	check := func(name string, words map[int32]string, values int, back func(int32) int32, write func(uint8) int32) {
		t.Helper()
		if len(words) != values+1 {
			t.Errorf("%s: %d words for %d values", name, len(words), values)
		}
		for word, text := range words {
			if word != 0 && back(word) != word {
				t.Errorf("%s %s comes back as %d", name, text, back(word))
			}
		}
		if write(math.MaxUint8) != 0 || back(99) != 0 {
			t.Errorf("%s: what is not known has a word", name)
		}
	}
	writeStrategy := func(m uint8) int32 {
		return int32(RetryPolicyToPB(backoff.Retry{Strategy: backoff.Strategy(m)}).GetStrategy())
	}
	check("strategy", fermatav1.RetryPolicy_Strategy_name, len(strategies), func(w int32) int32 {
		return writeStrategy(uint8(strategyFromPB(fermatav1.RetryPolicy_Strategy(w))))
	}, writeStrategy)
	writeJitter := func(m uint8) int32 { return int32(jitterToPB(backoff.Jitter{Kind: backoff.JitterKind(m)}).GetKind()) }
	check("jitter", fermatav1.Jitter_Kind_name, len(jitterKinds), func(w int32) int32 {
		return writeJitter(uint8(jitterKindFromPB(fermatav1.Jitter_Kind(w))))
	}, writeJitter)
	if strategyFromPB(0) != backoff.Exponential || jitterKindFromPB(0) != backoff.JitterDown {
		t.Error("the unspecified words mean something else")
	}
}

// TestZerosAreWritten: a policy of zeros is not taken for one of defaults.
func TestZerosAreWritten(t *testing.T) {
	// What has no presence has no default but zero, or is refused as zero.
	without := func(m proto.Message) (unset []protoreflect.Name) {
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if f := fields.Get(i); f.HasPresence() && !m.ProtoReflect().Has(f) {
				unset = append(unset, f.Name())
			}
		}
		return unset
	}
	if unset := without(RetryPolicyToPB(backoff.Retry{})); len(unset) != 1 || unset[0] != "max_elapsed" {
		t.Errorf("of retries %v are unset", unset)
	}
	if unset := without(BackoffPolicyToPB(backoff.Recurring{}, 0, 0)); len(unset) != 3 {
		t.Errorf("of backoff %v are unset", unset)
	}
	if unset := without(BackoffPolicyToPB(backoff.Recurring{StaleAfter: 1}, time.Second, time.Hour)); len(unset) != 0 {
		t.Errorf("of backoff with bounds %v are unset", unset)
	}
	if unset := without(jitterToPB(backoff.Jitter{})); len(unset) != 0 {
		t.Errorf("of jitter %v are unset", unset)
	}
}
