package docstest_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestWhereTableNamesCode: each row of "Where is ..." in docs/architecture.md names files that exist, and
// identifiers that these files declare.
func TestWhereTableNamesCode(t *testing.T) {
	rows := whereRows(readFile(t, root+"/docs/architecture.md"))
	if len(rows) < 20 {
		t.Errorf("%d rows: is the table still found?", len(rows))
	}
	for _, row := range rows {
		for _, fault := range row.findFaults(root) {
			t.Errorf("docs/architecture.md, %q: %s", row.behaviour, fault)
		}
	}
}

// whereRow is one row of the table: where the code of a behaviour is.
type whereRow struct {
	behaviour          string
	files, identifiers []string
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// whereRows reads the rows that name files.
func whereRows(text string) (rows []whereRow) {
	_, section, _ := strings.Cut(text, "\n## Where is ...\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.Contains(cells[1], "`") {
			continue
		}
		rows = append(rows, whereRow{
			behaviour: strings.TrimSpace(cells[0]), files: codeSpans(cells[1]), identifiers: codeSpans(cells[2]),
		})
	}
	return rows
}

func codeSpans(cell string) (spans []string) {
	for _, match := range codeSpan.FindAllStringSubmatch(cell, -1) {
		spans = append(spans, match[1])
	}
	return spans
}

// findFaults lists the missing files, the identifiers that no file of the row declares, and the Go files that
// declare none of them.
func (r whereRow) findFaults(dir string) (faults []string) {
	if len(r.identifiers) == 0 {
		faults = append(faults, "no identifier is named")
	}
	var found []string
	for _, file := range r.files {
		declared, err := declarationsOf(filepath.Join(dir, file))
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		here := slices.DeleteFunc(slices.Clone(r.identifiers), func(name string) bool {
			return !slices.Contains(declared, name)
		})
		if len(here) == 0 && filepath.Ext(file) == ".go" {
			faults = append(faults, fmt.Sprintf("%s declares none of %q", file, r.identifiers))
		}
		found = append(found, here...)
	}
	for _, name := range r.identifiers {
		if !slices.Contains(found, name) {
			faults = append(faults, fmt.Sprintf("no file of the row declares %s", name))
		}
	}
	return faults
}

var luaLocal = regexp.MustCompile(`(?m)^local (?:function )?(\w+(?:, *\w+)*)`)

// declarationsOf returns what a Go or Lua file declares at its top level; methods as Type.Method.
func declarationsOf(path string) (names []string, err error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if filepath.Ext(path) != ".go" {
		for _, match := range luaLocal.FindAllStringSubmatch(string(source), -1) {
			names = append(names, strings.Split(strings.ReplaceAll(match[1], " ", ""), ",")...)
		}
		return names, nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, declaration := range file.Decls {
		names = append(names, declaredNames(declaration)...)
	}
	return names, nil
}

func declaredNames(declaration ast.Decl) (names []string) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		return []string{receiverPrefix(d) + d.Name.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// receiverPrefix returns the type of a method's receiver with a dot, and nothing for a function.
func receiverPrefix(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	receiver := f.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	if name, ok := receiver.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}

// TestWhereFaultsAreFound proves that the check can fail.
func TestWhereFaultsAreFound(t *testing.T) {
	dir := t.TempDir()
	for name, source := range map[string]string{
		"a.go":  "package a\n\nconst C = 1\n\ntype T[X any] struct{}\n\nfunc (t *T[X]) M() {}\n\nfunc F() {}\n",
		"b.lua": "local clock, seen\nlocal function move_record(a) end\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const head = "# A\n\n## Where is ...\n\n| behaviour | file | identifier |\n| --- | --- | --- |\n"
	for _, tt := range []struct {
		row    string
		faults int
	}{
		{"| a | `a.go` | `C`, `T`, `T.M`, `F` |", 0},
		{"| a | `a.go`, `b.lua` | `F`, `move_record`, `seen` |", 0},
		{"| a | `a.go`, `b.lua` | `F` |", 0},
		{"| a | `b.lua`, `a.go` | `move_record` |", 1},
		{"| a | `a.go` | `M` |", 2},
		{"| a | `a.go` | `F`, `G` |", 1},
		{"| a | `c.go` | `F` |", 2},
		{"| a | `a.go` | F |", 2},
	} {
		rows := whereRows(head + tt.row + "\n\n## Next\n\n| b | `d.go` | `X` |\n")
		if len(rows) != 1 {
			t.Fatalf("%s: %d rows", tt.row, len(rows))
		}
		if faults := rows[0].findFaults(dir); len(faults) != tt.faults {
			t.Errorf("%s: faults %q, want %d", tt.row, faults, tt.faults)
		}
	}
}
