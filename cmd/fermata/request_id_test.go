package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestRequestIDs: a command that is repeated with the same id has no second effect.
func TestRequestIDs(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--cron", "0 * * * *", "--tz", "UTC", "--handler", "h", "--request-id", "create-1")
	started := c.must("jobs", "run", "ping", "--request-id", "run-1", "-o", "name")
	c.attempt("ping", job.OutcomeSucceeded, "")
	if again := c.must("jobs", "run", "ping", "--request-id", "run-1", "-o", "name"); again != started {
		t.Errorf("the second run with the same id: %q, want %q", again, started)
	}
	if state := c.must("jobs", "list", "--prefix", "ping", "--columns", "state", "--no-headers"); state != "scheduled\n" || strings.Contains(c.must("jobs", "list"), "due 0s ago") {
		t.Errorf("a repeated run had an effect:\n%s", c.must("jobs", "list"))
	}
	c.must("jobs", "update", "ping", "--priority", "7", "--request-id", "update-1")
	c.must("jobs", "update", "ping", "--priority", "3", "--request-id", "update-2")
	c.must("jobs", "update", "ping", "--priority", "7", "--request-id", "update-1")
	if out := c.must("jobs", "get", "ping", "-o", "json"); !strings.Contains(out, `"priority": 3`) {
		t.Errorf("a repeated update had an effect:\n%s", out)
	}
	out := c.must("jobs", "backfill", "ping", "--from", "2026-02-01T00:00:00Z", "--to", "2026-02-01T03:00:00Z", "--request-id", "fill-1")
	if !strings.HasPrefix(out, "backfill fill-1 of ping") {
		t.Error(out)
	}
	for line, want := range map[string]string{
		"jobs hint ping --in 5m -o name": "ping\n", "queues pause mail -o name": "mail\n", "queues set mail --rate 5 -o name": "mail\n",
		"queues get mail -o name": "mail\n", "queues resume mail other -o name": "mail\nother\n", "jobs backfill-cancel ping fill-1 -o name": "ping\n",
	} {
		if out := c.must(strings.Fields(line)...); out != want {
			t.Errorf("%s: %q, want %q", line, out, want)
		}
	}
	first := c.must("jobs", "create", "--handler", "h", "--request-id", "anonymous-1", "-o", "name")
	if again := c.must("jobs", "create", "--handler", "h", "--request-id", "anonymous-1", "-o", "name"); again != first {
		t.Errorf("the id of a job without one: %q, then %q", first, again)
	}
	files := "<jobs: {x: {handler: h}, y: {handler: h}}"
	c.must("jobs", "create", "-f", "-", "--request-id", "file-1", files)
	c.must("jobs", "update", "-f", "-", "--request-id", "file-2", files)
	if code, _, errs := c.run("jobs", "create", "-f", "-", "--request-id", "file-3", "<handler: h\n---\nhandler: h\n"); code != exitUsage || !strings.Contains(errs, "--request-id needs an id") {
		t.Errorf("jobs without ids: exit %d: %s", code, errs)
	}
	if code, _, errs := c.run("jobs", "run", "ping", "--request-id", strings.Repeat("x", 65)); code != exitUsage {
		t.Errorf("a long id: exit %d: %s", code, errs)
	}
	if code, _, errs := c.run("jobs", "backfill", "ping", "--from", "2026-02-01", "--to", "2026-02-02", "--id", "a", "--request-id", "b"); code != exitUsage || !strings.Contains(errs, "--id and --request-id exclude each other") {
		t.Errorf("two ids of a backfill: exit %d: %s", code, errs)
	}
}

// TestCommandsWithRequestIDs are those whose request has one.
func TestCommandsWithRequestIDs(t *testing.T) {
	var found []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("request-id") != nil {
			found = append(found, strings.TrimPrefix(cmd.CommandPath(), "fermata "))
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&app{}).rootCommand())
	// With --filter, these have one for the whole change.
	changes := "dead-letters discard, dead-letters redrive, jobs cancel, jobs delete, jobs pause, jobs resume"
	found = slices.DeleteFunc(found, func(path string) bool {
		return slices.Contains(strings.Split(changes, ", "), path)
	})
	want := "jobs backfill, jobs create, jobs run, jobs update, payloads reseal"
	if got := strings.Join(found, ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
