package chart

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFilesAreCurrent: a chart can only read files of its own, so it has copies of the rules and dashboards. They are
// made by scripts/chart-files.sh.
func TestFilesAreCurrent(t *testing.T) {
	for _, kind := range []struct{ from, to, suffix string }{
		{root + "/deploy/prometheus", chartDir + "/files/prometheus", ".yaml"},
		{root + "/deploy/grafana", chartDir + "/files/grafana", ".json"},
	} {
		want, got := texts(t, kind.from, kind.suffix), texts(t, kind.to, kind.suffix)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if got[name] != want[name] {
				t.Errorf("%s/%s is not that of %s: run make chart-update", kind.to, name, kind.from)
			}
		}
		for name := range got {
			if _, ok := want[name]; !ok {
				t.Errorf("%s/%s is not in %s", kind.to, name, kind.from)
			}
		}
	}
}

// texts are the files of a directory that go into the chart: tests of rules do not.
func texts(t *testing.T, dir, suffix string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(dir + "/*" + suffix)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(path); !strings.HasSuffix(name, "_test"+suffix) {
			out[name] = string(text)
		}
	}
	return out
}
