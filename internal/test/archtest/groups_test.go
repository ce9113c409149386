package archtest_test

import (
	"flag"
	"fmt"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of packages in the documents")

// group is a folder of internal: packages that have the same role.
type group struct {
	name string
	// rule is what all of its packages have in common, for readers of the documents.
	rule string
	// imports are the groups that its packages may import. Packages of one group may
	// import one another as far as table_test.go allows.
	imports []string
}

var groups = []group{
	{name: "core", imports: []string{"lib"},
		rule: "The domain: jobs, schedules, backoff, leases. Pure: no IO, no clock, no randomness, no goroutines; all of these are arguments."},
	{name: "lib",
		rule: "Small helpers that know nothing of jobs."},
	{name: "engine", imports: []string{"core", "lib"},
		rule: "What a node does: components, most with goroutines of their own. Each declares the interfaces that it needs."},
	{name: "redis", imports: []string{"core", "lib"},
		rule: "All that talks to Redis: the store and its scripts, the shard locks, what operators grant."},
	{name: "cluster", imports: []string{"core", "lib"},
		rule: "All that talks to other nodes."},
	{name: "api", imports: []string{"core", "lib"},
		rule: "gRPC and HTTP: requests into values of the domain, and results back."},
	{name: "auth", imports: []string{"core", "lib"},
		rule: "Who calls: certificates, tokens, sign-in; and the encryption of payloads."},
	{name: "observe", imports: []string{"core", "lib"},
		rule: "Metrics, traces, logs."},
	{name: "node", imports: []string{"core", "lib", "engine", "redis", "cluster", "api", "auth", "observe"},
		rule: "Wires one scheduler node."},
	{name: "cli", imports: []string{"core", "lib", "redis", "api", "auth", "observe", "node"},
		rule: "What only commands use: configuration, files of jobs, imports, the terminal."},
	{name: "test", imports: []string{"core", "lib", "redis", "cluster", "node"},
		rule: "Test suites and test support. Nothing here is in a binary."},
}

// TestGroups holds the folders of internal against the table above.
func TestGroups(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(root, "internal"))
	if err != nil {
		t.Fatal(err)
	}
	var found, want []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	rules := map[string]group{}
	for _, g := range groups {
		want = append(want, g.name)
		rules[g.name] = g
	}
	if slices.Sort(want); !slices.Equal(found, want) {
		t.Errorf("internal has %q, the table of groups %q", found, want)
	}
	for _, p := range listPackages(t, module+"/internal/...") {
		for _, problem := range checkGroup(rules, p) {
			t.Error(problem)
		}
	}
}

// checkGroup returns the imports of a package that its group does not allow.
func checkGroup(rules map[string]group, p pkg) (problems []string) {
	from := groupOf(p.ImportPath)
	for _, imported := range p.Imports {
		to := groupOf(imported)
		if to != "" && to != from && !slices.Contains(rules[from].imports, to) {
			problems = append(problems, fmt.Sprintf("%s imports %s: group %s does not import group %s", p.ImportPath, imported, from, to))
		}
	}
	return problems
}

// groupOf is empty for packages outside of internal.
func groupOf(path string) string {
	rest, ok := strings.CutPrefix(path, module+"/internal/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

func TestCheckGroupFindsForbiddenImports(t *testing.T) {
	rules := map[string]group{"engine": {name: "engine", imports: []string{"core"}}}
	p := pkg{ImportPath: module + "/internal/engine/ledger", Imports: []string{
		"time", module + "/proto/fermata/v1", module + "/internal/core/job", module + "/internal/engine/registry", module + "/internal/redis/redisstore",
	}}
	problems := checkGroup(rules, p)
	if len(problems) != 1 || !strings.Contains(problems[0], "group engine does not import group redis") {
		t.Errorf("problems %q", problems)
	}
}

// TestTablesOfPackages: the documents have the groups and packages as they are. -update writes them.
func TestTablesOfPackages(t *testing.T) {
	for name, table := range map[string]string{"CONTRIBUTING.md": tableOfGroups(), "docs/architecture.md": tableOfPackages(t)} {
		file := filepath.Join(root, name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		const begin, end = "<!-- packages: written by `go test ./internal/test/archtest -update` -->\n", "<!-- end of packages -->"
		before, rest, ok := strings.Cut(string(text), begin)
		old, after, closed := strings.Cut(rest, end)
		switch {
		case !ok || !closed:
			t.Errorf("%s has no place for the table", name)
		case old == table:
		case *update:
			if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("the table in %s is not current: go test ./internal/test/archtest -update", name)
		}
	}
}

func tableOfGroups() string {
	var b strings.Builder
	b.WriteString("| folder | what belongs there | imports |\n| --- | --- | --- |\n")
	for _, g := range groups {
		imports := "nothing of ours"
		if len(g.imports) > 0 {
			imports = "`" + strings.Join(g.imports, "` `") + "`"
		}
		fmt.Fprintf(&b, "| `internal/%s` | %s | %s |\n", g.name, g.rule, imports)
	}
	return b.String()
}

func tableOfPackages(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| package | what it does |\n| --- | --- |\n")
	for _, g := range groups {
		fmt.Fprintf(&b, "| **`internal/%s`** | **%s** |\n", g.name, g.rule)
		for _, p := range listPackages(t, module+"/internal/"+g.name+"/...") {
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.TrimPrefix(p.ImportPath, module+"/internal/"), packageSynopsis(t, p))
		}
	}
	return b.String()
}

// packageSynopsis is the first sentence of a package's comment.
func packageSynopsis(t *testing.T, p pkg) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		if file.Doc == nil {
			continue
		}
		text := new(doc.Package).Synopsis(file.Doc.Text())
		return strings.ReplaceAll(text, "|", `\|`)
	}
	t.Errorf("%s has no package comment", p.ImportPath)
	return ""
}
