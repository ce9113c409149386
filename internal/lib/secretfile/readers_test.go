package secretfile

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// otherReaders are the sources of this module that open files by themselves, and why (a directory ends in a slash):
// whoever may write what they read gains nothing, or they have checks of their own.
var otherReaders = map[string]string{
	"cmd/fermata/audit_export.go":                  "the export, which is written",
	"cmd/fermata/audit_verify.go":                  "the export, which is what is verified",
	"cmd/fermata/events.go":                        "a place in the stream of events",
	"cmd/fermata/inputs.go":                        "jobs and payloads of the caller",
	"internal/lib/secretfile/file.go":              "the reader that checks",
	"internal/lib/privatefile/privatefile.go":      "sessions and settings, which are written",
	"internal/lib/privatefile/privatefile_unix.go": "sessions and settings: stricter checks of modes and owners",
	"internal/auth/signin/store.go":                "sessions, which are written",
	"internal/cli/playground/playground.go":        "the log, which is written",
	"internal/lib/gctune/limit.go":                 "control groups of the system",
	"internal/cli/workercheck/journal.go":          "the journal of the program under test",
	"internal/test/faultyworker/":                  "for tests",
	"examples/check/main.go":                       "settings of the check of workers, which starts it",
	"internal/test/redistest/":                     "for tests",
	"internal/test/refdoc/":                        "for tests",
	"proto/openapi/main.go":                        "the descriptors of this repository, when code is generated",
	"worker/exechandler/":                          "/proc and control groups of the system",
	"worker/secrets/dir.go":                        "secrets in a directory, checked one by one",
}

// TestNoFileIsReadUnchecked: sources that read files without this package are few and known,
// so that a new flag, or a new field of a file, that names one cannot be forgotten.
func TestNoFileIsReadUnchecked(t *testing.T) {
	const root = "../../.."
	reads := []string{"ReadFile", "Open", "OpenFile", "OpenRoot", "OpenInRoot", "ReadDir", "DirFS"}
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if d.IsDir() && (slices.Contains([]string{".git", "tools", "bench", "deploy", "scripts", "bin", "testdata"}, d.Name())) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains(reads, selector.Sel.Name) {
				return true
			}
			if from, ok := selector.X.(*ast.Ident); !ok || from.Name != "os" && from.Name != "ioutil" {
				return true
			}
			entry := name
			for at := range otherReaders {
				if strings.HasSuffix(at, "/") && strings.HasPrefix(name, at) {
					entry = at
				}
			}
			if seen[entry] = true; otherReaders[entry] == "" {
				t.Errorf("%s has os.%s: use secretfile.Read, or say why nobody gains by writing that file", name, selector.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range otherReaders {
		if !seen[name] {
			t.Errorf("%s opens no file by itself", name)
		}
	}
}
