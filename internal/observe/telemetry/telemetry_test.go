package telemetry

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

func TestNoticesAreCountedByBoundedLabels(t *testing.T) {
	reg := prometheus.NewRegistry()
	tel := New(slog.New(slog.DiscardHandler), reg, "v1")
	key := job.Key{Namespace: "ns", ID: "job-1"}
	tel.Observe([]job.Notice{
		{Kind: job.RunSucceeded, Key: key, Queue: "q"},
		{Kind: job.AttemptFailed, Key: key, Queue: "q"},
		{Kind: job.RunDead, Key: key, Queue: "q", Reason: "out of attempts", Trigger: job.TriggerManual},
		{Kind: job.NominalSkipped, Key: key, Queue: "q", Reason: "overlap", Count: 7},
		{Kind: job.AttemptStarted, Key: key, Queue: "q", DueMS: 1000, AtMS: 999},
	})
	want := `
# HELP fermata_attempts_total Attempts that ended, by outcome.
# TYPE fermata_attempts_total counter
fermata_attempts_total{namespace="ns",outcome="failed",queue="q"} 1
fermata_attempts_total{namespace="ns",outcome="lost",queue="q"} 0
fermata_attempts_total{namespace="ns",outcome="returned",queue="q"} 0
fermata_attempts_total{namespace="ns",outcome="succeeded",queue="q"} 1
fermata_attempts_total{namespace="ns",outcome="timed_out",queue="q"} 0
# HELP fermata_dead_letters_total Runs that ended as dead letters, by reason.
# TYPE fermata_dead_letters_total counter
fermata_dead_letters_total{namespace="ns",queue="q",reason="corrupt"} 0
fermata_dead_letters_total{namespace="ns",queue="q",reason="out of attempts"} 1
fermata_dead_letters_total{namespace="ns",queue="q",reason="permanent"} 0
fermata_dead_letters_total{namespace="ns",queue="q",reason="poison"} 0
fermata_dead_letters_total{namespace="ns",queue="q",reason="undelivered"} 0
# HELP fermata_early_starts_total Attempts that started before their due time; each one is a defect.
# TYPE fermata_early_starts_total counter
fermata_early_starts_total{namespace="ns",queue="q"} 1
# HELP fermata_nominal_times_skipped_total Scheduled times that passed without a run, by reason.
# TYPE fermata_nominal_times_skipped_total counter
fermata_nominal_times_skipped_total{namespace="ns",queue="q",reason="overlap"} 7
# HELP fermata_runs_total Runs that ended, by outcome and trigger.
# TYPE fermata_runs_total counter
fermata_runs_total{namespace="ns",outcome="cancelled",queue="q",trigger="schedule"} 0
fermata_runs_total{namespace="ns",outcome="dead",queue="q",trigger="manual"} 1
fermata_runs_total{namespace="ns",outcome="dead",queue="q",trigger="schedule"} 0
fermata_runs_total{namespace="ns",outcome="quarantined",queue="q",trigger="backfill"} 0
fermata_runs_total{namespace="ns",outcome="quarantined",queue="q",trigger="manual"} 0
fermata_runs_total{namespace="ns",outcome="quarantined",queue="q",trigger="schedule"} 0
fermata_runs_total{namespace="ns",outcome="succeeded",queue="q",trigger="schedule"} 1
`
	err := testutil.GatherAndCompare(reg, strings.NewReader(want), "fermata_attempts_total", "fermata_dead_letters_total",
		"fermata_early_starts_total", "fermata_nominal_times_skipped_total", "fermata_runs_total")
	if err != nil {
		t.Error(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.Contains(f.String(), "job-1") {
			t.Errorf("%s carries a job id", f.GetName())
		}
	}
}

// A start counts as late from the first millisecond beyond a second on. Both series of a queue are there before its
// first start, from the moment that a worker serves it: a counter that appears with its first value has not increased.
func TestStartsAreCountedByTiming(t *testing.T) {
	reg := prometheus.NewRegistry()
	tel := New(slog.New(slog.DiscardHandler), reg, "v1")
	tel.QueueServed("ns", "idle", true)
	for _, lag := range []int64{-5, 0, 1, 999, 1000, 1001, 60_000} {
		tel.Observe([]job.Notice{{Kind: job.AttemptStarted, Key: job.Key{Namespace: "ns", ID: "j"}, Queue: "q", DueMS: 10_000, AtMS: unixtime.Milli(10_000 + lag)}})
	}
	want := `
# HELP fermata_starts_total Attempts that started, by timing: on_time (within a second of their due time) or late.
# TYPE fermata_starts_total counter
fermata_starts_total{namespace="ns",queue="idle",timing="late"} 0
fermata_starts_total{namespace="ns",queue="idle",timing="on_time"} 0
fermata_starts_total{namespace="ns",queue="q",timing="late"} 2
fermata_starts_total{namespace="ns",queue="q",timing="on_time"} 5
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "fermata_starts_total"); err != nil {
		t.Error(err)
	}
}

func TestWarningsAreOneLineWithIds(t *testing.T) {
	var out bytes.Buffer
	tel := New(slog.New(slog.NewJSONHandler(&out, nil)), prometheus.NewRegistry(), "v1")
	tel.Observe([]job.Notice{
		{Kind: job.RunSucceeded, Key: job.Key{Namespace: "ns", ID: "quiet"}},
		{Kind: job.RunDead, Key: job.Key{Namespace: "ns", ID: "a"}, RunID: "1-2", Error: "boom", Attempt: 3, Failures: 2},
	})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 1 {
		t.Fatalf("want one line, got %q", lines)
	}
	var line map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &line); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{"level": "WARN", "msg": "run_dead", "job": "ns/a", "run": "1-2", "error": "boom", "attempt": 3.0} {
		if line[name] != want {
			t.Errorf("%s = %v, want %v", name, line[name], want)
		}
	}
}

func TestEndpoints(t *testing.T) {
	missing, up := []string{"redis: unreachable"}, false
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	s := Serve(listener, ServerOptions{Gatherer: registry, Registerer: registry, Up: func() bool { return up },
		Ready: func() []string { return missing }})
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + s.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	if code, body := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "redis") {
		t.Errorf("not ready: %d %q", code, body)
	}
	if code, _ := get("/metrics"); code != http.StatusServiceUnavailable {
		t.Errorf("metrics before it is up: %d", code)
	}
	if code, _ := get("/healthz"); code != http.StatusOK {
		t.Errorf("healthz before it is up: %d", code)
	}
	missing, up = nil, true
	for _, path := range []string{"/readyz", "/healthz", "/metrics"} {
		redistest.Eventually(t, redistest.Patience, path, func() bool { code, _ := get(path); return code == http.StatusOK })
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
