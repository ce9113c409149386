package telemetry

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/job"
)

func TestTimeHeldIsCountedByWhatHeld(t *testing.T) {
	reg := prometheus.NewRegistry()
	tel := New(slog.New(slog.DiscardHandler), reg, "v1")
	key := job.Key{Namespace: "ns", ID: "j"}
	tel.Observe([]job.Notice{
		{Kind: job.AttemptStarted, Key: key, Queue: "q", DueMS: 1000, AtMS: 1250, Held: job.HeldLock, HeldMS: 4000},
		{Kind: job.AttemptFailed, Key: key, Queue: "q", AtMS: 2000, DueMS: 5000, StartedMS: 1250},
		{Kind: job.AttemptStarted, Key: key, Queue: "q", DueMS: 5000, AtMS: 5000, Attempt: 2},
		{Kind: job.BackoffApplied, Key: key, Queue: "q", AtMS: 6000, DueMS: 16000, Failures: 2},
		{Kind: job.JobResumed, Key: key, Queue: "q", AtMS: 6000, HeldMS: 60000},
	})
	want := `
# HELP fermata_held_seconds_total Time that runs were held back, by what held them: no_worker (due, and no worker served the queue), slot (due, and its workers had no room), rate and queue (limits of the queue), backoff, retry, paused, or a gate. Backoffs and retries count when they are decided, the others when they end.
# TYPE fermata_held_seconds_total counter
fermata_held_seconds_total{namespace="ns",queue="q",reason="backoff"} 10
fermata_held_seconds_total{namespace="ns",queue="q",reason="lock"} 4
fermata_held_seconds_total{namespace="ns",queue="q",reason="no_worker"} 0
fermata_held_seconds_total{namespace="ns",queue="q",reason="paused"} 60
fermata_held_seconds_total{namespace="ns",queue="q",reason="retry"} 3
fermata_held_seconds_total{namespace="ns",queue="q",reason="slot"} 0.25
# HELP fermata_retries_total Attempts that started after an earlier one of their run had failed.
# TYPE fermata_retries_total counter
fermata_retries_total{namespace="ns",queue="q"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "fermata_held_seconds_total", "fermata_retries_total"); err != nil {
		t.Error(err)
	}
}

// Names come from clients: however many they make up, the series stay bounded, and
// nothing is left out of the sums.
func TestSeriesStayBoundedHoweverManyQueuesThereAre(t *testing.T) {
	reg := prometheus.NewRegistry()
	tel := New(slog.New(slog.DiscardHandler), reg, "v1")
	const beyond = 50
	var stats []QueueStat
	for i := range MaxQueues + beyond {
		ns := fmt.Sprintf("ns-%d", i)
		tel.Observe([]job.Notice{{Kind: job.RunSucceeded, Key: job.Key{Namespace: ns, ID: "j"}, Queue: "q"}})
		stats = append(stats, QueueStat{Namespace: ns, Queue: "q", Backlog: 2, Overdue: 1, Dead: 1, DeadFor: time.Duration(i) * time.Second, OldestOverdue: time.Duration(i) * time.Second})
	}
	tel.SetQueues(stats)
	for name, want := range map[string]int{
		"fermata_schedule_lag_seconds": MaxQueues + 1, "fermata_queue_backlog": MaxQueues + 1, "fermata_queue_records": 5 * (MaxQueues + 1),
	} {
		if got, err := testutil.GatherAndCount(reg, name); err != nil || got != want {
			t.Errorf("%s has %d series (%v), want %d", name, got, err, want)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"fermata_queue_backlog": 2 * beyond, "fermata_queue_dead_letter_kept_seconds": MaxQueues,
		"fermata_queue_oldest_overdue_seconds": MaxQueues + beyond - 1, "fermata_runs_overdue": beyond,
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if strings.Contains(m.String(), `"other"`) && want[f.GetName()] != 0 {
				if got := m.GetGauge().GetValue(); got != want[f.GetName()] {
					t.Errorf("%s of all others is %v, want %v", f.GetName(), got, want[f.GetName()])
				}
				delete(want, f.GetName())
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("no series of all others for %v", want)
	}
}

// BenchmarkObserve counts what there is to tell of 100 attempts that waited in a backlog: as it
// comes of a batch, half of them starts.
func BenchmarkObserve(b *testing.B) {
	key := job.Key{Namespace: "default", ID: "a-0000000000000000010973"}
	const due, start, end = 1_800_000_000_000, 1_800_000_060_000, 1_800_000_060_004
	for name, ended := range map[string]job.Notice{
		"succeeded": {Kind: job.RunSucceeded, AtMS: end, FirstMS: start, StartedMS: start},
		"retried":   {Kind: job.AttemptFailed, AtMS: end, StartedMS: start, DueMS: end + 1},
	} {
		b.Run(name, func(b *testing.B) {
			t := New(slog.New(slog.NewTextHandler(os.Stderr, nil)), prometheus.NewRegistry(), "test")
			t.QueueServed(key.Namespace, "mail", true)
			ended.Key, ended.Queue, ended.RunID = key, "mail", "1"
			started := job.Notice{Kind: job.AttemptStarted, Key: key, Queue: "mail", RunID: "1", Attempt: 1, AtMS: start, DueMS: due}
			var notices []job.Notice
			for range 100 {
				notices = append(notices, started, ended)
			}
			b.ReportAllocs()
			for b.Loop() {
				t.Observe(notices)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(100*b.N), "ns/attempt")
		})
	}
}
