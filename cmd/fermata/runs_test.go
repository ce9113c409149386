package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

func TestPeopleSteerJobs(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1m", "--handler", "h", "--jitter", "none", "--schedule-jitter", "20s", "--exclude-window", "Sat",
		"--overlap", "buffer-all", "--misfire", "run-all", "--catch-up-window", "1h", "--lock", "ledger", "--lock", "api=5", "--target", "api.example.com",
		"--pause-after", "9", "--max-runs", "100")
	for range 2 {
		c.attempt("ping", job.OutcomeFailed, "status 503")
	}
	golden(t, "steer", c.script(
		"jobs get ping",
		"jobs explain ping",
		"preview ping -n 3 --tz UTC",
		"jobs hint ping --every 90s --for 30m --reason careful",
		"jobs hint ping --in 10m --planner",
		"jobs get ping",
		"jobs explain ping",
		"jobs hint ping --clear",
		"jobs hint ping",
		"jobs hint ping --in 5m --at 2030-01-01",
		"jobs hint ping --clear --in 5m",
		"jobs hint nothing --in 5m",
		"jobs run ping --backoff keep",
		"jobs explain ping",
		"jobs run ping --backoff never",
		"jobs pause ping --note checking",
		"jobs explain ping",
		"jobs resume --all --prefix pi --note other",
		"jobs resume --all --prefix pi --catch-up",
		"jobs pause --all --queue default --note outage-17",
		"jobs pause --all --queue default --note again",
		"jobs resume --all --note outage-17",
		"jobs resume ping --note outage-17",
		"jobs resume --all",
		"jobs resume --all ping",
		"jobs resume",
		"jobs resume ping --queue default",
		"jobs update ping --lock= --target= --exclude-window= --schedule-jitter 0s --overlap skip",
		"jobs get ping",
	))
}

func TestBackfillsAsTables(t *testing.T) {
	goldenScript(t, "backfill", [][]string{
		{"jobs", "create", "report", "--cron", "0 * * * *", "--handler", "h"},
	},
		"jobs backfill report --from 2026-02-28T00:00:00Z --to 2026-02-28T12:00:00Z --id again --tz UTC",
		"jobs get report",
		"jobs explain report",
		"jobs runs report",
		"jobs backfill-cancel report again",
		"jobs backfill-cancel report other",
		"jobs backfill report --from 2026-02-28",
		"jobs backfill report --from 2026-02-28 --to 2026-02-20 --tz UTC",
		"jobs backfill nothing --from 2026-02-20 --to 2026-02-28 --tz UTC",
	)
}

func TestDeadLettersAsTables(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "report", "--every", "1m", "--handler", "h", "--queue", "mail", "--jitter", "none")
	c.must("jobs", "create", "once", "--in", "1m", "--handler", "h", "--max-attempts", "1")
	c.must("jobs", "create", "later", "--in", "1h", "--handler", "h")
	for range 3 {
		c.attempt("report", job.OutcomeFailed, "status 500")
	}
	c.attempt("once", job.OutcomeFailed, "status 503")
	c.pass(10 * time.Second)
	_, slots, _ := c.run("dead-letters", "list", "--queue", "mail")
	slot := regexp.MustCompile(`report/\S+`).FindString(slots)
	golden(t, "dead", c.script(
		"dead-letters list",
		"dead-letters list --queue mail",
		"dead-letters list --prefix later",
		"dead-letters redrive --all --dry-run",
		"dead-letters discard "+slot,
		"dead-letters discard "+slot,
		"dead-letters discard later",
		"dead-letters redrive report/1",
		"dead-letters redrive report/1",
		"dead-letters redrive report",
		"dead-letters redrive once later",
		"dead-letters redrive --all --queue mail",
		"dead-letters redrive --all --prefix once",
		"dead-letters redrive --queue mail",
		"dead-letters redrive --dry-run report",
		"jobs runs report",
		"jobs get once",
		"dead-letters list",
	))
}

func TestTargetsAndLocksAsTables(t *testing.T) {
	goldenScript(t, "targets", [][]string{
		{"jobs", "create", "close", "--every", "1m", "--handler", "h", "--jitter", "none", "--lock", "ledger",
			"--target", "api.example.com"},
		{"jobs", "create", "post", "--every", "1m", "--handler", "h", "--jitter", "none", "--lock", "ledger=3"},
	},
		"targets list",
		"targets list --open",
		"targets probe api.example.com",
		"targets reset api.example.com other",
		"targets reset api.example.com -o json",
		"targets probe",
		"locks list",
		"locks list --held",
		"locks list -A --columns namespace,lock,held",
		"locks list -o yaml",
	)
}

