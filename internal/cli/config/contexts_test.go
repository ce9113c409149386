package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"
)

func editFlags(t *testing.T, args ...string) []*pflag.Flag {
	t.Helper()
	f := pflag.NewFlagSet("x", pflag.ContinueOnError)
	f.StringSlice("address", nil, "")
	f.String("namespace", "", "")
	f.Bool("tls", false, "")
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	var set []*pflag.Flag
	f.Visit(func(flag *pflag.Flag) { set = append(set, flag) })
	return set
}

// fileFlags are the flags of a command with contexts.
func fileFlags(path string) *pflag.FlagSet {
	f := pflag.NewFlagSet("x", pflag.ContinueOnError)
	f.String("config", path, "")
	f.String("context", "", "")
	return f
}

// TestEditsKeepTheRest: comments and other settings stay, and a failed edit changes nothing.
func TestEditsKeepTheRest(t *testing.T) {
	path := writeFile(t, "# my clusters\noutput: json # for scripts\ncontexts:\n  # old\n  old: {namespace: a}\n")
	for _, edit := range []func(*ContextFile) error{
		func(f *ContextFile) error {
			return f.Set("new", editFlags(t, "--address=a:1,b:2", "--tls", "--namespace=007"), nil)
		},
		func(f *ContextFile) error { return f.Use("new") },
		func(f *ContextFile) error { return f.Set("old", editFlags(t, "--tls=false"), []string{"namespace"}) },
	} {
		if err := EditContexts(t.Context(), path, edit); err != nil {
			t.Fatal(err)
		}
	}
	failed := errors.New("no")
	if err := EditContexts(t.Context(), path, func(f *ContextFile) error { return errors.Join(f.Delete("old"), failed) }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	text, err := os.ReadFile(path)
	want := `# my clusters
output: json # for scripts
contexts:
  # old
  old:
    tls: false
  new:
    address:
      - a:1
      - b:2
    namespace: "007"
    tls: true
current-context: new
`
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, text, want)
	}
	contexts, err := ReadContexts(fileFlags(path))
	if err != nil || len(contexts) != 2 || !contexts[1].Current || strings.Join(contexts[1].Value("address"), " ") != "a:1 b:2" || contexts[1].Value("output") != nil {
		t.Errorf("%+v, %v", contexts, err)
	}
}

// TestConcurrentEdits: none is lost.
func TestConcurrentEdits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "config.yaml")
	var group sync.WaitGroup
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		set := editFlags(t, "--namespace="+name)
		group.Go(func() {
			if err := EditContexts(t.Context(), path, func(f *ContextFile) error { return f.Set(name, set, nil) }); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	contexts, err := ReadContexts(fileFlags(path))
	if err != nil || len(contexts) != len(names) {
		t.Errorf("%+v, %v", contexts, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if contexts, err := ReadContexts(fileFlags(path)); err != nil || len(contexts) != len(names) {
		t.Errorf("a named file that others may read: %+v, %v", contexts, err)
	}
	if err := EditContexts(t.Context(), path, func(*ContextFile) error { return nil }); err == nil || !strings.Contains(err.Error(), "others may use") {
		t.Errorf("an edit of a file that others may read: %v", err)
	}
	left, err := filepath.Glob(path + ".*")
	if err != nil || len(left) != 1 || left[0] != path+".lock" {
		t.Errorf("files left: %q, %v", left, err)
	}
}

// TestCommandsWithoutContexts read no default file, and refuse contexts in a file.
func TestCommandsWithoutContexts(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("HOME", dir)
	path, err := DefaultFile()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("slots: 9\ncontexts: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSettings(t)
	if err := Load(s.cmd, "FT"); err != nil || *s.slots != 4 {
		t.Errorf("slots %d, %v", *s.slots, err)
	}
	s = newSettings(t, "--config", path)
	if err := Load(s.cmd, "FT"); err == nil || !strings.Contains(err.Error(), "contexts: unknown key") {
		t.Errorf("got %v", err)
	}
	s = newSettings(t)
	s.cmd.Flags().String("context", "", "")
	if err := Load(s.cmd, "FT"); err != nil || *s.slots != 9 || SourceOf(s.cmd.Flags().Lookup("slots")) != "file "+path {
		t.Errorf("slots %d, %v", *s.slots, err)
	}
}

// TestHomesWithoutFiles: a home directory that is none is no error, unless a context is named.
func TestHomesWithoutFiles(t *testing.T) {
	locked := t.TempDir()
	if err := os.Chmod(locked, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(locked, 0o700) }) // for the removal of the directory
	for _, home := range []string{"/dev/null", "/nonexistent", locked, ""} {
		t.Setenv("XDG_CONFIG_HOME", "")
		t.Setenv("HOME", home)
		for name, wantErr := range map[string]bool{"": false, "one": true} {
			s := newSettings(t)
			s.cmd.Flags().String("context", name, "")
			if err := Load(s.cmd, "FT"); (err != nil) != wantErr {
				t.Errorf("HOME=%s --context %q: %v", home, name, err)
			}
			if contexts, err := ReadContexts(s.cmd.Flags()); (err != nil) && !wantErr || len(contexts) != 0 {
				t.Errorf("HOME=%s: %v, %v", home, contexts, err)
			}
		}
	}
}

// TestEditsOfUnusualFiles: an alias is not edited through, a name that is another type in YAML stays a name, and a file
// that cannot be kept whole is not edited.
func TestEditsOfUnusualFiles(t *testing.T) {
	path := writeFile(t, "contexts:\n  a: &a {namespace: one}\n  b: *a\n")
	for _, name := range []string{"b", "null", "true"} {
		if err := EditContexts(t.Context(), path, func(f *ContextFile) error {
			return errors.Join(f.Set(name, editFlags(t, "--namespace=two"), nil), f.Use(name))
		}); err != nil {
			t.Fatal(err)
		}
		contexts, err := ReadContexts(fileFlags(path))
		if err != nil || contexts[0].Value("namespace")[0] != "one" {
			t.Errorf("%+v, %v", contexts, err)
		}
		if last := contexts[len(contexts)-1]; last.Name != name || !last.Current || last.Value("namespace")[0] != "two" {
			t.Errorf("%s: %+v", name, contexts)
		}
	}
	for _, text := range []string{"contexts: {}\n---\ncontexts: {}\n", "- a\n", "contexts: x\n"} {
		path := writeFile(t, text)
		if err := EditContexts(t.Context(), path, func(f *ContextFile) error { return f.Set("a", editFlags(t, "--tls"), nil) }); err == nil {
			t.Errorf("%q was edited", text)
		}
		if left, err := os.ReadFile(path); err != nil || string(left) != text {
			t.Errorf("%q became %q, %v", text, left, err)
		}
	}
}
