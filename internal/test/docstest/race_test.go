package docstest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// makeList returns the items of a variable in the Makefile, which may go over several lines.
func makeList(t *testing.T, name string) []string {
	t.Helper()
	text := strings.ReplaceAll(readFile(t, root+"/Makefile"), "\\\n", " ")
	found := regexp.MustCompile(`(?m)^` + name + ` := (.+)$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("the Makefile does not set %s", name)
	}
	return strings.Fields(found[1])
}

// TestUnracedTestsExistOnce: the Makefile names tests that run without the race detector. Each
// of them exists in one package that is tested so, and in no other: one of the same name
// elsewhere would not run at all.
func TestUnracedTestsExistOnce(t *testing.T) {
	have := testsOf(t)
	for name, where := range map[string][]string{"SERIAL": {"./internal/test/storetest"}, "LARGE": makeList(t, "LARGE_IN")} {
		pattern := strings.Join(makeList(t, name), " ")
		list, ok := strings.CutPrefix(strings.TrimSuffix(pattern, ")$$"), "^(")
		if !ok {
			t.Fatalf("%s is %q, want ^(TestOne|TestTwo)$$", name, pattern)
		}
		used := map[string]bool{}
		for test := range strings.SplitSeq(list, "|") {
			var dirs []string
			for dir, names := range have {
				if slices.Contains(names, test) {
					dirs = append(dirs, "./"+dir)
				}
			}
			if len(dirs) != 1 || !slices.Contains(where, dirs[0]) {
				t.Errorf("%s is in %q, want it in one of %q alone", test, dirs, where)
				continue
			}
			used[dirs[0]] = true
		}
		if len(used) != len(where) {
			t.Errorf("%s: tests are in %d of the packages %q", name, len(used), where)
		}
	}
}

// TestPackagesWithoutRaceDetectorStartNoGoroutine: neither the packages that the Makefile
// tests without the race detector nor their tests start one.
func TestPackagesWithoutRaceDetectorStartNoGoroutine(t *testing.T) {
	for _, dir := range makeList(t, "PURE") {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %d files, %v", dir, len(files), err)
		}
		for _, name := range files {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range goroutineStarts(file) {
				t.Errorf("%v: a goroutine in a package that is tested without the race detector", fset.Position(at))
			}
		}
	}
}

// goroutineStarts finds go statements and calls of a method Go.
func goroutineStarts(file *ast.File) (starts []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			starts = append(starts, n.Pos())
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Go" {
				starts = append(starts, n.Pos())
			}
		}
		return true
	})
	return starts
}

// TestGoroutineStartsAreFound: both ways to start a goroutine, and nothing else.
func TestGoroutineStartsAreFound(t *testing.T) {
	const source = "package p\nfunc f() {\n\tgo f()\n\tgroup.Go(f)\n\tGo(f)\n\tgroup.Gone(f)\n}\n"
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, at := range goroutineStarts(file) {
		lines = append(lines, fset.Position(at).Line)
	}
	if !slices.Equal(lines, []int{3, 4}) {
		t.Errorf("found in lines %v, want 3 and 4", lines)
	}
}