func TestWarningsOfDoubtfulJobs(t *testing.T) {
	c := startCluster(t)
	golden(t, "warnings", c.script(
		"jobs create ended --every 1m --end 2026-02-01T00:00:00Z --handler h",
		"jobs create fine --every 1m --handler h",
		"jobs update fine --end 2026-02-01T00:00:00Z -o name",
		"jobs get fine -o name",
	))
	code, _, errs := c.run("apply", "-f", "-", "<jobs: {leap: {handler: h, schedule: {cron: {expressions: [0 0 29 2 *]}}}}")
	if code != 0 || !strings.Contains(errs, "warning: leap: schedule first starts a run at 2028-02-29T00:00:00Z") {
		t.Errorf("apply: %d, %q", code, errs)
	}
}

func TestQueueLimits(t *testing.T) {
	goldenScript(t, "queues", nil,
		"queues get mail",
		"queues set mail --max-concurrency 20 --rate 100 --burst 200",
		"queues set mail --rate 0 --recovery-rate 5",
		"queues get mail -o yaml",
		"queues set mail",
		"queues set mail --burst 5",
		"queues set mail --max-concurrency -1",
		"queues get no/such",
	)
}

func TestPausedQueue(t *testing.T) {
	goldenScript(t, "pause", [][]string{
		{"jobs", "create", "due", "--queue", "mail", "--at", "2026-03-01T11:59:00Z", "--handler", "h"},
	},
		"queues set mail --rate 100",
		"queues pause mail no/such news",
		"queues pause mail",
		"queues get mail",
		"queues set mail --rate 5",
		"queues get mail -o yaml",
		"jobs explain due",
		"jobs run due",
		"jobs explain due",
		"queues pause mail --for 2h",
		"queues get mail",
		"queues set mail --rate 6",
		"jobs explain due",
		"queues pause mail --until 2026-03-02T06:00:00Z -o yaml",
		"queues pause mail --until 2026-02-01T06:00:00Z",
		"queues pause mail --until noon",
		"queues pause mail --for 0s",
		"queues pause mail --for 1h --until 2026-03-02T06:00:00Z",
		"queues pause mail",
		"queues get mail",
		"queues resume mail -o yaml",
		"queues resume news",
		"queues get news",
		"jobs explain due",
		"queues pause",
	)
}

// A queue without jobs and workers is noted, after the change.
func TestUnusedQueueIsNoted(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "x", "--every", "1h", "--queue", "used", "--handler", "h")
	for _, command := range [][]string{{"pause"}, {"set", "--rate", "5"}} {
		for queue, note := range map[string]string{"used": "", "unused": "note: queue unused has no jobs and no workers yet\n"} {
			code, out, errs := c.run(append([]string{"queues", command[0], queue}, command[1:]...)...)
			if code != 0 || out == "" || errs != note {
				t.Errorf("%v %s: %d, %q, %q", command, queue, code, out, errs)
			}
		}
	}
}

// What is left out of an edit of a schedule stays.
func TestUpdateOfAScheduleInParts(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "x", "--every", "1m", "--handler", "h", "--schedule-jitter", "5s", "--exclude-date", "12-25", "--tz", "Europe/Berlin")
	c.must("jobs", "update", "x", "--every", "5m")
	c.must("jobs", "update", "x", "--max-runs", "7")
	s := c.stored("x").GetSchedule()
	if s.GetInterval().GetEvery().AsDuration() != 5*time.Minute || s.GetJitter().AsDuration() != 5*time.Second || s.GetMaxRuns() != 7 ||
		strings.Join(s.GetExclusions().GetDates(), " ") != "12-25" || s.GetExclusions().GetTimeZone() != "Europe/Berlin" {
		t.Errorf("stored %v", s)
	}
	c.must("jobs", "update", "x", "--at", "2030-01-01")
	if s := c.stored("x").GetSchedule(); s.GetOnce() == nil || s.GetJitter() != nil || s.GetExclusions() != nil {
		t.Errorf("stored %v", s)
	}
	code, _, errs := c.run("jobs", "create", "y", "--handler", "h", "--max-runs", "3")
	if code != exitUsage || !strings.Contains(errs, "need --every, --cron or --calendar") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestRunsWithPayloadsAsTables: a run with another payload is asked for, refused with flags that it has not, and shown.
func TestRunsWithPayloadsAsTables(t *testing.T) {
	goldenScript(t, "run-payload", [][]string{
		{"jobs", "create", "digest", "--cron", "0 * * * *", "--handler", "h", "--payload", "{}"},
	},
		"jobs run digest --payload once --request-id first",
		"jobs run digest --payload once --backoff keep",
		"jobs run digest --payload a --payload-file b",
		"jobs run --filter id=digest --payload x",
		"jobs runs digest",
		"jobs runs digest m-first",
		"jobs get digest",
	)
}

func TestCancelNamesRunsBesideTheSchedule(t *testing.T) {
	goldenScript(t, "cancel-beside", [][]string{
		{"jobs", "create", "slp", "--handler", "h"},
	},
		"jobs cancel slp",
		"jobs run slp --payload once --request-id first",
		"jobs cancel slp",
		"jobs cancel slp m-first",
	)
}
