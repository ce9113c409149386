package archtest_test

import (
	"fmt"
	"slices"
	"strings"
)

// pkg is what `go list -json` prints of a package.
type pkg struct {
	ImportPath string
	Dir        string
	Standard   bool
	GoFiles    []string
	Imports    []string
	Deps       []string
}

// house checks packages against a table.
type house struct {
	module   string
	rows     map[string]row
	standard map[string]bool
	problems []string
}

func newHouse(module string, table []row, standard map[string]bool) *house {
	h := &house{module: module, rows: map[string]row{}, standard: standard}
	for _, r := range table {
		if _, twice := h.rows[r.path]; twice {
			h.addProblem("%s has two rows in the table", r.path)
		}
		h.rows[r.path] = r
	}
	return h
}

func (h *house) addProblem(format string, args ...any) {
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

// localPath turns an import path into the table's form; false means a package from
// outside of the module.
func (h *house) localPath(path string) (string, bool) {
	return strings.CutPrefix(path, h.module+"/")
}

func (h *house) checkImports(p pkg) {
	path, ok := h.localPath(p.ImportPath)
	r, known := h.rows[path]
	if !ok || !known {
		h.addProblem("%s is not in the table of internal/test/archtest: place it on a floor there", p.ImportPath)
		return
	}
	for _, imported := range p.Imports {
		switch target, ours := h.localPath(imported); {
		case ours:
			h.checkOurs(r, target)
		case h.standard[imported]:
			h.checkStandard(r, imported)
		default:
			h.checkForeign(r, imported)
		}
	}
	for _, dep := range p.Deps {
		h.checkIndirect(r, dep)
	}
}

func (h *house) checkOurs(from row, target string) {
	to, known := h.rows[target]
	switch {
	case !known:
		h.addProblem("%s imports %s, which is not in the table", from.path, target)
	case from.floor == support, slices.Contains(from.also, target):
	case to.floor == support:
		h.addProblem("%s imports %s outside of its tests: it is test support", from.path, target)
	case to.floor == beside:
		h.addProblem("%s imports %s: only packages whose row says so may see those messages", from.path, target)
	case from.floor == beside:
		h.addProblem("%s imports %s: generated code stands alone", from.path, target)
	case from.floor == commands && to.floor == parts:
		h.addProblem("%s imports %s: a command leaves the wiring to internal/node", from.path, target)
	case to.floor >= from.floor:
		h.addProblem("%s (floor %d) imports %s (floor %d): only lower floors may be imported",
			from.path, from.floor, target, to.floor)
	}
}

func (h *house) checkStandard(from row, imported string) {
	if from.floor > model {
		return
	}
	for banned, why := range pureBans {
		if isUnder(imported, banned) {
			h.addProblem("%s imports %s: %s", from.path, imported, why)
		}
	}
}

func (h *house) checkForeign(from row, imported string) {
	for _, allowed := range from.foreign {
		if allowed == "*" || isUnder(imported, allowed) {
			return
		}
	}
	h.addProblem("%s imports %s, which its row does not allow", from.path, imported)
}

func (h *house) checkIndirect(from row, dep string) {
	name := dep
	if target, ours := h.localPath(dep); ours {
		name = target
	}
	for _, banned := range from.not {
		if isUnder(name, banned) {
			h.addProblem("%s depends on %s: %s", from.path, dep, from.why)
		}
	}
}

// isUnder reports whether path is root or lies below it.
func isUnder(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}
