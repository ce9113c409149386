package job

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// TestEventsCarryFewBytesOfLabels: all labels where they are few, or else the shortest.
func TestEventsCarryFewBytesOfLabels(t *testing.T) {
	few := map[string]string{"tier": "gold", "team": strings.Repeat("x", 128)}
	if got := EventLabels(few); !maps.Equal(got, few) {
		t.Errorf("of few labels an event carries %v", got)
	}
	many := maps.Clone(few)
	for i := range DefaultLimits().MaxLabels - len(few) {
		many[strings.Repeat("n", 126)+fmt.Sprintf("%02d", i)] = strings.Repeat("<", 128)
	}
	got := EventLabels(many)
	if n := labelBytes(got); n > MaxEventLabels || n < MaxEventLabels/2 {
		t.Errorf("an event carries %d bytes of labels", n)
	}
	for name, value := range few {
		if got[name] != value {
			t.Errorf("the short label %s is left out", name)
		}
	}
	if again := EventLabels(many); !maps.Equal(got, again) {
		t.Error("two events of a job carry different labels")
	}
}
