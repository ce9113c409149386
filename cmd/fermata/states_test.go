package main

import (
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// busy fills a cluster with jobs of every kind of state.
func (c *cluster) busy() {
	c.t.Helper()
	create := func(id string, args ...string) {
		c.must(append([]string{"jobs", "create", id, "--handler", "h", "--jitter", "none", "--queue", id}, args...)...)
	}
	create("backing-off", "--every", "1m")
	for range 3 {
		c.attempt("backing-off", job.OutcomeFailed, "no route\nto \x1b[31mhost")
	}
	create("retrying", "--every", "1h", "--max-attempts", "5", "--retry-base", "90s")
	c.attempt("retrying", job.OutcomeSucceeded, "")
	c.attempt("retrying", job.OutcomeFailed, "try again")
	c.attempt("retrying", job.OutcomeTimedOut, "too slow")
	create("paused", "--cron", "0 3 * * *", "--tz", "Europe/Berlin")
	c.must("jobs", "pause", "paused", "--note", "until the audit is over")
	create("failing-five-times", "--every", "30s", "--history", "2")
	for range 5 {
		c.attempt("failing-five-times", job.OutcomeFailed, "again")
	}
	create("dead", "--at", "2026-03-01T12:00:01Z", "--max-attempts", "1")
	c.attempt("dead", job.OutcomeFailed, "boom")
	create("over", "--at", "2026-03-01T12:00:01Z", "--retention", "100h")
	c.attempt("over", job.OutcomeSucceeded, "")
	create("button")
	c.must("jobs", "run", "button")
	c.attempt("button", job.OutcomeSucceeded, "")
	create("hinted", "--every", "5m")
	c.must("jobs", "hint", "hinted", "--every", "7m", "--reason", "planned")
	create("limited", "--every", "10s", "--max-runs", "5")
	c.attempt("limited", job.OutcomeSucceeded, "")
	create("many", "--every", "10s", "--overlap", "allow-all")
	c.must("jobs", "run", "many", "--backoff", "keep")
	create("history", "--every", "1m", "--misfire", "run-all")
}

// A restore into an empty cluster is the same to the last field, and a backup of it
// the same backup.
func TestExportAndImportOfStates(t *testing.T) {
	t.Parallel()
	from, to := startCluster(t), startCluster(t)
	from.busy()
	to.clock.Store(from.clock.Load())
	lines := from.exported("--states")
	text := "<" + strings.Join(lines, "\n") + "\n"
	if out := to.must("import", "--states", text); out != "registered 11 jobs\n" {
		t.Errorf("%s", out)
	}
	for _, line := range []string{
		"dead-letters list", "dead-letters list -o json", "jobs list", "jobs get retrying -o json", "jobs get paused -o json", "jobs get dead -o json",
		"jobs get backing-off -o json", "jobs explain backing-off", "jobs explain paused",
	} {
		if a, b := from.script(line), to.script(line); a != b {
			t.Errorf("was\n%s\nis\n%s", a, b)
		}
	}
	compare := func(got []string) {
		t.Helper()
		for i := range min(len(lines), len(got)) {
			if unpaced(got[i]) != unpaced(lines[i]) {
				t.Errorf("got\n%s\nwant\n%s", got[i], lines[i])
			}
		}
		if len(got) != len(lines) {
			t.Errorf("%d lines, want %d", len(got), len(lines))
		}
	}
	compare(to.exported("--states"))

	// Once more changes nothing, whatever is to become of what is there.
	to.pass(time.Millisecond)
	for _, how := range []string{"fail", "skip", "replace"} {
		if out := to.must("import", "--states", "--existing", how, text); out != "registered 0 jobs, 11 were the same\n" {
			t.Errorf("%s", out)
		}
	}
	// Work has gone on since: only replace goes back.
	to.attempt("backing-off", job.OutcomeSucceeded, "")
	to.must("jobs", "resume", "paused")
	to.must("jobs", "update", "hinted", "--every", "1h", "--queue", "other")
	to.must("import", "--states", "--existing", "skip", text)
	if got := to.stored("backing-off").GetStatus().GetConsecutiveFailures(); got != 0 {
		t.Errorf("%d failures: what has gone on was put back", got)
	}
	if out := to.must("import", "--states", "--existing", "replace", text); out != "registered 0 jobs, replaced 3, 8 were the same\n" {
		t.Errorf("%s", out)
	}
	compare(withoutRevision(lines, to.exported("--states")))
	if out := to.must("cluster", "check"); !strings.Contains(out, "no ") && strings.Contains(out, "index") {
		t.Errorf("%s", out)
	}
	// They go on at their times.
	due := to.stored("backing-off").GetStatus().GetNextDueTime().AsTime()
	if due != from.stored("backing-off").GetStatus().GetNextDueTime().AsTime() {
		t.Errorf("due at %v", due)
	}
	to.attempt("backing-off", job.OutcomeFailed, "still")
	if got := to.stored("backing-off").GetStatus(); got.GetConsecutiveFailures() != 4 || got.GetNextDueTime().AsTime().Sub(due) < 8*time.Minute {
		t.Errorf("%v", got)
	}
	to.must("dead-letters", "redrive", "--all")
}

// unpaced leaves out that an overdue run is paced.
func unpaced(line string) string {
	return strings.NewReplacer(`"recovery":true,`, "", `,"recovery":true`, "").Replace(line)
}

// withoutRevision gives a job that was replaced the revision that it had.
func withoutRevision(want, got []string) []string {
	for i := range got {
		if i < len(want) && strings.Contains(got[i], `"revision":"3"`) {
			got[i] = strings.Replace(got[i], `"revision":"3"`, `"revision":"1"`, 1)
			if line, _, ok := strings.Cut(got[i], `,"revisions":[`); ok { // its own ones, which stay
				got[i] = line + "}"
			}
		}
	}
	return got
}

// Files of either kind can be imported in either way.
func TestImportOfStatesWithoutStates(t *testing.T) {
	from, to := startCluster(t), startCluster(t)
	from.must("jobs", "create", "ping", "--every", "1m", "--handler", "h")
	from.attempt("ping", job.OutcomeFailed, "no")
	to.clock.Store(from.clock.Load())
	to.must("import", "<"+strings.Join(from.exported("--states"), "\n"))
	if got := to.stored("ping").GetStatus().GetConsecutiveFailures(); got != 0 {
		t.Errorf("%d failures", got)
	}
	to.must("jobs", "delete", "ping")
	to.must("import", "--states", "<"+strings.Join(from.exported(), "\n"))
	if got := to.stored("ping").GetStatus(); got.GetConsecutiveFailures() != 0 || got.GetNextDueTime() == nil {
		t.Errorf("%v", got)
	}
}

// A live run is due again in what is restored, at no cost.
func TestLiveRunsAreRestoredAsDue(t *testing.T) {
	from, to := startCluster(t), startCluster(t)
	from.must("jobs", "create", "live", "--at", "2026-03-01T12:00:05Z", "--handler", "h", "--max-attempts", "3", "--jitter", "none")
	from.attempt("live", job.OutcomeFailed, "once")
	from.attempt("live", job.OutcomeNone, "")
	to.clock.Store(from.clock.Load())
	to.must("import", "--states", "<"+strings.Join(from.exported("--states"), "\n"))
	got := to.stored("live").GetStatus()
	if got.GetState().String() != "STATE_SCHEDULED" || got.GetCurrentAttempt() != 2 || got.GetLostTotal() != 0 {
		t.Errorf("%v", got)
	}
	to.attempt("live", job.OutcomeSucceeded, "")
	if got := to.stored("live").GetStatus(); got.GetSucceededTotal() != 1 {
		t.Errorf("%v", got)
	}
	code, _, errs := from.run("import", "--states", "--existing", "replace", "<"+strings.Join(to.exported("--states"), "\n"))
	if code == 0 || !strings.Contains(errs, "runs that are live") {
		t.Errorf("%d %s", code, errs)
	}
}

// TestImportWarnsOfWhatItLeavesOut: a dead letter whose queue an earlier build did not write, while its job was moved.
func TestImportWarnsOfWhatItLeavesOut(t *testing.T) {
	from, to := startCluster(t), startCluster(t)
	from.must("jobs", "create", "moved", "--every", "1m", "--handler", "h", "--max-attempts", "1", "--queue", "web")
	from.attempt("moved", job.OutcomeFailed, "no")
	from.must("jobs", "update", "moved", "--queue", "mail")
	to.clock.Store(from.clock.Load())
	line := strings.Join(from.exported("--states"), "\n")
	if !strings.Contains(line, `"queue":"web"`) {
		t.Fatalf("the queue of the dead letter is not exported: %s", line)
	}
	line, _, _ = strings.Cut(line, `,"revisions":[`)
	old := strings.Replace(strings.Replace(line, `,"queue":"web"`, "", 1), `"queue":"web",`, "", 1) + "}"
	code, _, errs := to.run("import", "--states", "<"+old)
	if code != 0 || !strings.Contains(errs, "warning: job moved: the dead letter of run ") {
		t.Errorf("%d %s", code, errs)
	}
	if out := to.must("dead-letters", "list"); strings.Contains(out, "moved") {
		t.Errorf("the dead letter is restored: %s", out)
	}
}

func TestInvalidStates(t *testing.T) {
	c := startCluster(t)
	for checkpoint, want := range map[string]string{
		`{"state":"STATE_RUNNING"}`:                                  "checkpoint.state",
		`{"state":"STATE_SCHEDULED"}`:                                "checkpoint.state",
		`{"state":"STATE_DONE","consecutive_failures":"-1"}`:         "checkpoint.consecutive_failures",
		`{"state":"STATE_DONE","runs_total":"-1"}`:                   "checkpoint.runs_total",
		`{"state":"STATE_DONE","generation":"5000000000"}`:           "checkpoint.generation",
		`{"state":"STATE_DONE","pause_time":"2500-01-01T00:00:00Z"}`: "checkpoint.pause_time",
		`{"state":"STATE_SCHEDULED","run":{"trigger":"TRIGGER_SCHEDULE","delay_source":"DELAY_SOURCE_SCHEDULE"}}`:                                                   "checkpoint.run.nominal_time",
		`{"state":"STATE_SCHEDULED","run":{"trigger":"TRIGGER_MANUAL","delay_source":"DELAY_SOURCE_MANUAL","nominal_time":"2026-03-01T12:00:00Z"}}`:                 "checkpoint.run.request_id",
		`{"state":"STATE_DONE","waiting_request_id":"a"}`:                                                                                                           "checkpoint.waiting_request_id",
		`{"state":"STATE_DONE","dead_letters":[{"name":"namespaces/default/jobs/x/deadLetters/7","queue":"default"}]}`:                                              "checkpoint.dead_letters[0].name",
		`{"state":"STATE_DONE","dead_letters":[{"name":"namespaces/default/jobs/x/deadLetters/7","queue":"a b"}]}`:                                                  "checkpoint.dead_letters[0].queue",
		`{"state":"STATE_DONE","concurrent_runs":[{"slot":64}]}`:                                                                                                    "checkpoint.concurrent_runs[0].slot",
		`{"state":"STATE_DONE","backfills":[{"id":"a","concurrency":1,"slots":[3]}]}`:                                                                               "checkpoint.backfills[0].slots",
		`{"state":"STATE_DONE","recent_request_ids":["?"]}`:                                                                                                         "checkpoint.recent_request_ids[0]",
		`{"state":"STATE_SCHEDULED","run":{"trigger":"TRIGGER_SCHEDULE","delay_source":3,"nominal_time":"2026-03-01T12:00:00Z","due_time":"2026-03-01T11:00:00Z"}}`: "checkpoint.run.due_time",
		`{"state":"STATE_DONE","last_error":"` + strings.Repeat("x", 600) + `"}`:                                                                                    "checkpoint.last_error",
		`{"state":"STATE_PAUSED"}`: "checkpoint.state",
		`{"state":"STATE_DONE","hint":{"source":"SOURCE_WORKER","interval":"-1s"}}`: "checkpoint.hint.interval",
	} {
		line := `<{"job":{"name":"x","handler":"h"},"checkpoint":` + checkpoint + `}`
		if code, _, errs := c.run("import", "--states", line); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s", checkpoint, code, errs)
		}
	}
}
