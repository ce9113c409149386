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

	"github.com/fermata-io/fermata/internal/core/job"
)

func TestHeldTimeIsCountedByCause(t *testing.T) {
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
# HELP fermata_held_seconds_total Time that runs were held back, by reason: no_worker (due, and no worker served the queue), slot (due, and no worker had a free slot), rate and queue (limits of the queue), queue_paused, backoff, retry, paused, or a gate. Backoffs and retries count when they are decided, the other reasons when the wait ends.
# TYPE fermata_held_seconds_total counter
fermata_held_seconds_total{namespace="ns",queue="q",reason="backoff"} 10
fermata_held_seconds_total{namespace="ns",queue="q",reason="lock"} 4
fermata_held_seconds_total{namespace="ns",queue="q",reason="no_worker"} 0
fermata_held_seconds_total{namespace="ns",queue="q",reason="paused"} 60
fermata_held_seconds_total{namespace="ns",queue="q",reason="retry"} 3
fermata_held_seconds_total{namespace="ns",queue="q",reason="slot"} 0.25
# HELP fermata_retries_total Attempts that started after an earlier attempt of their run had failed.
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
	var stats []QueueSize
	for i := range MaxQueues + beyond {
		ns := fmt.Sprintf("ns-%d", i)
		tel.Observe([]job.Notice{{Kind: job.RunSucceeded, Key: job.Key{Namespace: ns, ID: "j"}, Queue: "q"}})
		stats = append(stats, QueueSize{Namespace: ns, Queue: "q", Backlog: 2, Overdue: 1, Dead: 1, DeadFor: time.Duration(i) * time.Second, OldestOverdue: time.Duration(i) * time.Second})
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

// BenchmarkObserve counts the notices of 100 attempts that waited in a backlog, in batches as they come; half of
// them are starts.
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

// shown are the queues of a namespace that have series of their own.
func shown(t *testing.T, reg *prometheus.Registry, namespace string) (queues []string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "fermata_schedule_lag_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["namespace"] == namespace {
				queues = append(queues, labels["queue"])
			}
		}
	}
	return queues
}

// TestNoNamespaceTakesAllSeries: a caller that makes up queues does not keep later ones from having series, and
// two that want all of them get half each.
func TestNoNamespaceTakesAllSeries(t *testing.T) {
	reg := prometheus.NewRegistry()
	tel := New(slog.New(slog.DiscardHandler), reg, "v1")
	see := func(namespace string, queues int) {
		for i := range queues {
			tel.Observe([]job.Notice{{Kind: job.JobCreated, Key: job.Key{Namespace: namespace, ID: "j"}, Queue: fmt.Sprint("q", i)}})
		}
	}
	see("a", 230)
	if n := len(shown(t, reg, "a")); n < MaxQueues-1 {
		t.Errorf("alone a namespace has %d of %d places", n, MaxQueues)
	}
	see("b", 1)
	if n := len(shown(t, reg, "b")); n != 1 {
		t.Errorf("the first queue of another namespace has %d series", n)
	}
	for range 3 {
		see("b", 230)
		see("a", 230)
	}
	a, b := len(shown(t, reg, "a")), len(shown(t, reg, "b"))
	if a+b+len(shown(t, reg, OtherQueues)) > MaxQueues+1 || max(a, b)-min(a, b) > 1 {
		t.Errorf("two namespaces have %d and %d places of %d", a, b, MaxQueues)
	}
}

// TestSeriesOfQueuesThatAreGoneAreDeleted: an unused queue without records gives its place back, one with
// records keeps it.
func TestSeriesOfQueuesThatAreGoneAreDeleted(t *testing.T) {
	reg := prometheus.NewRegistry()
	tel := New(slog.New(slog.DiscardHandler), reg, "v1")
	tel.QueueServed("n", "served", true)
	for _, queue := range []string{"gone", "busy", "quiet"} {
		tel.Observe([]job.Notice{
			{Kind: job.JobCreated, Key: job.Key{Namespace: "n", ID: "j"}, Queue: queue},
			{Kind: job.RunDead, Key: job.Key{Namespace: "n", ID: "j"}, Queue: queue, Reason: "failed", FirstMS: 1, StartedMS: 1, AtMS: 2},
			{Kind: job.NominalSkipped, Key: job.Key{Namespace: "n", ID: "j"}, Queue: queue, Reason: "overlap", Count: 1},
		})
	}
	for range 2 * idleParts {
		tel.EndInterval()
		tel.Observe([]job.Notice{{Kind: job.RunSucceeded, Key: job.Key{Namespace: "n", ID: "j"}, Queue: "busy"}})
		tel.SetQueues([]QueueSize{{Namespace: "n", Queue: "quiet", Scheduled: 1}})
	}
	if got := fmt.Sprint(shown(t, reg, "n")); got != "[busy quiet served]" {
		t.Errorf("series of %s, want those of queues with records, runs or workers", got)
	}
	tel.QueueServed("n", "served", false)
	for range idleParts + 1 {
		tel.EndInterval()
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if strings.Contains(m.String(), `value:"n"`) && !strings.HasPrefix(f.GetName(), "fermata_queue_") && f.GetName() != "fermata_runs_overdue" {
				t.Errorf("%s is left of queues that are gone: %v", f.GetName(), m)
			}
		}
	}
}
