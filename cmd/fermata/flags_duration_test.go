package main

import (
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/test/flagtest"
)

// TestAllDurationsTakeDays: no flag of any command is left with the durations of Go alone.
func TestAllDurationsTakeDays(t *testing.T) {
	code, said := command(t, nil, "events", "--since", "soon")
	if code != exitUsage || !strings.Contains(said, "want a duration such as 250ms, 30s, 1h30m, 7d or 2w") {
		t.Errorf("exit %d: %s", code, said)
	}
	flagtest.DurationsHaveDays(t, (&app{}).rootCommand())
}
