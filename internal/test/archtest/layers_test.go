package archtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	module = "github.com/fermata-io/fermata"
	root   = "../../.."
)

// TestFloors holds every package of the module against the table.
func TestFloors(t *testing.T) {
	all := listPackages(t, "-deps", module+"/...")
	standard := map[string]bool{"C": true}
	for _, p := range all {
		standard[p.ImportPath] = p.Standard
	}
	h := newHouse(module, table, standard)
	ours := 0
	for _, p := range all {
		if !strings.HasPrefix(p.ImportPath, module+"/") {
			continue
		}
		ours++
		h.checkImports(p)
		if path, _ := h.localPath(p.ImportPath); h.rows[path].floor <= model {
			h.checkSource(t, p)
		}
	}
	for _, problem := range h.problems {
		t.Error(problem)
	}
	if ours < 5 {
		t.Errorf("found only %d packages: the list is not that of this module", ours)
	}
}

// checkSource looks for what imports do not show: the clock, and goroutines.
func (h *house) checkSource(t *testing.T, p pkg) {
	t.Helper()
	for _, name := range p.GoFiles {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		h.inspectFile(fset, file)
	}
}

func (h *house) inspectFile(fset *token.FileSet, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			h.addProblem("%s: a goroutine in the pure floors", fset.Position(n.Pos()))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" {
				if why, banned := pureCalls[n.Sel.Name]; banned {
					h.addProblem("%s: time.%s: %s", fset.Position(n.Pos()), n.Sel.Name, why)
				}
			}
		}
		return true
	})
}

func listPackages(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Standard,GoFiles,Imports,Deps"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return pkgs
		case err != nil:
			t.Fatalf("go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

// TestImportViolationsAreFound proves that the checks can fail.
func TestImportViolationsAreFound(t *testing.T) {
	standard := map[string]bool{"sync": true, "sync/atomic": true, "time": true, "log/slog": true, "strings": true}
	tests := []struct {
		name     string
		from     string
		imports  []string
		deps     []string
		problems []string // one part of each message
	}{
		{name: "unknown package", from: "internal/stray", problems: []string{"place it on a floor"}},
		{name: "clean floor 0", from: "internal/core/lease", imports: []string{"time", "strings"}},
		{name: "lock in floor 0", from: "internal/core/lease", imports: []string{"sync"}, problems: []string{"no shared state"}},
		{name: "below a ban", from: "internal/core/job", imports: []string{"sync/atomic", "log/slog"}, problems: []string{"no shared", "not reporting"}},
		{name: "lock in floor 2", from: "internal/engine/ledger", imports: []string{"sync"}},
		{name: "library in floor 0", from: "internal/core/sharding", imports: []string{goredis}, problems: []string{"does not allow"}},
		{name: "its own library", from: "internal/redis/conn", imports: []string{goredis, goredis + "/maintnotifications"}},
		{name: "another adapter's library", from: "internal/redis/redisstore", imports: []string{grpc}, problems: []string{"does not allow"}},
		{name: "a library that only begins the same", from: "internal/redis/redisstore", imports: []string{goredis + "x"}, problems: []string{"does not allow"}},
		{name: "downwards", from: "internal/core/job", imports: []string{module + "/internal/core/lease"}},
		{name: "sideways", from: "internal/core/lease", imports: []string{module + "/internal/core/sharding"}, problems: []string{"only lower"}},
		{name: "upwards", from: "internal/core/job", imports: []string{module + "/internal/engine/ledger"}, problems: []string{"only lower"}},
		{name: "engine to adapter", from: "internal/engine/ledger", imports: []string{module + "/internal/redis/redisstore"}, problems: []string{"only lower"}},
		{name: "wiring", from: "internal/node", imports: []string{module + "/internal/redis/redisstore", module + "/internal/engine/ledger"}},
		{name: "command past the wiring", from: "cmd/scheduler", imports: []string{module + "/internal/engine/ledger"}, problems: []string{"leaves the wiring"}},
		{name: "messages at home", from: "internal/api/rpc", imports: []string{module + "/" + api}},
		{name: "messages elsewhere", from: "internal/node", imports: []string{module + "/" + api}, problems: []string{"may see those messages"}},
		{name: "storage in the store", from: "internal/redis/redisstore", imports: []string{module + "/" + storage}, problems: []string{"may see those messages"}},
		{name: "a client in the codec", from: "internal/redis/codec", imports: []string{goredis}, deps: []string{goredis}, problems: []string{"does not allow", "apart from all that talks to a server"}},
		{name: "storage in rpc", from: "internal/api/rpc", imports: []string{module + "/" + storage}, problems: []string{"may see those messages"}},
		{name: "storage at home", from: "internal/redis/codec", imports: []string{module + "/" + storage}},
		{name: "generated code", from: api, imports: []string{module + "/internal/core/job"}, problems: []string{"stands alone"}},
		{name: "test support in a product", from: "internal/node", imports: []string{module + "/internal/test/redistest"}, problems: []string{"test support"}},
		{name: "test support in its like", from: "internal/test/storetest", imports: []string{module + "/internal/test/redistest"}},
		{name: "to a stranger", from: "internal/node", imports: []string{module + "/internal/stray"}, problems: []string{"not in the table"}},
		{name: "server behind the client", from: "client", deps: []string{goredis + "/internal", module + "/internal/node"}, problems: []string{"link it", "link it"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(module, table, standard)
			h.checkImports(pkg{ImportPath: module + "/" + tt.from, Imports: tt.imports, Deps: tt.deps})
			if len(h.problems) != len(tt.problems) {
				t.Fatalf("problems %q, want %q", h.problems, tt.problems)
			}
			for i, want := range tt.problems {
				if !strings.Contains(h.problems[i], want) {
					t.Errorf("problem %q lacks %q", h.problems[i], want)
				}
			}
		})
	}
}

func TestClockAndGoroutineAreFound(t *testing.T) {
	const src = `package p
import "time"
func f() time.Duration { go f(); return time.Since(time.Now()) }
func g(t time.Time) time.Time { return t.Add(time.Second) }
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	h := newHouse(module, nil, nil)
	h.inspectFile(fset, file)
	if len(h.problems) != 3 {
		t.Fatalf("problems %q, want three", h.problems)
	}
}

func TestDuplicateRowIsFound(t *testing.T) {
	if h := newHouse(module, []row{{path: "a"}, {path: "a"}}, nil); len(h.problems) != 1 {
		t.Fatalf("problems %q, want one", h.problems)
	}
}
