package docstest_test

import (
	"regexp"
	"slices"
	"testing"
)

// TestDocumentsStateTheSimulatedLives: the number of simulated lives in `make test` is set in the Makefile, and
// stated in three documents.
func TestDocumentsStateTheSimulatedLives(t *testing.T) {
	found := regexp.MustCompile(`(?m)^LIVES \?= (\d+)$`).FindStringSubmatch(readFile(t, root+"/Makefile"))
	if found == nil {
		t.Fatal("the Makefile does not set LIVES")
	}
	for _, file := range []string{"CONTRIBUTING.md", "docs/guarantees.md", "docs/faults.md"} {
		if told := livesTold(readFile(t, root+"/"+file)); !slices.Equal(told, found[1:]) {
			t.Errorf("%s states %q lives in make test, the Makefile %s", file, told, found[1])
		}
	}
}

func TestLivesParsing(t *testing.T) {
	for text, want := range map[string][]string{
		"| `make sim` | lives; 300 are part of `make test` |":             {"300"},
		"1,000 simulated lives; 1,300 of them are part of `make test`":    {"1300"},
		"    make sim SEED=1 N=20  # what is part of `make test`\n":       {"20"},
		"`make sim N=1000`; a short form and 5 s are part of `make race`": nil,
	} {
		if told := livesTold(text); !slices.Equal(told, want) {
			t.Errorf("%q: found %q, want %q", text, told, want)
		}
	}
}
