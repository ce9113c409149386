package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestWhatFailed lists the failed runs of all jobs.
func TestWhatFailed(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "flaky", "--every", "1h", "--exec", `["/bin/false"]`, "--queue", "mail", "--jitter", "none", "--max-attempts", "1",
		"--label", "team=ops")
	c.must("jobs", "create", "slow", "--every", "1h", "--handler", "h", "--jitter", "none", "--max-attempts", "1")
	c.must("jobs", "create", "gone", "--every", "1h", "--handler", "h", "--jitter", "none", "--namespace", "other")
	c.must("jobs", "cancel", "gone", "--namespace", "other")
	c.attempt("flaky", job.OutcomeFailed, "exit code 1")
	c.attempt("slow", job.OutcomeTimedOut, "no answer within 30s")
	c.pass(time.Hour)
	c.attempt("slow", job.OutcomeSucceeded, "")
	c.must("jobs", "cancel", "flaky")
	c.must("jobs", "delete", "slow")
	golden(t, "what_failed", c.script(
		"runs list",
		"runs list --failed --since 13:00 --until 13:00:03 --tz UTC",
		"runs list --failed --since 30m",
		"runs list --failed --since 2026-03-01T13:00:00Z",
		"runs list --outcome timed-out --columns job,ended,error",
		"runs list --outcome cancelled -o json",
		"runs list --queue mail --failed -o name",
		"runs list --filter labels.team=ops --limit 1",
		"runs list -A --columns namespace,job,outcome",
		"runs list --namespace other",
		"runs list --outcome succeeded",
		"runs list --outcome broken",
		"runs list --outcome dead --failed",
		"runs list --since 24h --until 25h",
		"runs list --since yesterday",
		"runs list --limit 0",
		"runs list --filter colour=red",
	))
}

// TestTimesOfDay reads windows of times of day, also across midnight and before the time of day comes.
func TestTimesOfDay(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ now, since, until, want string }{
		{"2026-03-05T09:00:00+01:00", "02:00", "03:00", "2026-03-05T02:00:00+01:00 2026-03-05T03:00:00+01:00"},
		{"2026-03-05T01:00:00+01:00", "02:00", "03:00", "2026-03-04T02:00:00+01:00 2026-03-04T03:00:00+01:00"},
		{"2026-03-05T02:30:00+01:00", "02:00", "03:00", "2026-03-05T02:00:00+01:00 2026-03-05T03:00:00+01:00"},
		{"2026-03-05T09:00:00+01:00", "22:00", "03:00", "2026-03-04T22:00:00+01:00 2026-03-05T03:00:00+01:00"},
		{"2026-03-05T23:00:00+01:00", "22:00", "03:00", "2026-03-05T22:00:00+01:00 2026-03-06T03:00:00+01:00"},
		{"2026-03-05T09:00:00+01:00", "48h", "03:00", "2026-03-03T09:00:00+01:00 2026-03-05T03:00:00+01:00"},
		{"2026-03-05T09:00:00+01:00", "", "09:00:00", "0001-01-01T00:00:00Z 2026-03-05T09:00:00+01:00"},
		{"2026-03-05T09:00:00+01:00", "1d", "2h", "2026-03-04T09:00:00+01:00 2026-03-05T07:00:00+01:00"},
		{"2026-03-29T09:00:00+02:00", "02:30", "04:00", "2026-03-29T03:00:00+02:00 2026-03-29T04:00:00+02:00"}, // clocks skip it
	} {
		now, err := time.Parse(time.RFC3339, x.now)
		if err != nil {
			t.Fatal(err)
		}
		f := endedRunsFlags{since: x.since, until: x.until, zone: "Europe/Berlin"}
		a := &app{now: func() time.Time { return now }, standardStreams: standardStreams{err: t.Output()}}
		if err := a.readWindow(&f); err != nil {
			t.Errorf("%+v: %v", x, err)
			continue
		}
		show := func(at time.Time) string {
			if at.IsZero() {
				return at.Format(time.RFC3339)
			}
			return at.In(berlin).Format(time.RFC3339)
		}
		if got := fmt.Sprint(show(f.options.From), " ", show(f.options.To)); got != x.want {
			t.Errorf("now %s, since %s until %s: %s, want %s", x.now, x.since, x.until, got, x.want)
		}
	}
}
