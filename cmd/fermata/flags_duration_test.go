package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestDurationsOfFlags(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1d": 24 * time.Hour, "7d": 168 * time.Hour, "6d23h": 167 * time.Hour, "1.5d": 36 * time.Hour, "-1d": -24 * time.Hour,
		"-1d12h": -36 * time.Hour, "1h30m": 90 * time.Minute, "0": 0, "250ms": 250 * time.Millisecond, "0d": 0,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "1", "1dd", "1d1", "1d-1h", "+-1d", "1e3d", "Infd", "NaNd", "200000d", "1h1d", "0x1d", "1_0d", "1w"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestAllDurationsTakeDays: no flag of any command is left with the durations of Go alone.
func TestAllDurationsTakeDays(t *testing.T) {
	code, said := command(t, nil, "events", "--since", "soon")
	if code != exitUsage || !strings.Contains(said, "want a duration such as 250ms, 30s, 1h30m or 7d") {
		t.Errorf("exit %d: %s", code, said)
	}
	a := &app{}
	for _, name := range commandFlags(a.root(), "duration") {
		if err := name.Value.Set("1d"); err != nil {
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
