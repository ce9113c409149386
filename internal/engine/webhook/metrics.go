package webhook

import "github.com/prometheus/client_golang/prometheus"

// Outcomes of deliveries.
const (
	delivered = "delivered"
	retried   = "retried"
	dead      = "given_up"
)

type webhookMetrics struct {
	deliveries *prometheus.CounterVec
	lost       *prometheus.CounterVec
	evicted    *prometheus.CounterVec
	lag        *prometheus.GaugeVec
	seconds    *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) (*webhookMetrics, error) {
	hook := []string{"webhook"}
	m := &webhookMetrics{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_webhook_deliveries_total",
			Help: "Events by the outcome of their delivery: delivered, retried (not accepted, sent again " +
				"later) or given_up.",
		}, []string{"webhook", "outcome"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_webhook_lost_total",
			Help: "Events that were trimmed before a webhook read them, including those that its filter " +
				"ignores.",
		}, hook),
		evicted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_webhook_evicted_total",
			Help: "Undelivered events of a webhook that were deleted because there are newer ones.",
		}, hook),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fermata_webhook_lag_seconds",
			Help: "Age of the oldest event that a webhook has not processed, in the shards this node " +
				"holds.",
		}, hook),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fermata_webhook_request_seconds", Help: "Time that endpoints took to answer, or to " +
				"fail.",
			Buckets: prometheus.ExponentialBuckets(0.005, 3, 9),
		}, hook),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.deliveries, m.lost, m.evicted, m.lag, m.seconds} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// createSeries makes the series of a webhook, so that the first of each outcome shows in rates.
func (m *webhookMetrics) createSeries(hook string) {
	for _, outcome := range []string{delivered, retried, dead} {
		m.deliveries.WithLabelValues(hook, outcome)
	}
	m.lost.WithLabelValues(hook)
	m.evicted.WithLabelValues(hook)
	m.lag.WithLabelValues(hook)
	m.seconds.WithLabelValues(hook)
}

func (m *webhookMetrics) deleteSeries(hook string) {
	m.deliveries.DeletePartialMatch(prometheus.Labels{"webhook": hook})
	m.lost.DeleteLabelValues(hook)
	m.evicted.DeleteLabelValues(hook)
	m.lag.DeleteLabelValues(hook)
	m.seconds.DeleteLabelValues(hook)
}
