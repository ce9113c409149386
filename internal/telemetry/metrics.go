package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fermata-io/fermata/internal/job"
)

// lagBuckets reach from a tenth of a millisecond to a quarter of an hour. Starts
// that are early fall into the first.
var lagBuckets = []float64{0, .0005, .001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900}

type metrics struct {
	lag          *prometheus.HistogramVec
	early        *prometheus.CounterVec
	attempts     *prometheus.CounterVec
	runs         *prometheus.CounterVec
	backoffDepth *prometheus.HistogramVec
	skipped      *prometheus.CounterVec
	deadLetters  *prometheus.CounterVec
	jobs         *prometheus.CounterVec
	stale        prometheus.Counter
	calls        *prometheus.HistogramVec

	backlog, records, oldest *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	return &metrics{
		lag: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fermata_schedule_lag_seconds", Help: "Start of an attempt minus its due time, by the clock of its shard.",
			Buckets: lagBuckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"namespace", "queue"}),
		early:    counter("fermata_early_starts_total", "Attempts that started before their due time; any is an error.", "namespace", "queue"),
		attempts: counter("fermata_attempts_total", "Attempts that ended, by outcome.", "namespace", "queue", "outcome"),
		runs:     counter("fermata_runs_total", "Runs that ended, by outcome and trigger.", "namespace", "queue", "outcome", "trigger"),
		backoffDepth: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fermata_backoff_failures", Help: "Failed runs in a row at the moment a backoff was applied.",
			Buckets: []float64{1, 2, 3, 4, 5, 10, 20, 50, 100},
		}, []string{"namespace", "queue"}),
		skipped:     counter("fermata_nominal_skipped_total", "Nominal times that passed without a run, by reason.", "namespace", "queue", "reason"),
		deadLetters: counter("fermata_dead_letters_total", "Runs that ended as dead letters, by reason.", "namespace", "queue", "reason"),
		jobs:        counter("fermata_job_changes_total", "Changes of jobs by clients and operators.", "namespace", "change"),
		stale:       f.NewCounter(prometheus.CounterOpts{Name: "fermata_stale_results_refused_total", Help: "Results that came under a token that no longer counts."}),
		calls: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fermata_rpc_seconds", Help: "Time that calls of clients took, by method and status code; streams count when they end.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12),
		}, []string{"method", "code"}),
		backlog: gauge("fermata_queue_backlog", "Due records that wait for a slot, in the shards this node holds.", "namespace", "queue"),
		records: gauge("fermata_queue_records", "Records by region of the index, in the shards this node holds.", "namespace", "queue", "region"),
		oldest:  gauge("fermata_queue_oldest_overdue_seconds", "How long the longest waiting due record has waited, in the shards this node holds.", "namespace", "queue"),
	}
}

// observe counts one notice.
func (m *metrics) observe(n job.Notice) {
	ns, q := n.Key.Namespace, n.Queue
	switch n.Kind {
	case job.AttemptStarted:
		lag := float64(n.AtMS-n.DueMS) / 1000
		m.lag.WithLabelValues(ns, q).Observe(lag)
		if lag < 0 {
			m.early.WithLabelValues(ns, q).Inc()
		}
	case job.AttemptFailed, job.AttemptTimedOut, job.AttemptLost, job.AttemptReturned:
		m.attempts.WithLabelValues(ns, q, attemptOutcome[n.Kind]).Inc()
	case job.RunSucceeded, job.RunDead, job.RunQuarantined, job.RunCancelled:
		m.runs.WithLabelValues(ns, q, runOutcome[n.Kind], triggerName(n.Trigger)).Inc()
		if n.Kind == job.RunSucceeded {
			m.attempts.WithLabelValues(ns, q, "succeeded").Inc()
		}
		if n.Kind == job.RunDead || n.Kind == job.RunQuarantined {
			m.deadLetters.WithLabelValues(ns, q, n.Reason).Inc()
		}
	case job.BackoffApplied:
		m.backoffDepth.WithLabelValues(ns, q).Observe(float64(n.Failures))
	case job.NominalSkipped:
		m.skipped.WithLabelValues(ns, q, n.Reason).Add(float64(n.Count))
	case job.StaleRefused:
		m.stale.Inc()
	case job.JobCreated, job.JobUpdated, job.JobDeleted, job.JobPaused, job.JobResumed, job.ManualRunStarted:
		m.jobs.WithLabelValues(ns, n.Kind.String()).Inc()
	}
}

var attemptOutcome = map[job.NoticeKind]string{
	job.AttemptFailed: "failed", job.AttemptTimedOut: "timed_out",
	job.AttemptLost: "lost", job.AttemptReturned: "returned",
}

var runOutcome = map[job.NoticeKind]string{
	job.RunSucceeded: "succeeded", job.RunDead: "dead",
	job.RunQuarantined: "quarantined", job.RunCancelled: "cancelled",
}

func triggerName(t job.Trigger) string {
	if t == job.TriggerManual {
		return "manual"
	}
	return "schedule"
}

// QueueStat is the size of one queue in the shards that a node holds.
type QueueStat struct {
	Namespace, Queue                               string
	Backlog, Scheduled, Leased, Paused, Dead, Done int64
	OldestOverdue                                  time.Duration
}

// SetQueues replaces the sizes of all queues.
func (t *Telemetry) SetQueues(stats []QueueStat) {
	m := t.metrics
	m.backlog.Reset()
	m.records.Reset()
	m.oldest.Reset()
	for _, s := range stats {
		m.backlog.WithLabelValues(s.Namespace, s.Queue).Set(float64(s.Backlog))
		m.oldest.WithLabelValues(s.Namespace, s.Queue).Set(s.OldestOverdue.Seconds())
		for region, n := range map[string]int64{
			"due": s.Backlog + s.Scheduled, "leased": s.Leased, "paused": s.Paused, "dead": s.Dead, "done": s.Done,
		} {
			m.records.WithLabelValues(s.Namespace, s.Queue, region).Set(float64(n))
		}
	}
}
