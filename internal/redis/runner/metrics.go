package runner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// metrics are those of all calls of a runner.
type metrics struct {
	latency *prometheus.HistogramVec
	errors  *prometheus.CounterVec
	retries prometheus.Counter
	corrupt prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "fermata_redis_script_seconds",
			Help:    "Round trip of a script, with whatever else was in its pipeline.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 11),
		}, []string{"script"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_redis_errors_total",
			Help: "Commands that Redis did not answer, or refused, by kind; each try counts.",
		}, []string{"kind"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_redis_retries_total",
			Help: "Commands sent again after an error.",
		}),
		corrupt: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_redis_corrupt_records_total",
			Help: "Records that could not be read and were put out of the way of others.",
		}),
	}
	// There from the start, so that the first one shows in rates.
	for _, kind := range []string{
		"connection", "timeout", "dial", rediserr.KindNoConnection, "late", "closed", "readonly", "loading",
		"clusterdown", "noreplicas", "oom", "misconf", "denied", "script",
	} {
		m.errors.WithLabelValues(kind)
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.latency, m.errors, m.retries, m.corrupt} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) observeLatency(name string, d time.Duration) {
	m.latency.WithLabelValues(name).Observe(d.Seconds())
}
