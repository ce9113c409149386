package redisstore

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// scriptPackages are the directories of all packages that have scripts.
var scriptPackages = []string{".", "../runner", "../limits"}

// TestScriptsAreConstants: what a server runs is the flags, the prelude and an
// embedded file, one after the other, whoever uses the store for what.
func TestScriptsAreConstants(t *testing.T) {
	loads, sources := 0, 0
	for _, path := range globIn(t, "*.go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		tree, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if isLoad(n.Fun) {
					loads++
					checkLoad(t, files, n)
				}
			case *ast.CompositeLit:
				switch typeName(n.Type) {
				case "Source":
					sources++
					checkSourceLiteral(t, files, n)
				case "Script":
					if path != "../runner/scripts.go" {
						t.Errorf("%s: a script is made outside of the loader", files.Position(n.Pos()))
					}
				}
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					if s, ok := left.(*ast.SelectorExpr); ok && s.Sel.Name == "Source" {
						t.Errorf("%s: a script is changed", files.Position(n.Pos()))
					}
				}
			}
			return true
		})
	}
	if loads < 25 || sources < 3 {
		t.Fatalf("%d loads and %d sources were found: this test looks at the wrong thing", loads, sources)
	}
	for _, embedded := range []bool{true, false} {
		s := loadScripts(embedded, false)
		e := loadScripts(embedded, true)
		for _, sc := range []*runner.Script{e.create, e.restore, e.apply, e.announce} {
			checkSource(t, sc, "events")
		}
		for _, sc := range []*runner.Script{s.create, s.mend} {
			checkSource(t, sc, "prelude", "time", "tick", "lanes")
		}
		for _, sc := range []*runner.Script{s.restore, s.apply, s.applyLean} {
			checkSource(t, sc, "prelude", "time", "tick", "lanes", "revisions")
		}
		for _, sc := range []*runner.Script{s.renew, s.reap} {
			checkSource(t, sc, "prelude", "time", "tick")
		}
		checkSource(t, s.lease, "prelude", "batch", "time", "bounded")
		for _, sc := range []*runner.Script{s.read, s.definitions} {
			checkSource(t, sc, "prelude", "bounded")
		}
		for _, sc := range []*runner.Script{s.keyspace, s.hook} {
			checkSource(t, sc, "prelude")
		}
	}
}

// globIn finds files of all packages that have scripts.
func globIn(t *testing.T, pattern string) (paths []string) {
	t.Helper()
	for _, dir := range scriptPackages {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	return paths
}

// checkLoad fails unless a script is loaded by a literal name.
func checkLoad(t *testing.T, files *token.FileSet, call *ast.CallExpr) {
	t.Helper()
	switch name := call.Args[0].(type) {
	case *ast.BasicLit:
	case *ast.Ident:
		t.Errorf("%s: a script is loaded by the name %s", files.Position(call.Pos()), name.Name)
	default:
		t.Errorf("%s: a script is loaded by a name that is no literal", files.Position(call.Pos()))
	}
}

// checkSourceLiteral fails unless the files of a script are those embedded in its package, and its name is a
// literal, or the argument of the loader, which [checkLoad] checks.
func checkSourceLiteral(t *testing.T, files *token.FileSet, literal *ast.CompositeLit) {
	t.Helper()
	for _, e := range literal.Elts {
		pair := e.(*ast.KeyValueExpr)
		value, isName := pair.Value.(*ast.Ident)
		_, isLiteral := pair.Value.(*ast.BasicLit)
		switch key := pair.Key.(*ast.Ident).Name; {
		case key == "Files" && isName && (value.Name == "sources" || value.Name == "files"):
		case key == "Name" && (isLiteral || isName && value.Name == "name"):
		case key != "Files" && key != "Name":
		default:
			t.Errorf("%s: %s of a script is no constant", files.Position(pair.Pos()), key)
		}
	}
}

// typeName is the name of a type without its package.
func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.SelectorExpr:
		return t.Sel.Name
	}
	return ""
}

// readScript reads a Lua file of any package that has scripts.
func readScript(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range scriptPackages {
		if text, err := os.ReadFile(filepath.Join(dir, "lua", name+".lua")); err == nil {
			return string(text)
		}
	}
	t.Fatalf("there is no script %s", name)
	return ""
}

// checkSource fails unless a script is flags, these parts and the file of its name.
func checkSource(t *testing.T, sc *runner.Script, parts ...string) {
	t.Helper()
	want := ""
	for _, part := range parts {
		want += readScript(t, "parts/"+part)
	}
	want += readScript(t, sc.Name)
	head, ok := strings.CutSuffix(sc.Source, expandMacros(want)) // macros are constants, too
	if !ok || parts[0] == "prelude" && !regexp.MustCompile(`^(#!lua( flags=[a-z-]+)?\n)?$`).MatchString(head) {
		t.Errorf("%s begins with %.60q", sc.Name, sc.Source)
	}
}

