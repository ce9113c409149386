package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestAllDurationsTakeDays: no flag of any command is left with the durations of Go alone.
func TestAllDurationsTakeDays(t *testing.T) {
	code, said := command(t, nil, "events", "--since", "soon")
	if code != exitUsage || !strings.Contains(said, "want a duration such as 250ms, 30s, 1h30m, 7d or 2w") {
		t.Errorf("exit %d: %s", code, said)
	}
	a := &app{}
	for _, name := range commandFlags(a.rootCommand(), "duration") {
		if err := name.Value.Set("1w1d"); err != nil {
			t.Errorf("--%s: %v", name.Name, err)
		}
	}
}

// commandFlags are the flags of a type of a command and of all below it.
func commandFlags(cmd *cobra.Command, kind string) (found []*pflag.Flag) {
	collect := func(f *pflag.Flag) {
		if f.Value.Type() == kind {
			found = append(found, f)
		}
	}
	cmd.Flags().VisitAll(collect)
	cmd.PersistentFlags().VisitAll(collect)
	for _, sub := range cmd.Commands() {
		found = append(found, commandFlags(sub, kind)...)
	}
	return found
}
