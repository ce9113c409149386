package telemetry

import (
	"context"
	"encoding/hex"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Telemetry counts and logs notices. It is safe for concurrent use.
type Telemetry struct {
	logger  *slog.Logger
	metrics *metrics
	queues  queueTable
	sizes   sizeCollector
	topJobs topJobsCollector
	waits   *waitTracker
	ticks   atomic.Int64
	now     func() time.Time
}

// New registers the metrics. version goes into fermata_build_info.
func New(logger *slog.Logger, r prometheus.Registerer, version string) *Telemetry {
	promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
		Name: "fermata_build_info", Help: "Always 1; the label is the version.",
	}, []string{"version"}).WithLabelValues(version).Set(1)
	t := &Telemetry{logger: logger, metrics: newMetrics(r), now: time.Now}
	t.ticks.Store(t.now().UnixNano())
	t.waits = newWaits(func() time.Time { return t.now() })
	t.metrics.waits = t.waits
	t.queues.metrics = t.metrics
	t.queues.known, t.queues.placesByNamespace = make(map[queueKey]*queueSeries), make(map[string]int)
	r.MustRegister(&t.sizes, &t.topJobs)
	return t
}

// Observe counts and logs what happened.
func (t *Telemetry) Observe(notices []job.Notice) {
	t.countNotices(notices)
	for i := range notices {
		t.logNotice(&notices[i])
	}
}

func (t *Telemetry) countNotices(notices []job.Notice) {
	now := t.now()
	t.queues.mu.RLock()
	defer t.queues.mu.RUnlock()
	var s *queueSeries
	var last queueKey
	for i := range notices {
		n := &notices[i]
		if k := (queueKey{n.Key.Namespace, n.Queue}); s == nil || k != last { // mostly all are of one queue
			s, last = t.queues.seriesOf(k), k
		}
		t.metrics.observeNotice(s, n, now)
	}
}

// ObserveCall counts one call of a client that has ended.
func (t *Telemetry) ObserveCall(method, code string, took time.Duration) {
	t.metrics.calls.WithLabelValues(method, code).Observe(took.Seconds())
}

func (t *Telemetry) logNotice(n *job.Notice) {
	level := noticeLevels[n.Kind]
	ctx := context.Background()
	if !t.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("job", string(n.Key.Record())), slog.String("queue", n.Queue)}
	add := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	add("run", n.RunID)
	add("correlation_id", n.Correlation())
	if n.TraceID != nil {
		add("trace_id", hex.EncodeToString(n.TraceID[:]))
	}
	add("reason", n.Reason)
	add("worker", n.Worker)
	add("error", n.Error)
	if n.Attempt > 0 {
		attrs = append(attrs, slog.Uint64("attempt", uint64(n.Attempt)))
	}
	if n.Failures > 0 {
		attrs = append(attrs, slog.Uint64("consecutive_failures", uint64(n.Failures)))
	}
	if n.Count > 0 {
		attrs = append(attrs, slog.Int64("count", n.Count))
	}
	if n.DueMS > 0 {
		attrs = append(attrs, slog.Int64("due_ms", int64(n.DueMS)))
	}
	if n.Kind == job.LagBreached {
		attrs = append(attrs, slog.Int64("lag_ms", int64(n.AtMS-n.DueMS)))
	}
	t.logger.LogAttrs(ctx, level, n.Kind.String(), attrs...)
}

// noticeKinds is how many kinds of notices there are.
const noticeKinds = job.LagBreached + 1

// noticeLevels: what is not listed is logged at info, which is 0.
var noticeLevels = [noticeKinds]slog.Level{
	job.JobCreated:      slog.LevelDebug,
	job.AttemptStarted:  slog.LevelDebug,
	job.AttemptFailed:   slog.LevelDebug,
	job.AttemptReturned: slog.LevelDebug,
	job.RunSucceeded:    slog.LevelDebug,
	job.NominalSkipped:  slog.LevelDebug,
	job.BackoffApplied:  slog.LevelInfo,
	job.AttemptTimedOut: slog.LevelWarn,
	job.AttemptLost:     slog.LevelWarn,
	job.RunDead:         slog.LevelWarn,
	job.RunQuarantined:  slog.LevelWarn,
	job.StaleRefused:    slog.LevelWarn,
	job.LagBreached:     slog.LevelWarn,
}
