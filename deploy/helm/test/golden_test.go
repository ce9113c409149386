package chart

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write golden files and the chart's README")

// TestGolden shows in a review what a change of the chart does to a cluster.
func TestGolden(t *testing.T) {
	for _, name := range sets {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			for _, o := range objects(t, set(t, name)) {
				text.WriteString("---\n# " + strings.TrimPrefix(o.file, "fermata/") + "\n" + o.text + "\n")
			}
			golden(t, filepath.Join("testdata", name+".golden.yaml"), text.String())
			files, err := render(set(t, name))
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", name+".notes.golden"), files["fermata/templates/NOTES.txt"])
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	have, wanted := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range have {
		if i >= len(wanted) || have[i] != wanted[i] {
			t.Fatalf("%s differs at line %d (make chart-update writes it anew):\n got %s\nwant %s", path, i+1, have[i], strings.Join(wanted[i:min(i+1, len(wanted))], ""))
		}
	}
	t.Fatalf("%s: %d lines, want %d", path, len(have), len(wanted))
}
