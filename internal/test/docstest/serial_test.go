package docstest_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestWhatTheRaceDetectorLeavesOut: the Makefile names tests of the store that run without
// the detector. Each of them exists, and there alone: one of the same name elsewhere would
// not run at all.
func TestWhatTheRaceDetectorLeavesOut(t *testing.T) {
	found := regexp.MustCompile(`(?m)^SERIAL := \^\((.+)\)\$\$$`).FindStringSubmatch(read(t, root+"/Makefile"))
	if found == nil {
		t.Fatal("the Makefile says no SERIAL")
	}
	have := testsOf(t)
	for name := range strings.SplitSeq(found[1], "|") {
		var dirs []string
		for dir, names := range have {
			if slices.Contains(names, name) {
				dirs = append(dirs, dir)
			}
		}
		if !slices.Equal(dirs, []string{"internal/test/storetest"}) {
			t.Errorf("%s is in %q, want it in internal/test/storetest alone", name, dirs)
		}
	}
}
