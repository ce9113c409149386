package jobfilter_test

import (
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/jobfilter"
)

// mostAllocations is several times what a filter of the greatest length takes. To look ahead anew at each of 16 levels
// would take 2^16 times what one level takes.
const mostAllocations = 20_000

// TestLongFiltersParseFast parses filters whose nesting makes the library look ahead most. The work is counted in
// allocations, which do not depend on the machine.
func TestLongFiltersParseFast(t *testing.T) {
	for _, filter := range []string{
		strings.Repeat("(", 16) + strings.Repeat("id = a OR ", 63) + "b" + strings.Repeat(")", 16),
		strings.Repeat("NOT (", 16) + "a" + strings.Repeat(")", 16),
		strings.Repeat("-(a OR ", 16) + "a" + strings.Repeat(")", 16),
		"labels" + strings.Repeat(".a", 1000) + " = x",
		"id = " + strings.Repeat("*a", 1000),
		strings.Repeat("(a (", 8) + strings.Repeat("-", 1900),
	} {
		r := specimen()
		r.State.LastError = strings.Repeat("a", 512)
		var f *jobfilter.Filter
		var err error
		allocations := testing.AllocsPerRun(1, func() { f, err = jobfilter.Parse(filter) })
		if allocations > mostAllocations {
			t.Errorf("%.40s: %v allocations", filter, allocations)
		}
		t.Logf("%.40s: %v, %v allocations", filter, err, allocations)
		if f != nil {
			f.Matches(r, now)
		}
	}
}
