package events

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	watchers  prometheus.Gauge
	sent      prometheus.Counter
	goneTotal prometheus.Counter
	refused   prometheus.Counter
}

func newMetrics() metrics {
	return metrics{
		watchers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_event_watchers", Help: "Open event streams of this node."}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_events_sent_total", Help: "Events that this node sent to watchers."}),
		goneTotal: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_event_watches_expired_total",
			Help: "Watches that ended because the next events were no longer kept."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_event_watchers_refused_total",
			Help: "Watches that were refused because the limit of watchers, or the caller's share of it, " +
				"was used up."}),
	}
}

func (m metrics) registerWith(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{m.watchers, m.sent, m.goneTotal, m.refused} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}
