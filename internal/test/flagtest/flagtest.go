// Package flagtest checks what the commands of this module have in common.
package flagtest

import (
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
