package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrongDefaultsAreRefused before Redis is asked, with the field, by each way to set them.
func TestWrongDefaultsAreRefused(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		args []string
		env  string
		want string
	}{
		"flag":          {[]string{"--max-attempts", "0"}, "", "--max-attempts: is 0, want 1 to 1000"},
		"contradiction": {[]string{"--retry-base-delay", "10m", "--retry-max-delay", "1m"}, "", "--retry-max-delay: 1m0s is shorter than base_delay 10m0s"},
		"variable":      {nil, "RETRY_BASE_DELAY=-1s", "--retry-base-delay: is -1s, want 0 to"},
		"no duration": {nil, "RETRY_MAX_DELAY=300", "environment variable RETRY_MAX_DELAY: " +
			"invalid argument \"300\" for \"--retry-max-delay\" flag: want a duration such as 250ms, 30s, 1h30m, 7d or 2w; " +
			"the unit is missing: 300s for seconds"},
		"no number": {nil, "MAX_ATTEMPTS=many",
			"environment variable MAX_ATTEMPTS: invalid argument \"many\" for \"--max-attempts\" flag: want a whole number"},
		"usual variable":   {nil, "FERMATA_MAX_ATTEMPTS=1001", "--max-attempts: is 1001"},
		"key of the file":  {[]string{"--config", file("MAX_ATTEMPTS: 1001")}, "", "--max-attempts: is 1001"},
		"defaults file":    {[]string{"--defaults-file", file("queues:\n  a/b:\n    retry_policy: {max_attempts: 0}")}, "", "queues.a/b.retry_policy.max_attempts: is 0"},
		"no defaults file": {[]string{"--defaults-file", "/does/not/exist"}, "", "--defaults-file: open /does/not/exist"},
		"access file": {[]string{"--access-file", file("rulez: []")}, "",
			"line 1: rulez: unknown key; did you mean rules?"},
		"no access file": {[]string{"--access-file", "/does/not/exist"}, "", "access file: open /does/not/exist"},
		"webhooks file": {[]string{"--events-keep", "10", "--webhooks-file", file("webhooks:\n  - {name: a, ulr: x}")}, "",
			"line 2: ulr: unknown key; did you mean url?"},
		"multiplier": {[]string{"--backoff-multiplier", "0.5"}, "", "--backoff-multiplier: is 0.5, want 1 to 100"},
	} {
		t.Run(name, func(t *testing.T) {
			if key, value, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(key, value)
			}
			cmd := rootCommand(nil)
			cmd.SetArgs(append([]string{"--redis-url", "redis://127.0.0.1:1", "--redis-startup-timeout", "0"}, c.args...))
			cmd.SetOut(&bytes.Buffer{})
			cmd.SetErr(&bytes.Buffer{})
			err := cmd.ExecuteContext(t.Context())
			var usage usageError
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &usage) {
				t.Errorf("got %v, want wrong usage with %q", err, c.want)
			}
		})
	}
}
