// Package suggest adds the most likely intended name to errors about unknown commands and flags.
//
// Invariants: what it suggests exists and is not hidden; a command that takes something away or lets held work
// start is suggested only for a slip in its own name; the work is bounded by the size of the tree of commands.
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

// answerKey begins the annotations of a command with the answers to words that are no commands of it.
const answerKey = "answer to "

// AnswerUnknownCommand makes text the hint to words that people try as commands of cmd, and for which there is none.
func AnswerUnknownCommand(cmd *cobra.Command, text string, words ...string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	for _, word := range words {
		cmd.Annotations[answerKey+word] = text
	}
}

// riskyNames are commands that take something away, or let held work start. They are suggested for a slip in
// their own name only, and only where they belong.
var riskyNames = []string{
	"delete", "resume", "restore", "redrive", "redeliver", "cancel", "backfill-cancel", "reseal", "refresh-defaults",
	"logout",
}

func isRisky(cmd *cobra.Command) bool { return slices.Contains(riskyNames, cmd.Name()) }

// UnknownCommand returns the error for an argument of cmd, which accepts only its subcommands. It suggests a
// subcommand with a similar name or meaning, or commands of that name elsewhere: for the root anywhere in the tree,
// for others at the top, since another noun is about other things.
func UnknownCommand(cmd *cobra.Command, name string) error {
	err := fmt.Errorf("unknown command %q for %q", name, cmd.CommandPath())
	if answer := cmd.Annotations[answerKey+strings.ToLower(name)]; answer != "" {
		return fmt.Errorf("%w: %s", err, answer)
	}
	if near := nearCommand(cmd, name); near != nil {
		return fmt.Errorf("%w; did you mean %s?", err, near.CommandPath())
	}
	elsewhere := commandPaths(cmd.Root(), name, cmd == cmd.Root())
	if len(elsewhere) == 0 || len(elsewhere) > maxSuggestions {
		return err
	}
	return fmt.Errorf("%w; did you mean %s?", err, joinAlternatives(elsewhere))
}

// nearCommand returns the subcommand of cmd with a similar name or alias, or the one that is suggested for the name;
// nil if there is none.
func nearCommand(cmd *cobra.Command, name string) *cobra.Command {
	byName := map[string]*cobra.Command{}
	var names []string
	for _, sub := range availableCommands(cmd) {
		if isMeantBy(sub, name) {
			return sub
		}
		for _, known := range append([]string{sub.Name()}, sub.Aliases...) {
			if isRisky(sub) && !isSlipOf(name, known) || isOpposite(name, known) {
				continue
			}
			byName[known] = sub
			names = append(names, known)
		}
	}
	return byName[spelling.Nearest(name, names)]
}

// isMeantBy reports whether a command is the one for another word, by its list of them.
func isMeantBy(cmd *cobra.Command, word string) bool {
	return slices.ContainsFunc(cmd.SuggestFor, func(other string) bool { return strings.EqualFold(other, word) })
}

// isSlipOf reports whether a name is that of a command with one slip, so that no other word can
// have been meant: "resum", but not "rename", of "resume".
func isSlipOf(name, known string) bool {
	return len(name) >= 4 && strings.EqualFold(name[:1], known[:1]) && spelling.IsNear(name, known, 1)
}

// isOpposite reports whether a name is a known one with a prefix that reverses its meaning, as "unpause".
func isOpposite(name, known string) bool {
	prefix, ok := strings.CutSuffix(strings.ToLower(name), known)
	return ok && slices.Contains([]string{"un", "un-", "de", "dis", "no", "non"}, prefix)
}

// commandPaths are the commands of a tree, or of its top, that have a name or are suggested for it.
func commandPaths(cmd *cobra.Command, name string, deep bool) (paths []string) {
	for _, sub := range availableCommands(cmd) {
		if !isRisky(sub) && (strings.EqualFold(sub.Name(), name) || sub.HasAlias(name) || isMeantBy(sub, name)) {
			paths = append(paths, sub.CommandPath())
		}
		if deep {
			paths = append(paths, commandPaths(sub, name, deep)...)
		}
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
