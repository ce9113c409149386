package licence

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/licenseclassifier/v2/assets"
)

// known returns the text of a licence.
func known(t *testing.T, file string) string {
	t.Helper()
	text, err := assets.ReadLicenseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestClassifyRefuses(t *testing.T) {
	mit := known(t, "License/MIT/pristine.txt")
	tests := []struct {
		name  string
		files []File
		want  string // part of the error
	}{
		{"nothing", nil, "no licence file"},
		{"a notice only", []File{{"NOTICE", mit}}, "no licence file"},
		{"AGPL", []File{{"LICENSE", known(t, "License/AGPL-3.0/license.txt")}}, "AGPL-3.0"},
		{"AGPL in a package below", []File{{"LICENSE", mit}, {"sub/COPYING", known(t, "License/AGPL-3.0/license.txt")}}, "sub/COPYING is AGPL-3.0"},
		{"no sale", []File{{"LICENSE", mit + "\n\n" + known(t, "License/Commons-Clause/license.txt")}}, "Commons-Clause"},
		{"a text of their own", []File{{"LICENSE", "You may use this on Sundays."}}, "no licence that is known"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Classify([]Module{
				{Path: "example.org/fine", Files: []File{{"LICENSE", mit}}},
				{Path: "example.org/bad", Version: "v1.2.3", Files: tt.files},
			})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "example.org/bad v1.2.3") {
				t.Fatalf("error %v, want one that names the module and says %q", err, tt.want)
			}
			if strings.Contains(err.Error(), "fine") {
				t.Errorf("error %v names a module that is fine", err)
			}
		})
	}
}

// TestLinked looks at the commands themselves.
func TestLinked(t *testing.T) {
	modules, err := Linked("../../..", []string{"linux/amd64", "darwin/arm64"})
	if err != nil {
		t.Fatal(err)
	}
	licences := map[string]string{}
	for _, m := range modules {
		licences[m.Path] = m.Expression()
	}
	for path, want := range map[string]string{
		Standard:                           "BSD-3-Clause",
		"google.golang.org/grpc":           "Apache-2.0",
		"github.com/hashicorp/memberlist":  "MPL-2.0",
		"go.yaml.in/yaml/v3":               "Apache-2.0 AND MIT",
		"github.com/alicebob/miniredis/v2": "BSL-1.0 AND MIT AND Unlicense", // those of its packages below
		"go.uber.org/goleak":               "",                              // of tests only
		"github.com/fermata-io/fermata":    "",                              // our own
	} {
		if licences[path] != want {
			t.Errorf("%s is under %q, want %q", path, licences[path], want)
		}
	}
	if !slices.IsSortedFunc(modules[1:], func(a, b Module) int { return strings.Compare(a.Path, b.Path) }) {
		t.Error("the modules are in no order")
	}
}

func TestLicenceFilesOfPackagesAndAbove(t *testing.T) {
	module := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE": "a", "NOTICE.txt": "b", "in/LICENCE-MIT": "c", "in/deep/COPYING.md": "d",
		"in/license.go": "source", "in/LICENSES.json": "other", "aside/LICENSE": "of a package that is not linked",
	} {
		file := filepath.Join(module, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := licenceFiles(module, map[string]bool{filepath.Join(module, "in/deep"): true})
	if err != nil {
		t.Fatal(err)
	}
	want := []File{{"LICENSE", "a"}, {"NOTICE.txt", "b"}, {"in/LICENCE-MIT", "c"}, {"in/deep/COPYING.md", "d"}}
	if !slices.Equal(files, want) {
		t.Errorf("files %q, want %q", files, want)
	}
}

func TestDocumentHasEachTextOnce(t *testing.T) {
	doc := Document([]Module{
		{Path: Standard, Licences: []string{"BSD-3-Clause"}, Files: []File{{"LICENSE", "free as in Go\n"}}},
		{Path: "example.org/a", Version: "v1.0.0", Licences: []string{"MIT"}, Files: []File{{"LICENSE", "free"}, {"NOTICE", "by us"}}},
		{Path: "example.org/b", Version: "v2.0.0", Licences: []string{"Apache-2.0", "MIT"}, Files: []File{{"COPYING", "free"}}},
	})
	for _, want := range []string{
		"| Go standard library and runtime | of the build | BSD-3-Clause |\n",
		"| example.org/b | v2.0.0 | Apache-2.0 AND MIT |\n",
		"## example.org/a/LICENSE, example.org/b/COPYING\n\n````text\nfree\n````\n",
		"## example.org/a/NOTICE\n",
	} {
		if strings.Count(doc, want) != 1 {
			t.Errorf("%q is not there once in\n%s", want, doc)
		}
	}
}
