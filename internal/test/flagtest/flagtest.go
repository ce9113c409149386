// Package flagtest checks what the commands of this module have in common.
package flagtest

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// NoBackquotes fails the test for each flag of a command, or of those below it, whose
// help has backquotes: pflag takes what is between them for the name of the flag's value.
func NoBackquotes(t testing.TB, c *cobra.Command) {
	t.Helper()
	for _, set := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			if strings.Contains(f.Usage, "`") {
				t.Errorf("%s --%s: %s", c.CommandPath(), f.Name, f.Usage)
			}
		})
	}
	for _, sub := range c.Commands() {
		NoBackquotes(t, sub)
	}
}

// DurationsHaveDays fails the test for each flag of a command, or of those below it, that takes a duration without
// weeks and days.
func DurationsHaveDays(t testing.TB, c *cobra.Command) {
	t.Helper()
	for _, set := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			if err := f.Value.Set("1w1d"); err != nil || f.Value.String() != "192h0m0s" {
				t.Errorf("%s --%s 1w1d: %v, %v", c.CommandPath(), f.Name, f.Value, err)
			}
		})
	}
	for _, sub := range c.Commands() {
		DurationsHaveDays(t, sub)
	}
}

// namesFile is what the help or the name of a flag has whose value names a file or a directory.
var namesFile = regexp.MustCompile(`(?i)\b(files?|PEM|director(y|ies)|paths?)\b|-(file|ca|cert|key|dir|home)$`)

// FilesAreGuarded finds each flag of a command, or of those below it, that names a file, by
// its help and its name. Each has to be in one of two tables, by "command --flag": guarded
// has the arguments with which a run refuses the file PATH that any user may write, and other
// has the reason why its author need not care. run returns what a run says.
func FilesAreGuarded(t *testing.T, c *cobra.Command,
	guarded map[string]string, other map[string]string, run func(args ...string) string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	found := fileFlags(c)
	for _, name := range found {
		args, ok := guarded[name]
		switch {
		case ok && other[name] != "":
			t.Errorf("%s is in both tables", name)
		case ok:
			said := run(strings.Fields(strings.ReplaceAll(args, "PATH", path))...)
			if !strings.Contains(said, path) || !strings.Contains(said, "any user may write it") {
				t.Errorf("%s: a file that any user may write is not refused: %q", name, said)
			}
		case other[name] == "":
			t.Errorf("%s names a file: refuse one that any user may write (internal/lib/secretfile), "+
				"or say why it matters to nobody", name)
		}
	}
	for _, table := range []map[string]string{guarded, other} {
		for name := range table {
			if !slices.Contains(found, name) {
				t.Errorf("%s is in a table and is no flag that names a file", name)
			}
		}
	}
}

// fileFlags lists flags that name files, each where it is defined.
func fileFlags(c *cobra.Command) (names []string) {
	for _, set := range []*pflag.FlagSet{c.LocalNonPersistentFlags(), c.PersistentFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			if strings.HasPrefix(f.Value.Type(), "string") && (namesFile.MatchString(f.Usage) || namesFile.MatchString(f.Name)) {
				names = append(names, c.CommandPath()+" --"+f.Name)
			}
		})
	}
	for _, sub := range c.Commands() {
		names = append(names, fileFlags(sub)...)
	}
	return names
}
