package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// TestCommandsDiscardTheStandardLogger: the HTTP client writes to the standard logger what any server sends.
func TestCommandsDiscardTheStandardLogger(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "cmd", "*", "main.go"))
	if err != nil || len(files) < 4 {
		t.Fatalf("found %d commands, %v", len(files), err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if !startsWithDiscard(parsed) {
			t.Errorf("%s: main does not begin with logs.DiscardStandard()", file)
		}
	}
}

// TestCommandsThatLogAreFound proves that the check can fail.
func TestCommandsThatLogAreFound(t *testing.T) {
	for body, want := range map[string]bool{
		"logs.DiscardStandard(); run()": true, "run(); logs.DiscardStandard()": false, "run()": false, "": false,
	} {
		text := "package main\n\nfunc main() { " + body + " }\n"
		parsed, err := parser.ParseFile(token.NewFileSet(), "main.go", text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := startsWithDiscard(parsed); got != want {
			t.Errorf("%q: %v, want %v", body, got, want)
		}
	}
}

// startsWithDiscard reports whether the first statement of main is logs.DiscardStandard().
func startsWithDiscard(file *ast.File) bool {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "main" || f.Recv != nil || len(f.Body.List) == 0 {
			continue
		}
		statement, ok := f.Body.List[0].(*ast.ExprStmt)
		if !ok {
			return false
		}
		call, ok := statement.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		called, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		from, ok := called.X.(*ast.Ident)
		return ok && from.Name == "logs" && called.Sel.Name == "DiscardStandard"
	}
	return false
}
