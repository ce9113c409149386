package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
)

// TestBulkCommandsAskForConfirmation: many jobs are changed only where somebody has confirmed it.
func TestBulkCommandsAskForConfirmation(t *testing.T) {
	c := startCluster(t)
	for i := range maxUnconfirmed + 1 {
		c.must("jobs", "create", fmt.Sprintf("j%02d", i), "--every", "1m", "--handler", "h")
	}
	code, _, errs := c.run("jobs", "pause", "--all")
	if code != exitUsage || !strings.Contains(errs, "this would pause 21 jobs: confirm with --yes") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if out := c.must("jobs", "pause", "--all", "--dry-run"); !strings.HasPrefix(out, "would pause 21\n  j00\n") || !strings.HasSuffix(out, "  j19\n  and 1 more\n") {
		t.Errorf("dry run:\n%s", out)
	}
	if out := c.must("jobs", "list", "--state", "paused", "-o", "name"); out != "" {
		t.Errorf("paused without --yes: %s", out)
	}
	if out := c.must("jobs", "pause", "--all", "--yes"); out != "paused 21 jobs\n" {
		t.Error(out)
	}
	if out := c.must("jobs", "pause", "--all", "--dry-run", "-o", "json"); out != "{\n  \"would_pause\": 0,\n  \"first\": []\n}\n" {
		t.Error(out)
	}
	if code, _, errs := c.run("jobs", "pause", "j01", "--dry-run"); code != exitUsage || !strings.Contains(errs, "--dry-run needs --all") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestRefreshOfManyAsksFirst: as other commands on all jobs that are selected; jobs that are named are not many.
func TestRefreshOfManyAsksFirst(t *testing.T) {
	c := startCluster(t)
	for i := range maxUnconfirmed + 1 {
		c.must("jobs", "create", fmt.Sprintf("j%02d", i), "--every", "1m", "--handler", "h")
	}
	if out := c.must("jobs", "refresh-defaults"); !strings.Contains(out, "21 unchanged") {
		t.Errorf("a refresh that changes nothing: %s", out)
	}
	c.defaults.Cluster = backoff.Layer{
		Source: backoff.Source{Kind: backoff.FromCluster}, Set: backoff.FieldSet(0).With(backoff.RetryMaxAttempts),
	}
	c.defaults.Cluster.Values.Retry.MaxAttempts = 9
	code, _, errs := c.run("jobs", "refresh-defaults")
	want := "this would refresh the defaults of 21 jobs: confirm with --yes, or check with --dry-run first"
	if code != exitUsage || !strings.Contains(errs, want) {
		t.Errorf("exit %d: %s", code, errs)
	}
	c.must("jobs", "refresh-defaults", "--dry-run")
	if n := c.stored("j00").GetRetryPolicy().GetMaxAttempts(); n == 9 {
		t.Error("changed without --yes")
	}
	c.must("jobs", "refresh-defaults", "j00")
	c.must("jobs", "refresh-defaults", "--prefix", "j2")
	c.must("jobs", "refresh-defaults", "--yes")
	for _, id := range []string{"j00", "j10", "j20"} {
		if n := c.stored(id).GetRetryPolicy().GetMaxAttempts(); n != 9 {
			t.Errorf("%s has %d attempts", id, n)
		}
	}
	code, _, errs = c.run("jobs", "refresh-defaults", "nothing")
	if code != exitNotFound || !strings.HasPrefix(errs, "error: nothing: ") || strings.Contains(errs, "rpc error") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestPreviewOfAPastTime: such a job runs at once.
func TestPreviewOfAPastTime(t *testing.T) {
	c := startCluster(t)
	if out := c.must("preview", "--at", "2020-01-01T00:00:00Z"); !strings.HasPrefix(out, "due at once\n") {
		t.Error(out)
	}
	out := c.must("preview", "--at", "2030-01-01T00:00:00Z", "--after", "2031-01-01T00:00:00Z")
	if !strings.HasPrefix(out, "never due\n") {
		t.Error(out)
	}
}

// TestIdsOfJobsThatStillRun: the hint names the commands that show, and end, what is in the way.
func TestIdsOfJobsThatStillRun(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.must("jobs", "create", "busy", "--every", "1m", "--handler", "h")
	c.attempt("busy", job.OutcomeNone, "")
	c.must("jobs", "delete", "busy")
	code, _, errs := c.run("jobs", "create", "busy", "--every", "2m", "--handler", "h")
	want := "hint: wait for the end of the run (fermata jobs runs / jobs cancel), or choose another id"
	if code != exitConflict || !strings.Contains(errs, want) {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestResumeAllKeepsOtherPauses: what was paused on purpose stays paused.
func TestResumeAllKeepsOtherPauses(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for _, id := range []string{"a", "b", "purpose"} {
		c.must("jobs", "create", id, "--every", "1m", "--handler", "h")
	}
	c.must("jobs", "pause", "purpose", "--note", "until the audit is over")
	_, _, hint := c.run("jobs", "pause", "--all")
	if !strings.Contains(hint, "fermata jobs resume --all --note 'pause --all at 2026-") {
		t.Errorf("hint: %s", hint)
	}
	code, _, errs := c.run("jobs", "resume", "--all")
	if code != exitUsage || !strings.Contains(errs, `--note "until the audit is over": 1 job`) || !strings.Contains(errs, ": 2 jobs") {
		t.Errorf("exit %d: %s", code, errs)
	}
	note := strings.Split(hint, "'")[1]
	if out := c.must("jobs", "resume", "--all", "--note", note); out != "resumed 2 jobs\n" {
		t.Error(out)
	}
	if out := c.must("jobs", "list", "--state", "paused", "-o", "name"); out != "purpose\n" {
		t.Errorf("still paused: %s", out)
	}
	c.must("jobs", "pause", "a")
	if out := c.must("jobs", "resume", "--all", "--any-note"); out != "resumed 2 jobs\n" {
		t.Error(out)
	}
}

// TestTimesInThePastAreNoted, since they do something else than what one may expect.
func TestTimesInThePastAreNoted(t *testing.T) {
	c := startCluster(t)
	for line, want := range map[string]string{
		"jobs create past --at 2020-01-01T00:00:00Z --handler h":             "note: --at 2020-01-01T00:00:00Z is past by ",
		"jobs create over --every 1m --end 2020-01-01T00:00:00Z --handler h": "note: --end 2020-01-01T00:00:00Z is past: no run is planned",
		"jobs create soon --at 2030-01-01T00:00:00Z --handler h":             "",
		"jobs create live --every 1m --end 2030-01-01T00:00:00Z --handler h": "",
		"jobs hint live --at 2020-01-01T00:00:00Z":                           "note: --at 2020-01-01T00:00:00Z is past: the job runs at once",
	} {
		if _, _, errs := c.run(strings.Fields(line)...); (want == "") != (errs == "") || !strings.Contains(errs, want) {
			t.Errorf("%s: %q, want %q", line, errs, want)
		}
	}
}

// TestInterruptedWaits name the run and how to go on. The interrupt comes when the command has the answer to its
// request: one that comes before that leaves it without a run to name.
func TestInterruptedWaits(t *testing.T) {
	address, looked := serveRunsForever(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- runCommand(ctx, []string{"--address", address, "jobs", "run", "slow", "--wait"}, standardStreams{strings.NewReader(""), &out, &errs}, time.Now)
	}()
	<-looked
	interrupt()
	got := <-code
	if got != exitRunContinues || !strings.Contains(errs.String(), "interrupted: run m-1 of slow") || !strings.Contains(errs.String(), "fermata jobs runs slow m-1") {
		t.Errorf("exit %d: %s", got, errs.String())
	}
}

// TestJobsAreChangedByFilter goes through the commands with --filter in turn.
func TestJobsAreChangedByFilter(t *testing.T) {
	c := startCluster(t)
	for i := range 3 {
		c.must("jobs", "create", fmt.Sprintf("a%d", i), "--every", "1h", "--handler", "h", "--label", "team=a")
		c.must("jobs", "create", fmt.Sprintf("b%d", i), "--every", "1h", "--handler", "h", "--label", "team=b")
	}
	c.must("jobs", "pause", "a0", "--note", "before")
	if out := c.must("jobs", "pause", "--filter", "labels.team = a", "--dry-run"); !strings.HasPrefix(out, "would pause 2\n") || !strings.Contains(out, "  a1\n") {
		t.Error(out)
	}
	code, out, errs := c.run("jobs", "pause", "--filter", "labels.team = a", "--note", "outage", "--request-id", "op-1")
	if code != exitOK || out != "paused 2 jobs\n" || !strings.Contains(errs, "--pause-id op-1") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if out := c.must("jobs", "resume", "--filter", "id:*", "--pause-id", "op-1", "-o", "json", "--request-id", "op-2"); !strings.Contains(out, `"resumed": 2`) {
		t.Error(out)
	}
	if out := c.must("jobs", "list", "--state", "paused", "-o", "name"); !strings.HasSuffix(strings.TrimSpace(out), "a0") || strings.Count(out, "\n") != 1 {
		t.Errorf("paused are %s", out)
	}
	if out := c.must("jobs", "run", "--filter", "labels.team = b"); out != "started 3 jobs\n" {
		t.Error(out)
	}
	if out := c.must("jobs", "cancel", "--filter", "labels.team = b"); out != "cancelled 3 runs\n" {
		t.Error(out)
	}
	if out := c.must("jobs", "delete", "--filter", "labels.team = b"); out != "deleted 3 jobs\n" {
		t.Error(out)
	}
	if out := c.must("jobs", "delete", "--filter", "labels.team = b"); out != "deleted 0 jobs\n" {
		t.Error(out)
	}
	for _, command := range []string{"redrive", "discard"} {
		if out := c.must("dead-letters", command, "--filter", "id:*"); !strings.HasSuffix(out, " 0 dead runs\n") {
			t.Error(out)
		}
	}
	for want, args := range map[string][]string{
		"--filter excludes names":               {"jobs", "delete", "a0", "--filter", "id:*"},
		"--etag does not go with --filter":      {"jobs", "delete", "--etag", "x", "--filter", "id:*"},
		"--all does not go with --filter":       {"jobs", "pause", "--all", "--filter", "id:*"},
		"--queue does not go with --filter":     {"jobs", "pause", "--queue", "q", "--filter", "id:*"},
		"--wait does not go with --filter":      {"jobs", "run", "--wait", "--filter", "id:*"},
		"--yes needs --filter":                  {"jobs", "delete", "a0", "--yes"},
		"--request-id needs --filter":           {"jobs", "pause", "a0", "--request-id", "x"},
		"takes at least 1 argument":             {"dead-letters", "discard"},
		"filter: is required; id:* selects all": {"jobs", "delete", "--filter", ""},
	} {
		if code, _, errs := c.run(args...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
	}
	if code, _, errs := c.run("jobs", "resume", "--filter", "paused = true", "--request-id", "op-2"); code != exitUsage || !strings.Contains(errs, "request_id") {
		t.Errorf("the id of another change: exit %d: %s", code, errs)
	}
}

// TestManyMatchesAreConfirmed: more than 100 take the confirmation of the dry run, and several pages.
func TestManyMatchesAreConfirmed(t *testing.T) {
	c := startCluster(t)
	for i := range 270 {
		c.must("jobs", "create", fmt.Sprintf("j%03d", i), "--every", "1h", "--handler", "h")
	}
	if code, _, errs := c.run("jobs", "delete", "--filter", "id:*"); code != exitUsage || !strings.Contains(errs, "this would delete 270 jobs: confirm with --yes") {
		t.Errorf("exit %d: %s", code, errs)
	}
	code, out, errs := c.run("jobs", "delete", "--filter", "id:*", "--yes")
	if code != exitOK || out != "deleted 270 jobs\n" || !strings.HasSuffix(errs, "deleted 270 of 270\n") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}
