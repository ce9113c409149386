package redisstore

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of the store itself; package runner has those of its calls.
type metrics struct {
	replays    *prometheus.CounterVec
	eventsLost prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		replays: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_redis_replays_total",
			Help: "Effects found to be those of an earlier copy of the call, whose answer was lost.",
		}, []string{"script"}),
		eventsLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_events_lost_total",
			Help: "Events that were not recorded: memory was short, or too many waited for Redis.",
		}),
	}
	// There from the start, so that the first one shows in rates.
	for _, script := range []string{"apply", "create", "lease", "restore"} {
		m.replays.WithLabelValues(script)
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.replays, m.eventsLost} {
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
