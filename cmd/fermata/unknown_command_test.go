package main

import (
	"strings"
	"testing"
)

// TestWordsThatAreNoCommands: what people try is answered by the command that does it, and never by one that takes
// something away under another noun.
func TestWordsThatAreNoCommands(t *testing.T) {
	c := &cluster{t: t, address: "127.0.0.1:1"}
	for line, want := range map[string]string{
		"dead delete perm1": "dead letters end by themselves after dead_letter_ttl; fermata dead-letters discard ends them now",
		"jobs trigger x":    "did you mean fermata jobs run?",
		"jobs describe x":   "did you mean fermata jobs get?",
		"jobs history x":    "did you mean fermata jobs runs?",
		"jobs logs x":       "did you mean fermata jobs runs?",
		"jobs edit x":       "did you mean fermata jobs update?",
		"jobs stop x":       "did you mean fermata jobs pause?",
		"jobs disable x":    "did you mean fermata jobs pause?",
		"queues describe x": "did you mean fermata queues get?",
		"jobs delte x":      "did you mean fermata jobs delete?",
		"jobs unpause x":    "",
		"jobs restore x":    "",
		"jobs redrive x":    "",
		"queues delete x":   "",
		"queues redrive x":  "",
		"dead resume x":     "",
		"webhooks delete x": "see fermata webhooks --help",
		"presets delete x":  "",
		"delete x":          "",
		"resume x":          "",
	} {
		code, _, errs := c.run(strings.Fields(line)...)
		if code != exitUsage || !strings.Contains(errs, want) || want == "" && strings.Contains(errs, "did you mean") {
			t.Errorf("%s: exit %d: %s", line, code, errs)
		}
		for _, risky := range []string{"delete", "resume", "redrive"} {
			if strings.Contains(errs, " "+risky+"?") && !strings.Contains(want, risky) {
				t.Errorf("%s: suggests %s: %s", line, risky, errs)
			}
		}
	}
}
