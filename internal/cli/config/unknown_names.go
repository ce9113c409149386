package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/internal/lib/spelling"
)

// UnreadVariable is an environment variable that no flag takes its value from, although its name
// is almost that of one.
type UnreadVariable struct{ Name, Meant string }

func (u UnreadVariable) String() string {
	return fmt.Sprintf("environment variable %s is not read; did you mean %s?", u.Name, u.Meant)
}

// UnreadVariables finds misspelt variables of the environment, in order of their names. It is no error
// to have one: the programs of Fermata share a prefix, and a Kubernetes service named fermata adds
// variables of that prefix to every pod.
func UnreadVariables(flags *pflag.FlagSet, envPrefix string) (unread []UnreadVariable) {
	known := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { known[EnvName(envPrefix, f.Name)] = true })
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		rest, ours := strings.CutPrefix(name, envPrefix+"_")
		if !ours || value == "" || known[name] {
			continue
		}
		if meant := nearestFlag(flags, rest); meant != "" {
			unread = append(unread, UnreadVariable{Name: name, Meant: EnvName(envPrefix, meant)})
		}
	}
	slices.SortFunc(unread, func(a, b UnreadVariable) int { return strings.Compare(a.Name, b.Name) })
	return unread
}

// unknownKey is the error of a key that names no flag.
func unknownKey(flags *pflag.FlagSet, key string) error {
	if meant := nearestFlag(flags, key); meant != "" {
		return fmt.Errorf("unknown key; did you mean %s?", meant)
	}
	return errors.New("unknown key")
}

// nearestFlag returns the flag that a name in another style or with a typo means, also a flag for a file with
// the given value. It returns "" if there is none.
func nearestFlag(flags *pflag.FlagSet, name string) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(s))
	}
	names := map[string]string{}
	var known []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != fileFlag && f.Name != contextFlag && !f.Hidden {
			names[plain(f.Name)] = f.Name
			known = append(known, plain(f.Name))
		}
	})
	if file := names[plain(name)+"file"]; file != "" {
		return file
	}
	return names[spelling.Nearest(plain(name), known)]
}
