package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// listCommands returns the commands that list things, each with the arguments that it needs. A list of a job gets the
// job that fails.
func listCommands(t *testing.T) (commands [][]string) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		isList := cmd.Annotations[printsList] != ""
		if cmd.Name() == "list" && !isList {
			t.Errorf("%s lists things, and does not call registerList", cmd.CommandPath())
		}
		if isList {
			args := strings.Fields(cmd.CommandPath())[1:]
			if strings.Contains(cmd.Use, " ID") {
				args = append(args, "failing-job")
			}
			commands = append(commands, args)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&app{}).rootCommand())
	return commands
}

// runWithin executes a command line that writes to a terminal of a width.
func (c *cluster) runWithin(width int, args ...string) string {
	c.t.Helper()
	var stdout, stderr bytes.Buffer
	a := &app{standardStreams: standardStreams{strings.NewReader(""), &stdout, &stderr}, width: width,
		now: func() time.Time { return time.UnixMilli(c.clock.Load()).UTC() }}
	if code := a.execute(c.t.Context(), append([]string{"--address", c.address}, args...)); code != 0 {
		c.t.Errorf("%v: exit code %d: %s", args, code, &stderr)
	}
	return stdout.String()
}

// fillLists gives all lists something to show, with long names.
func fillLists(t *testing.T, c *cluster) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	c.must("jobs", "create", "failing-job", "--every", "1m", "--handler", "h", "--queue", "mail", "--max-lag", "1s", "--max-attempts", "1",
		"--target", "api.example.com", "--lock", "ledger")
	c.must("jobs", "create", "a-job-with-quite-a-long-name-2026-11-26-0001", "--cron", "30 2 * * *", "--tz", "America/Argentina/ComodRivadavia", "--handler", "h")
	for range 2 {
		c.attempt("failing-job", job.OutcomeFailed, "dial tcp 10.0.0.1:443: connect: no route to host, and more text than a terminal has room for")
	}
	c.pass(10 * time.Minute)
	c.hooks.letters = []job.UndeliveredEvent{{
		Webhook: "ops", Attempts: 12, AtMS: unixtime.MilliOf(epoch), Reason: "status 503: " + strings.Repeat("the service is not available ", 4),
		Event: job.Event{Shard: 3, Place: job.Place{MS: unixtime.MilliOf(epoch), Seq: 7}, Kind: job.KindRunDead, Key: job.Key{Namespace: "default", ID: "failing-job"}},
	}}
	c.must("audit", "export", "--name", "siem", "--file", t.TempDir()+"/audit.jsonl")
	redistest.Eventually(t, redistest.Patience, "audit records of these three calls, which are written soon after them", func() bool {
		return strings.Count(c.must("audit", "-o", "name"), "\n") >= 3
	})
	c.must("config", "set-context", "production", "--address", "scheduler-0.example.com,scheduler-1.example.com", "--tls-ca", "/etc/fermata/ca.pem", "--token-file", "/etc/fermata/token")
}

// TestListCommands: all lists have the same flags and formats. A terminal gets at most its width, with names in full; a
// pipe gets all columns and all of their text.
func TestListCommands(t *testing.T) {
	c := startCluster(t)
	fillLists(t, c)
	commands := listCommands(t)
	if len(commands) < 18 {
		t.Errorf("only %d lists: %v", len(commands), commands)
	}
	for _, args := range commands {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			c.t = t
			checkList(t, c, args)
		})
	}
}

func checkList(t *testing.T, c *cluster, args []string) {
	with := func(more ...string) []string { return append(slices.Clone(args), more...) }
	var list []any
	if err := json.Unmarshal([]byte(c.must(with("-o", "json")...)), &list); err != nil {
		t.Fatalf("-o json: %v", err)
	}
	if len(list) == 0 {
		t.Fatal("the test has nothing for this list")
	}
	if c.must(with("-o", "yaml")...) == "" {
		t.Error("-o yaml prints nothing")
	}
	names := strings.Split(strings.TrimSuffix(c.must(with("-o", "name")...), "\n"), "\n")
	if len(names) != len(list) || slices.Contains(names, "") {
		t.Errorf("%d items have the names %q", len(list), names)
	}
	whole := strings.Split(strings.TrimSuffix(c.must(args...), "\n"), "\n")
	bare := strings.Split(strings.TrimSuffix(c.must(with("--no-headers")...), "\n"), "\n")
	if len(whole) != len(list)+1 || len(bare) != len(list) || !slices.Equal(strings.Fields(bare[0]), strings.Fields(whole[1])) {
		t.Errorf("%d items:\n%s\n--no-headers:\n%s", len(list), strings.Join(whole, "\n"), strings.Join(bare, "\n"))
	}
	if strings.Contains(strings.Join(whole, ""), "…") {
		t.Errorf("a pipe gets shortened text:\n%s", strings.Join(whole, "\n"))
	}
	checkColumns(t, c, args)
	for _, width := range []int{80, 120} {
		narrow := strings.Split(strings.TrimSuffix(c.runWithin(width, args...), "\n"), "\n")
		for i, line := range narrow {
			fields := strings.Fields(whole[i])
			if utf8.RuneCountInString(line) > width || !strings.HasPrefix(line, fields[0]) && !strings.HasPrefix(line, fields[1]) {
				t.Errorf("a terminal with %d columns gets %q of %q", width, line, whole[i])
			}
		}
		if strings.Count(narrow[0], " ") == 0 {
			t.Errorf("a terminal with %d columns gets one column: %q", width, narrow[0])
		}
	}
}

// checkColumns selects each column, two in reverse order, and one that does not exist.
func checkColumns(t *testing.T, c *cluster, args []string) {
	code, out, errs := c.run(append(slices.Clone(args), "--columns", "nothing-like-it")...)
	_, listed, found := strings.Cut(errs, "want some of ")
	if code != exitUsage || !found {
		t.Fatalf("an unknown column: exit %d, %s%s", code, out, errs)
	}
	known := strings.Split(strings.TrimSpace(listed), ", ")
	for i := range known {
		pair := []string{known[len(known)-1-i], known[i]}
		heading, _, _ := strings.Cut(c.must(append(slices.Clone(args), "--columns", strings.Join(pair, ","))...), "\n")
		if want := strings.Join(pair, " "); strings.ToLower(strings.Join(strings.Fields(heading), "-")) != strings.ReplaceAll(want, " ", "-") {
			t.Errorf("--columns %v: %q", pair, heading)
		}
	}
	if code, _, _ := c.run(append(slices.Clone(args), "--columns", known[0], "-o", "json")...); code != exitUsage {
		t.Errorf("--columns with -o json: exit %d", code)
	}
}

// TestEmptyLists print a text to people, nothing with --no-headers, and an empty array.
func TestEmptyLists(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	c := startCluster(t)
	for _, line := range []string{"jobs list", "jobs upcoming", "late", "failing", "dead-letters list", "audit --job none",
		"audit exports", "webhooks undelivered", "presets --custom", "config get-contexts"} {
		args := strings.Fields(line)
		if out := c.must(args...); !strings.HasPrefix(out, "no ") {
			t.Errorf("%s: %q", line, out)
		}
		if out := c.must(append(args, "--no-headers")...); out != "" {
			t.Errorf("%s --no-headers: %q", line, out)
		}
		if out := c.must(append(args, "-o", "name")...); out != "" {
			t.Errorf("%s -o name: %q", line, out)
		}
		if out := c.must(append(args, "-o", "json")...); strings.TrimSpace(out) != "[]" {
			t.Errorf("%s -o json: %q", line, out)
		}
	}
}
