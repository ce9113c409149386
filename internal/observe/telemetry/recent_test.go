package telemetry

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// clocked is a Telemetry whose time the test moves.
func clocked(logger *slog.Logger) (*Telemetry, *prometheus.Registry, func(time.Duration)) {
	reg := prometheus.NewRegistry()
	t := New(logger, reg, "v1")
	now := time.Unix(1_800_000_000, 0)
	t.now = func() time.Time { return now }
	t.ticks.Store(now.UnixNano())
	return t, reg, func(d time.Duration) { now = now.Add(d) }
}

var someJob = job.Key{Namespace: "ns", ID: "j"}

func TestTheLastMinuteOfAQueue(t *testing.T) {
	tel, _, pass := clocked(slog.New(slog.DiscardHandler))
	started := func(lagMS int64) job.Notice {
		return job.Notice{Kind: job.AttemptStarted, Key: someJob, Queue: "q", DueMS: 1000, AtMS: unixtime.Milli(1000 + lagMS)}
	}
	tel.Observe([]job.Notice{
		started(40), started(900), started(-5),
		{Kind: job.RunSucceeded, Key: someJob, Queue: "q"},
		{Kind: job.AttemptFailed, Key: someJob, Queue: "q"},
		{Kind: job.AttemptTimedOut, Key: someJob, Queue: "q"},
		{Kind: job.AttemptReturned, Key: someJob, Queue: "q"},
		{Kind: job.LagBreached, Key: someJob, Queue: "q", Reason: job.LagMissed, Count: 7},
	})
	recent := func() job.RecentRuns {
		t.Helper()
		list := tel.RecentRuns()
		if len(list) != 1 || list[0].Queue != "q" || list[0].Namespace != "ns" {
			t.Fatalf("%+v", list)
		}
		return list[0].RecentRuns
	}
	if got := recent(); got != (job.RecentRuns{}) {
		t.Errorf("before the first part has ended: %+v", got)
	}
	pass(5 * time.Second)
	tel.EndInterval()
	tel.Observe([]job.Notice{started(100)})
	pass(5 * time.Second)
	tel.EndInterval()
	want := job.RecentRuns{Started: 4, Succeeded: 1, Failed: 2, Breaches: 7, MaxLag: 900 * time.Millisecond, Span: 10 * time.Second}
	if got := recent(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for range recentParts - 1 { // the first part is forgotten
		pass(5 * time.Second)
		tel.EndInterval()
	}
	want = job.RecentRuns{Started: 1, MaxLag: 100 * time.Millisecond, Span: time.Minute}
	if got := recent(); got != want {
		t.Errorf("a minute later %+v, want %+v", got, want)
	}
}

// TestBreachesAreCountedAndLogged: each of them; how many lines are written of a flood is
// up to the logger, as it is for all others.
func TestBreachesAreCountedAndLogged(t *testing.T) {
	var out bytes.Buffer
	tel, reg, _ := clocked(slog.New(slog.NewJSONHandler(&out, nil)))
	breach := job.Notice{
		Kind: job.LagBreached, Key: someJob, Queue: "q", RunID: "1-2", DueMS: 1000, AtMS: 4500, Count: 1, Reason: job.LagLate, Worker: "w1",
	}
	for range 5 {
		tel.Observe([]job.Notice{breach})
	}
	missed := breach
	missed.Queue, missed.Reason, missed.Count = "other", job.LagMissed, 3
	tel.Observe([]job.Notice{missed})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 6 {
		t.Fatalf("%d lines: %s", len(lines), out.String())
	}
	for i, line := range lines {
		queue := `"queue":"q"`
		if i == 5 {
			queue = `"queue":"other"`
		}
		if !strings.Contains(line, queue) || !strings.Contains(line, `"lag_ms":3500`) || !strings.Contains(line, `"correlation_id"`) {
			t.Errorf("line %d: %s", i, line)
		}
	}
	const counted = `
# HELP fermata_lag_breaches_total Runs that broke their job's lateness objective: late (not started within max_lag) or missed (a scheduled time was skipped during an outage).
# TYPE fermata_lag_breaches_total counter
fermata_lag_breaches_total{namespace="ns",queue="other",reason="late"} 0
fermata_lag_breaches_total{namespace="ns",queue="other",reason="missed"} 3
fermata_lag_breaches_total{namespace="ns",queue="q",reason="late"} 5
fermata_lag_breaches_total{namespace="ns",queue="q",reason="missed"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(counted), "fermata_lag_breaches_total"); err != nil {
		t.Error(err)
	}
}

func TestTopJobsAreExportedOnlyWhenSet(t *testing.T) {
	tel, reg, _ := clocked(slog.New(slog.DiscardHandler))
	count := func(name string) int {
		n, err := testutil.GatherAndCount(reg, name)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	tel.SetTopJobs(TopJobs{Failing: []int64{9, 4, 3, 2, 1, 0}})
	if count("fermata_failing_jobs") != len(FailureDepths) || count("fermata_top_job_failures") != 0 {
		t.Error("jobs are named")
	}
	named := job.TopJob{Record: job.Record{Definition: &job.Definition{Key: someJob, Queue: "q"}, State: job.State{Failures: 12}}, Lag: 90 * time.Second}
	tel.SetTopJobs(TopJobs{MostFailing: []job.TopJob{named}, Latest: []job.TopJob{named}})
	const want = `
# HELP fermata_top_job_failures Consecutive failed runs of the jobs that fail longest, in the shards this node holds; --metrics-top-jobs sets how many.
# TYPE fermata_top_job_failures gauge
fermata_top_job_failures{job_id="j",namespace="ns",queue="q"} 12
# HELP fermata_top_job_lag_seconds How late the most overdue jobs are, in the shards this node holds; --metrics-top-jobs sets how many.
# TYPE fermata_top_job_lag_seconds gauge
fermata_top_job_lag_seconds{job_id="j",namespace="ns",queue="q"} 90
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "fermata_top_job_failures", "fermata_top_job_lag_seconds"); err != nil {
		t.Error(err)
	}
}
