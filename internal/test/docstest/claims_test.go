package docstest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// controls is the section of SECURITY.md with one row for each control.
const controls = "## Controls"

func TestDocumentedTestsExist(t *testing.T) {
	have := testsOf(t)
	for _, file := range documentsOf(t) {
		for _, fault := range brokenClaims(readFile(t, file), have) {
			t.Errorf("%s: %s", strings.TrimPrefix(file, root+"/"), fault)
		}
	}
}

func TestEveryControlNamesATest(t *testing.T) {
	rows, faults := unprovenRows(readFile(t, root+"/SECURITY.md"), controls)
	for _, fault := range faults {
		t.Errorf("SECURITY.md: %s", fault)
	}
	if rows < 10 {
		t.Errorf("SECURITY.md has %d controls: is the table still found?", rows)
	}
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// testsOf collects the tests of this module and of those in its subdirectories.
func testsOf(t *testing.T) tests {
	t.Helper()
	have := tests{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "dist" || d.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		have[filepath.ToSlash(dir)] = append(have[filepath.ToSlash(dir)], testNames(file)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return have
}

func testNames(file *ast.File) []string {
	var all []string
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && name.MatchString(f.Name.Name) {
			all = append(all, f.Name.Name)
		}
	}
	return all
}

// TestClaimParsing proves that the checks can fail.
func TestClaimParsing(t *testing.T) {
	have := tests{"internal/a": {"TestOne", "FuzzTwo"}, "worker/b": {"TestThree"}}
	for _, tt := range []struct {
		text   string
		faults []string
	}{
		{"`internal/a`: TestOne, FuzzTwo; `worker/b`: TestThree", nil},
		{"`internal/a`: TestOne, TestThree", []string{"internal/a has no TestThree"}},
		{"`internal/c`: TestOne", []string{"internal/c has no tests"}},
		{"(a: TestOne,\nFuzzTwo; worker/b: TestThree)", nil},
		{"(a: TestOne, TestThree)", []string{"a: has no TestThree"}},
		{"it holds (c: TestOne)", []string{"c: has no TestOne"}},
		{"as TestOne and TestFour show", []string{"no package has TestFour"}},
		{"`go test -run TestFo ./internal/a`", nil},
		{"Testing a Test of `TestData`", []string{"no package has TestData"}},
	} {
		if got := brokenClaims(tt.text, have); !slices.Equal(got, tt.faults) {
			t.Errorf("%q: faults %q, want %q", tt.text, got, tt.faults)
		}
	}
	rows, faults := unprovenRows("# S\n\n## Controls\n\n| topic | test |\n| --- | --- |\n| a | `internal/a`: TestOne |\n| b | by hand |\n\n## Next\n\n| c | d |\n", controls)
	if rows != 2 || !slices.Equal(faults, []string{"no test for b "}) {
		t.Errorf("%d rows, faults %q", rows, faults)
	}
	if _, faults := unprovenRows("# S\n", controls); len(faults) != 1 {
		t.Errorf("faults %q of a document without the section", faults)
	}
}
