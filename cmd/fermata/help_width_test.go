package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestHelpFitsTheTerminal: a pipe gets the lines of the reference.
func TestHelpFitsTheTerminal(t *testing.T) {
	c := &cluster{t: t, address: "127.0.0.1:1"}
	for _, width := range []int{80, 100} {
		for _, line := range []string{"jobs list --help", "--help", "presets --help", "config --help", "login --help"} {
			help, _, _ := strings.Cut(c.runWithin(width, strings.Fields(line)...), "Usage:")
			_, flags, _ := strings.Cut(c.runWithin(width, strings.Fields(line)...), "Flags:")
			for text := range strings.Lines(help + flags) {
				if utf8.RuneCountInString(strings.TrimSuffix(text, "\n")) > width {
					t.Errorf("%s on a terminal with %d columns: %q", line, width, text)
				}
			}
		}
	}
	if got := wrapParagraphs("one two\nthree\n\n  a list stays\nfour", 9); got != "one two\nthree\n\n  a list stays\nfour" {
		t.Errorf("%q", got)
	}
	if code, out, _ := c.run("jobs", "list", "--help"); code != exitOK || !strings.Contains(out, "left out. A\n") {
		t.Errorf("help in a pipe:\n%s", out)
	}
}

// TestEventsFitTheTerminal, and have no heading with --no-headers.
func TestEventsFitTheTerminal(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "nightly", "--every", "1m", "--handler", "h", "--max-attempts", "1")
	c.attempt("nightly", job.OutcomeFailed, strings.Repeat("no route to host ", 10))
	narrow := c.runWithin(80, "events")
	if !strings.Contains(narrow, "no route to host") {
		t.Errorf("a terminal gets no error:\n%s", narrow)
	}
	for line := range strings.Lines(narrow) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("%q", line)
		}
	}
	if out := c.must("events", "--no-headers"); strings.Contains(out, "TIME") || !strings.Contains(out, "run.dead") || strings.Contains(out, "…") {
		t.Errorf("events --no-headers:\n%s", out)
	}
}
