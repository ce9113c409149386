// Package suggest adds the most likely intended name to errors about unknown commands and flags.
//
// Invariants: what it suggests exists and is not hidden; the work is bounded by the size of the
// tree of commands.
package suggest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/internal/lib/spelling"
)

// maxSuggestions is how many commands or flags are suggested at once.
const maxSuggestions = 3

// UnknownFlag adds a suggested flag, or where flags are listed, to a parse error of cmd's flags. Other errors
// are returned unchanged.
func UnknownFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name, letters := unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames()
	if meant := flagsMeant(flagNames(cmd), name, letters); len(meant) > 0 {
		return fmt.Errorf("%w; did you mean %s?", err, joinAlternatives(meant))
	}
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}

// flagsMeant finds flags by a long name, or by the letters behind a single dash.
func flagsMeant(known []string, name, letters string) (meant []string) {
	if letters == "" {
		if near := spelling.Nearest(name, known); near != "" {
			return []string{"--" + near}
		}
		return nil
	}
	if slices.Contains(known, letters) {
		return []string{"--" + letters}
	}
	for _, k := range known {
		if len(letters) == 1 && strings.HasPrefix(k, name) {
			meant = append(meant, "--"+k)
		}
	}
	if len(meant) > maxSuggestions {
		return nil
	}
	return meant
}

func flagNames(cmd *cobra.Command) (names []string) {
	collect := func(f *pflag.Flag) {
		if !f.Hidden && !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	cmd.Flags().VisitAll(collect)
	cmd.InheritedFlags().VisitAll(collect)
	slices.Sort(names)
	return names
}

// UnknownCommand returns the error for an argument of cmd, which accepts only its subcommands. It suggests a
// subcommand with a similar name, or commands of that name elsewhere in the tree.
func UnknownCommand(cmd *cobra.Command, name string) error {
	err := fmt.Errorf("unknown command %q for %q", name, cmd.CommandPath())
	if near := nearCommand(cmd, name); near != nil {
		return fmt.Errorf("%w; did you mean %s?", err, near.CommandPath())
	}
	elsewhere := commandPaths(cmd.Root(), name)
	if len(elsewhere) == 0 || len(elsewhere) > maxSuggestions {
		return err
	}
	return fmt.Errorf("%w; did you mean %s?", err, joinAlternatives(elsewhere))
}

// nearCommand returns the subcommand of cmd with a similar name or alias, nil if there is none.
func nearCommand(cmd *cobra.Command, name string) *cobra.Command {
	byName := map[string]*cobra.Command{}
	var names []string
	for _, sub := range availableCommands(cmd) {
		for _, known := range append([]string{sub.Name()}, sub.Aliases...) {
			byName[known] = sub
			names = append(names, known)
		}
	}
	return byName[spelling.Nearest(name, names)]
}

// commandPaths are the commands of a tree that have a name.
func commandPaths(cmd *cobra.Command, name string) (paths []string) {
	for _, sub := range availableCommands(cmd) {
		if strings.EqualFold(sub.Name(), name) || sub.HasAlias(name) {
			paths = append(paths, sub.CommandPath())
		}
		paths = append(paths, commandPaths(sub, name)...)
	}
	return paths
}

func availableCommands(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()),
		func(sub *cobra.Command) bool { return !sub.IsAvailableCommand() })
}

// joinAlternatives writes a list as "a, b or c".
func joinAlternatives(list []string) string {
	last := len(list) - 1
	if last == 0 {
		return list[0]
	}
	return strings.Join(list[:last], ", ") + " or " + list[last]
}