// isLoad reports whether a function loads a script: the method of the loader, or the function of that name in
// package limits.
func isLoad(f ast.Expr) bool {
	switch f := f.(type) {
	case *ast.Ident:
		return f.Name == "load"
	case *ast.SelectorExpr:
		x, ok := f.X.(*ast.Ident)
		return ok && (x.Name == "l" || x.Name == "e") && f.Sel.Name == "load"
	}
	return false
}

// TestScriptsTakeTextAsData: no script makes code, a command, a pattern or the name
// of a key of what it is given.
func TestScriptsTakeTextAsData(t *testing.T) {
	paths := append(globIn(t, "lua/*.lua"), globIn(t, "lua/parts/*.lua")...)
	if len(paths) < 25 {
		t.Fatal(paths)
	}
	calls := regexp.MustCompile(`\b(?:redis\.call|redis\.pcall|call)\(\s*([^,)]+)(?:,\s*([^,)\[]+))?`)
	patterns := regexp.MustCompile(`\b(?:find|match|gmatch|gsub)\(([^)]*)\)`)
	constant := regexp.MustCompile(`^([A-Z_]+), (?:from|at \+ 1)$`) // a pattern that the script itself names
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		code := regexp.MustCompile(`--[^\n]*`).ReplaceAllString(string(text), "")
		for _, word := range []string{"loadstring", "load(", "dofile", "require", "setfenv", "getfenv", "rawset", "_G", "redis.sha1hex", "string.dump", "debug."} {
			if strings.Contains(code, word) {
				t.Errorf("%s uses %s", path, word)
			}
		}
		for _, m := range calls.FindAllStringSubmatch(code, -1) {
			command, key := strings.TrimSpace(m[1]), strings.TrimSpace(m[2])
			listed := path == "lua/grant.lua" && command == "name"                                         // of a list that the script itself has
			if !regexp.MustCompile(`^'[a-z]+'$`).MatchString(command) && command != "command" && !listed { // which wide hands on
				t.Errorf("%s: the command is %s", path, command)
			}
			if slices.Contains([]string{"'keys'", "'scan'", "'eval'", "'flushall'", "'config'"}, command) {
				t.Errorf("%s calls %s", path, command)
			}
			if strings.Contains(key, "ARGV") || strings.Contains(key, "..") {
				t.Errorf("%s: %s has the key %s, which was not declared", path, command, key)
			}
		}
		for _, m := range patterns.FindAllStringSubmatch(code, -1) {
			_, pattern, _ := strings.Cut(m[1], ", ")
			if name := constant.FindStringSubmatch(pattern); name != nil && strings.Contains(code, "local "+name[1]+" = '^") {
				continue
			}
			if plain := strings.HasSuffix(pattern, ", 1, true"); !plain && !slices.Contains([]string{`'^%d+'`, "ARGV[a + 1]", "ARGV[item.at + 1]", "ARGV[5]", "'#'"}, pattern) {
				t.Errorf("%s: the pattern is %s", path, pattern)
			}
		}
	}
}

// TestGuardsArePlain: the one pattern that comes by ARGV is made of two numbers and
// fits the header that has just these.
func TestGuardsArePlain(t *testing.T) {
	shape := regexp.MustCompile(`^\^[0-9]{16}\.\.[0-9]{10}$`)
	rapid.Check(t, func(t *rapid.T) {
		tok, revision := rapid.Uint64Range(0, codec.MaxToken).Draw(t, "token"), rapid.Uint32().Draw(t, "revision")
		if g := codec.GuardPattern(tok, revision); !shape.MatchString(g) {
			t.Fatalf("guard is %q", g)
		}
	})
}

// drawKey draws names that Validate accepts, near to one another.
func drawKey(t *rapid.T, label string) job.Key {
	name := rapid.StringMatching(`[a0][a0._-]{0,3}`)
	return job.Key{Namespace: name.Draw(t, label+" namespace"), ID: rapid.StringMatching(`[a0][a0._:~-]{0,4}`).Draw(t, label+" id")}
}

