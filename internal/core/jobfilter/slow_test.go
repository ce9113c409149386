package jobfilter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/jobfilter"
)

// TestLongFiltersParseFast parses filters whose nesting makes the library look ahead most.
func TestLongFiltersParseFast(t *testing.T) {
	for _, filter := range []string{
		strings.Repeat("(", 16) + strings.Repeat("id = a OR ", 63) + "b" + strings.Repeat(")", 16),
		strings.Repeat("NOT (", 16) + "a" + strings.Repeat(")", 16),
		strings.Repeat("-(a OR ", 16) + "a" + strings.Repeat(")", 16),
		"labels" + strings.Repeat(".a", 1000) + " = x",
		"id = " + strings.Repeat("*a", 1000),
		strings.Repeat("(a (", 8) + strings.Repeat("-", 1900),
	} {
		began := time.Now()
		f, err := jobfilter.Parse(filter)
		r := specimen()
		r.State.LastError = strings.Repeat("a", 512)
		f.Matches(r, now)
		// It takes below a millisecond; the bound is that of a hang.
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%.40s took %v", filter, took)
		}
		t.Logf("%.40s: %v in %v", filter, err, time.Since(began))
	}
}
