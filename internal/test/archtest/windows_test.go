package archtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUsersProgramsAreValidOnWindows: clients, workers and the command line have no error for Windows; nodes are for
// Linux and macOS. The test checks types, which takes seconds. To compile everything below them takes a minute.
func TestUsersProgramsAreValidOnWindows(t *testing.T) {
	c := newTypeChecker()
	ours := c.checkAll(t, root, "./client", "./worker/...", "./cmd/fermata", "./cmd/worker")
	for _, problem := range c.problems {
		t.Error(problem)
	}
	if ours < 30 {
		t.Errorf("found only %d packages of this module", ours)
	}
}

// TestErrorsOnWindowsAreFound proves that the check can fail.
func TestErrorsOnWindowsAreFound(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module example.org/p\n\ngo 1.26\n",
		"p.go":        "package p\n\nimport \"syscall\"\n\nfunc f() error { return syscall.Kill(1, 9) }\n",
		"p_linux.go":  "package p\n\nfunc g() { missing() }\n",
		"p_darwin.go": "package p\n\nimport _ \"example.org/missing\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newTypeChecker()
	c.checkAll(t, dir, ".")
	if len(c.problems) != 1 || !strings.Contains(c.problems[0], "syscall.Kill") {
		t.Errorf("problems %q, want that syscall.Kill is missing", c.problems)
	}
}

// typeChecker checks the types of packages and of all that they import, without compiling.
type typeChecker struct {
	files    *token.FileSet
	checked  map[string]*types.Package
	names    map[string]string // of imports in the package that is checked; others have their own name
	problems []string
}

func newTypeChecker() *typeChecker {
	return &typeChecker{files: token.NewFileSet(), checked: map[string]*types.Package{"unsafe": types.Unsafe}}
}

// windowsPackage is what go list prints about a package.
type windowsPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct {
		GoVersion string
		Main      bool
	}
	Error *struct{ Err string }
}

// checkAll checks packages for Windows, imported ones first, and returns how many are of the main module. Of others it
// does not check the bodies of functions.
func (c *typeChecker) checkAll(t *testing.T, dir string, packages ...string) (ours int) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-deps",
		"-json=ImportPath,Dir,GoFiles,ImportMap,Module,Error"}, packages...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p windowsPackage
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return ours
		case err != nil:
			t.Fatalf("go list: %v", err)
		}
		if p.Error != nil {
			c.problems = append(c.problems, p.Error.Err)
			continue
		}
		isOurs := p.Module != nil && p.Module.Main
		if isOurs {
			ours++
		}
		c.check(p, isOurs)
	}
}

func (c *typeChecker) check(p windowsPackage, bodies bool) {
	if p.ImportPath == "unsafe" {
		return
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			c.problems = append(c.problems, err.Error())
			return
		}
		files = append(files, file)
	}
	config := types.Config{
		Importer: c, Sizes: types.SizesFor("gc", "amd64"), IgnoreFuncBodies: !bodies,
		Error: func(err error) { c.problems = append(c.problems, err.Error()) },
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	c.names = p.ImportMap
	checked, _ := config.Check(p.ImportPath, c.files, files, nil) // Error has its errors
	c.checked[p.ImportPath] = checked
}

// Import returns a package that was checked.
func (c *typeChecker) Import(path string) (*types.Package, error) {
	if name, ok := c.names[path]; ok {
		path = name
	}
	if p := c.checked[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("package %s was not listed before its importer", path)
}