// TestNoTwoJobsShareAnything: records, fields of the history, lanes and limits of
// different names differ, and all keys of a shard lie in its slot whatever the names.
func TestNoTwoJobsShareAnything(t *testing.T) {
	tags := sharding.Tags(8)
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawKey(t, "a"), drawKey(t, "b")
		for _, k := range []job.Key{a, b} {
			if len(job.ValidateKey(k)) > 0 {
				t.Fatalf("%v is refused", k)
			}
			if parsed := k.Record().Key(); !k.Record().IsJob() || parsed != k {
				t.Fatalf("%v became %v", k, parsed)
			}
		}
		fields := func(k job.Key) map[string]bool {
			all := map[string]bool{string(k.Record()): true}
			for _, slot := range []int{0, 1, 10, job.MaxHistory} {
				all[codec.HistoryField(k.Record(), slot)] = true
			}
			return all
		}
		if a != b {
			for f := range fields(a) {
				// A record and a field of the history are in different hashes.
				if job.RecordID(f) != a.Record() && fields(b)[f] && job.RecordID(f) != b.Record() {
					t.Fatalf("%v and %v share %q", a, b, f)
				}
			}
			if a.Record() == b.Record() {
				t.Fatalf("%v and %v are one record", a, b)
			}
		}
		free := rapid.StringOfN(rapid.RuneFrom([]rune("a/:{}*?[]%^#\n~é")), 1, 8, -1)
		x, y := free.Draw(t, "lock x"), free.Draw(t, "lock y")
		if (a.Namespace != b.Namespace || x != y) && job.LockName(a.Namespace, x) == job.LockName(b.Namespace, y) {
			t.Fatalf("locks %q of %v and %q of %v are one", x, a, y, b)
		}
		keys := runner.NewShardKeys("fermata", rapid.SampledFrom(tags).Draw(t, "tag"))
		lane := job.Lane{Namespace: a.Namespace, Queue: b.Namespace, Priority: 9}
		if parsed, ok := job.ParseLane(lane.String()); !ok || parsed != lane {
			t.Fatalf("%v became %v", lane, parsed)
		}
		fixed := []string{keys.Meta, keys.Def, keys.State, keys.Hist, keys.Lanes, keys.Lock, keys.Rankings[job.RankingFailing], keys.Rankings[job.RankingLate]}
		others := []string{keys.LaneKey(lane)}
		for _, suffix := range []string{"cell:", "rate:", "u:", "s:", "w:", "q:"} {
			others = append(others, keys.Base+suffix+job.LockName(a.Namespace, x))
		}
		seen := map[string]bool{}
		for _, key := range append(fixed, others...) {
			if seen[key] {
				t.Fatalf("%q is used twice", key)
			}
			seen[key] = true
			if hashTag(key) != hashTag(keys.Meta) {
				t.Fatalf("%q is in another slot than its shard", key)
			}
		}
	})
}

// hashTag is the part of a key that Redis Cluster hashes.
func hashTag(key string) string {
	_, rest, found := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(rest, "}"); found && closed && tag != "" {
		return tag
	}
	return key
}

// TestNamesAreNoPatterns: a namespace is compared as it is, though Redis is asked by
// pattern.
func TestNamesAreNoPatterns(t *testing.T) {
	s, _ := embedded(t)
	ctx := t.Context()
	namespaces := []string{"a.b", "a-b", "aXb", "a.bc", "a", "b"}
	for _, namespace := range namespaces {
		d := job.WithDefaults(job.Definition{
			Key: job.Key{Namespace: namespace, ID: "j"}, Handler: "h", AnchorMS: 1_800_000_000_000,
			Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
		})
		record := job.Record{Definition: &d, State: job.State{Revision: 1, Lane: job.Lane{Namespace: namespace, Queue: "q"}, Due: 1_900_000_000_000}}
		if reply := s.Create(ctx, []job.CreateBatch{{Shard: s.ShardOf(d.Key), Records: []job.Record{record}}})[0]; reply.Err != nil {
			t.Fatal(reply.Err)
		}
	}
	list := func(namespace string) (found []string) {
		t.Helper()
		cursor := ""
		for {
			jobs, next, err := s.List(ctx, namespace, cursor, 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				found = append(found, j.Definition.Namespace)
			}
			if cursor = next; cursor == "" {
				return found
			}
		}
	}
	if got := list(""); len(got) != len(namespaces) {
		t.Fatalf("%q are stored", got)
	}
	for _, namespace := range namespaces {
		if got := list(namespace); !slices.Equal(got, []string{namespace}) {
			t.Errorf("%q lists %q", namespace, got)
		}
	}
	for _, pattern := range []string{"*", "?", "a*", "[a-z]", "[^x]", "a?b", `a\.b`, `a\*`, "a.b/j", "{a}", "**", "a.b*"} {
		if got := list(pattern); len(got) > 0 {
			t.Errorf("%q lists %q", pattern, got)
		}
	}
}
