package config

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// fileFlag names the flag that holds the path of the file.
const fileFlag = "config"

// Load fills the flags of cmd that the command line did not set, from variables
// called envPrefix_NAME and from the file named by --config. A flag that is
// filled counts as changed. Call it before the flags are read.
//
// The error is a join of all faults; each names its key.
func Load(cmd *cobra.Command, envPrefix string) error {
	return LoadFlags(cmd.Flags(), envPrefix)
}

// LoadFlags is [Load] for one set of flags, if a command has other flags that are not settings.
func LoadFlags(flags *pflag.FlagSet, envPrefix string) error {
	return errors.Join(LoadEnvironment(flags, envPrefix), loadFile(flags))
}

// LoadEnvironment is [LoadFlags] without the file.
func LoadEnvironment(flags *pflag.FlagSet, envPrefix string) error {
	given := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { given[f.Name] = f.Changed })
	var faults []error
	flags.VisitAll(func(f *pflag.Flag) {
		if given[f.Name] || f.Name == "help" {
			return
		}
		if err := setFromEnv(flags, f, envPrefix); err != nil {
			faults = append(faults, err)
		}
	})
	return errors.Join(faults...)
}

// loadFile fills the flags from the file of --config, or, if there are contexts, from the default file if it exists.
func loadFile(flags *pflag.FlagSet) error {
	path, isDefault, err := FilePath(flags)
	if err != nil || path == "" {
		return err
	}
	if isDefault {
		switch err := checkPrivate(path); {
		case isMissing(path, err):
			return missingFileError(flags, path)
		case err != nil:
			return fmt.Errorf("configuration file: %w; --config names another file, and --config /dev/null none", err)
		}
	}
	return setFromFile(flags, path)
}

// isMissing reports whether an error says that there is no file, also where the home directory is none of the user's,
// as in containers.
func isMissing(path string, err error) bool {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return true
	}
	_, seen := os.Lstat(path)
	return errors.Is(err, fs.ErrPermission) && errors.Is(seen, fs.ErrPermission)
}

// EnvName returns the environment variable of a flag.
func EnvName(prefix, flag string) string {
	return strings.ToUpper(prefix + "_" + strings.NewReplacer("-", "_", ".", "_").Replace(flag))
}

// otherNames is the annotation of a flag with more names.
const otherNames = "fermata_other_names"

// AddAliases gives a flag further names, which are used unchanged as environment variables and as keys of the
// file: the names that applications use for the same setting. The names of [Load] take precedence.
func AddAliases(flags *pflag.FlagSet, name string, others ...string) {
	flags.Lookup(name).Annotations = map[string][]string{otherNames: others}
}

// EnvNames returns the variables that set a flag, in order of precedence.
func EnvNames(prefix string, f *pflag.Flag) []string {
	return append([]string{EnvName(prefix, f.Name)}, f.Annotations[otherNames]...)
}

func setFromEnv(flags *pflag.FlagSet, f *pflag.Flag, prefix string) error {
	name, value := "", ""
	for _, name = range EnvNames(prefix, f) {
		value = os.Getenv(name)
		if value != "" {
			break
		}
	}
	if value == "" {
		return nil
	}
	if err := assignText(flags, f, value); err != nil {
		return fmt.Errorf("environment variable %s: %w", name, err)
	}
	setSource(f, "environment variable "+name)
	return nil
}

// assignText sets a flag from one piece of text.
func assignText(flags *pflag.FlagSet, f *pflag.Flag, value string) error {
	if _, ok := f.Value.(pflag.SliceValue); !ok {
		return ExplainValue(flags.Set(f.Name, value))
	}
	if f.Value.Type() == "stringArray" {
		return assignList(f, strings.Split(strings.TrimRight(value, "\n"), "\n"))
	}
	reader := csv.NewReader(strings.NewReader(value))
	reader.TrimLeadingSpace = true
	items, err := reader.Read()
	if err != nil {
		return fmt.Errorf("not a list separated by commas: %w", err)
	}
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return assignList(f, items)
}

// assignList replaces the values of a list flag.
func assignList(f *pflag.Flag, items []string) error {
	list, ok := f.Value.(pflag.SliceValue)
	if !ok {
		return errors.New("takes one value, not a list")
	}
	if err := list.Replace(items); err != nil {
		return err
	}
	// A list is replaced as a whole: Set would append to its default or to what
	// was set before.
	f.Changed = true
	return nil
}
