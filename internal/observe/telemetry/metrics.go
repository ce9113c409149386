package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fermata-io/fermata/internal/core/job"
)

// lagBuckets reach from a tenth of a millisecond to a quarter of an hour. Starts
// that are early fall into the first.
var lagBuckets = []float64{0, .0005, .001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900}

// spanBuckets are for the times of handlers: from a no-op to an hour.
var spanBuckets = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}

// onTimeMS is how long after its due time an attempt may start to be on time, in
// milliseconds. It is a bound of lagBuckets.
const onTimeMS = 1000

type metrics struct {
	lag, attemptSeconds, runSeconds *prometheus.HistogramVec
	backoffDepth                    *prometheus.HistogramVec
	starts                          *prometheus.CounterVec
	early, retries                  *prometheus.CounterVec
	attempts, runs                  *prometheus.CounterVec
	held, skipped, deadLetters      *prometheus.CounterVec
	jobs, breaches                  *prometheus.CounterVec
	calls                           *prometheus.HistogramVec
	waits                           *waitTracker
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	// histogram has classic buckets, for every server and dashboard, and native ones
	// for those that take them.
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return f.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"namespace", "queue"})
	}
	return &metrics{
		lag: histogram("fermata_schedule_lag_seconds",
			"Start of an attempt minus its due time, by the clock of its shard.", lagBuckets),
		attemptSeconds: histogram("fermata_attempt_seconds",
			"Time from the start of an attempt until its result was stored.", spanBuckets),
		runSeconds: histogram("fermata_run_seconds",
			"Time from the start of a run's first attempt until the run ended, including pauses between "+
				"attempts.",
			spanBuckets),
		backoffDepth: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fermata_backoff_failures", Help: "Consecutive failed runs at the time a backoff was " +
				"applied.",
			Buckets: []float64{1, 2, 3, 4, 5, 10, 20, 50, 100},
		}, []string{"namespace", "queue"}),
		starts: counter("fermata_starts_total",
			"Attempts that started, by timing: on_time (within a second of their due time) or late.", "namespace",
			"queue", "timing"),
		early: counter("fermata_early_starts_total",
			"Attempts that started before their due time; each one is a defect.", "namespace", "queue"),
		retries: counter("fermata_retries_total",
			"Attempts that started after an earlier attempt of their run had failed.", "namespace", "queue"),
		attempts: counter("fermata_attempts_total", "Attempts that ended, by outcome.", "namespace", "queue",
			"outcome"),
		runs: counter("fermata_runs_total", "Runs that ended, by outcome and trigger.", "namespace", "queue",
			"outcome", "trigger"),
		held: counter("fermata_held_seconds_total", "Time that runs were held back, by reason: "+
			"no_worker (due, and no worker served the queue), slot (due, and no worker had a free slot), rate and "+
			"queue (limits of the queue), queue_paused, backoff, retry, paused, or a gate. "+
			"Backoffs and retries count when they are decided, the other reasons when the wait ends.",
			"namespace", "queue", "reason"),
		skipped: counter("fermata_nominal_times_skipped_total", "Scheduled times that passed without a "+
			"run, by reason.",
			"namespace", "queue", "reason"),
		deadLetters: counter("fermata_dead_letters_total", "Runs that ended as dead letters, by reason.", "namespace",
			"queue", "reason"),
		breaches: counter("fermata_lag_breaches_total",
			"Runs that broke their job's lateness objective: late (not started within max_lag) or missed (a "+
				"scheduled time was skipped during an outage).", "namespace", "queue", "reason"),
		jobs: counter("fermata_job_changes_total", "Changes of jobs by clients and operators.", "namespace",
			"change"),
		calls: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fermata_rpc_seconds", Help: "Duration of clients' calls, by method and status code. " +
				"Streams count when they end; those that reached their maximum age count as OK.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12),
		}, []string{"method", "code"}),
	}
}

// forgetQueue deletes the series of a queue.
func (m *metrics) forgetQueue(k queueKey) {
	labels := prometheus.Labels{"namespace": k.namespace, "queue": k.queue}
	for _, v := range []*prometheus.HistogramVec{m.lag, m.attemptSeconds, m.runSeconds, m.backoffDepth} {
		v.DeletePartialMatch(labels)
	}
	for _, v := range []*prometheus.CounterVec{m.starts, m.early, m.retries, m.attempts, m.runs, m.held, m.skipped,
		m.deadLetters, m.breaches} {
		v.DeletePartialMatch(labels)
	}
}

// observeNotice counts one notice on the series of its queue.
func (m *metrics) observeNotice(s *queueSeries, n *job.Notice, now time.Time) {
	switch n.Kind {
	case job.AttemptStarted:
		s.countStart(n, now)
	case job.AttemptFailed, job.AttemptTimedOut, job.AttemptLost, job.AttemptReturned:
		s.countAttemptEnd(n)
		if n.Kind == job.AttemptFailed || n.Kind == job.AttemptTimedOut {
			s.recent.failed.Add(1)
		}
		s.countRetryDelay(int64(n.DueMS - n.AtMS))
	case job.RunSucceeded, job.RunDead, job.RunQuarantined, job.RunCancelled:
		s.countRunEnd(n)
	case job.BackoffApplied:
		s.backoffDepth.Observe(float64(n.Failures))
		s.countHeldTime("backoff", int64(n.DueMS-n.AtMS))
	case job.LagBreached:
		s.countBreach(n)
	case job.NominalSkipped:
		m.skipped.WithLabelValues(s.namespace, s.queue, n.Reason).Add(float64(n.Count))
	case job.JobResumed:
		s.countHeldTime("paused", n.HeldMS)
		m.jobs.WithLabelValues(s.namespace, n.Kind.String()).Inc()
	case job.JobCreated, job.JobUpdated, job.JobDeleted, job.JobPaused, job.ManualRunStarted:
		m.jobs.WithLabelValues(s.namespace, n.Kind.String()).Inc()
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
	switch t {
	case job.TriggerManual:
		return "manual"
	case job.TriggerBackfill:
		return "backfill"
	}
	return "schedule"
}
