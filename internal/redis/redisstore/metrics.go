package redisstore

import (
	"time"

	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	latency *prometheus.HistogramVec
	errors  *prometheus.CounterVec
	retries prometheus.Counter
	replays *prometheus.CounterVec
	corrupt prometheus.Counter

	eventsLost prometheus.Counter
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
		replays: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_redis_replays_total",
			Help: "Effects found to be those of an earlier copy of the call, whose answer was lost.",
		}, []string{"script"}),
		corrupt: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_redis_corrupt_records_total",
			Help: "Records that could not be read and were put out of the way of others.",
		}),
	}
	m.eventsLost = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fermata_events_lost_total", Help: "Events that were not recorded: memory was short, or too many waited for Redis.",
	})
	// There from the start, so that the first one shows in rates.
	for _, kind := range []string{
		"connection", "timeout", "dial", rediserr.KindNoConnection, "late", "closed", "readonly", "loading", "clusterdown", "noreplicas", "oom", "misconf", "denied", "script",
	} {
		m.errors.WithLabelValues(kind)
	}
	for _, script := range []string{"apply", "create", "lease", "restore"} {
		m.replays.WithLabelValues(script)
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.latency, m.errors, m.retries, m.replays, m.corrupt, m.eventsLost} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) countReplays(script string, n int) {
	if n > 0 {
		m.replays.WithLabelValues(script).Add(float64(n))
	}
}

func (m *metrics) observeLatency(name string, d time.Duration) {
	m.latency.WithLabelValues(name).Observe(d.Seconds())
}
