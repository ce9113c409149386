package docstest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// otherNames are what the attributes of docs/logs.md are called elsewhere, and not here.
var otherNames = map[string]string{
	"job_id": "job", "jobid": "job", "job_name": "job", "run_id": "run", "correlation": "correlation_id", "cid": "correlation_id",
	"trace": "trace_id", "traceid": "trace_id", "worker_id": "worker", "node_name": "node", "node_id": "node", "ns": "namespace",
	"queue_name": "queue", "err": "error", "cause": "error", "addr": "address", "endpoint": "address", "n": "count", "why": "reason",
	"result": "outcome", "attempt_number": "attempt", "record_id": "record", "client": "peer", "caller": "peer", "shard_id": "shard",
}

// TestLogsHaveOneSchema: what docs/logs.md lists is what the programs' code gives to
// loggers, under these names and no others.
func TestLogsHaveOneSchema(t *testing.T) {
	_, names, found := strings.Cut(readFile(t, root+"/docs/logs.md"), "\n## Names\n")
	if !found {
		t.Fatal("docs/logs.md has no section Names")
	}
	documented := map[string]bool{}
	for line := range strings.Lines(names) {
		cell := line
		if strings.HasPrefix(line, "|") {
			cell, _, _ = strings.Cut(line[1:], "|")
		}
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cell, -1) {
			documented[m[1]] = true
		}
	}
	used := usedAttributes(t)
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if right := otherNames[name]; right != "" {
			t.Errorf("%s calls an attribute %s: docs/logs.md calls it %s", used[name], name, right)
		}
		if !regexp.MustCompile("^[a-z][a-z0-9_]*$").MatchString(name) {
			t.Errorf("%s calls an attribute %q: want lower case and underscores", used[name], name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("docs/logs.md describes the attribute %s, which no line has", name)
	}
	if len(used) < 30 {
		t.Errorf("only %d attributes were found", len(used))
	}
}

// usedAttributes are the names of attributes, with a place where each is used.
func usedAttributes(t *testing.T) map[string]string {
	t.Helper()
	used := map[string]string{}
	for _, dir := range []string{"internal", "worker", "cmd", "client"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || isSupport(path) {
				return err
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					for _, name := range attributeNames(call) {
						used[name] = strings.TrimPrefix(path, root+"/")
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return used
}

// isSupport reports whether code is in no program.
func isSupport(path string) bool { return strings.Contains(filepath.ToSlash(path), "/internal/test/") }

var (
	logMethods = map[string]int{ // where the attributes begin
		"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0,
		"DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "Log": 3,
	}
	attrFuncs = []string{"String", "Int", "Int64", "Uint64", "Float64", "Bool", "Duration", "Time", "Any"}
)

// attributeNames are the attributes that a call names.
func attributeNames(call *ast.CallExpr) (names []string) {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	of := lastName(f.X)
	from, logs := logMethods[f.Sel.Name]
	switch {
	case of == "slog" && slices.Contains(attrFuncs, f.Sel.Name):
		return stringLiterals(call.Args[:1], 0)
	case logs && strings.HasSuffix(strings.ToLower(of), "log") || logs && strings.HasSuffix(strings.ToLower(of), "logger"):
		return stringLiterals(call.Args, from)
	}
	return nil
}

func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// stringLiterals are every other argument from one on.
func stringLiterals(args []ast.Expr, from int) (names []string) {
	for i := from; i < len(args); i += 2 {
		if l, ok := args[i].(*ast.BasicLit); ok && l.Kind == token.STRING {
			name, _ := strconv.Unquote(l.Value)
			names = append(names, name)
		}
	}
	return names
}
