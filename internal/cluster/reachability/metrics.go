package reachability

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	withdrawn   prometheus.Gauge
	withdrawals prometheus.Counter // changes of withdrawn
}

func (m *metrics) registerWith(r prometheus.Registerer, latency *LatencyMeter) error {
	m.withdrawn = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fermata_node_withdrawn", Help: "1 while this node leaves its shards to others, because " +
			"Redis does not answer it, or answers it much later than the other nodes; otherwise 0.",
	})
	m.withdrawals = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fermata_node_withdrawal_changes_total",
		Help: "Times that this node began or stopped leaving its shards to others.",
	})
	if r == nil {
		return nil
	}
	return errors.Join(r.Register(m.withdrawn), r.Register(m.withdrawals),
		r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fermata_redis_latency_seconds",
			Help: "Time that Redis takes to answer this node's calls on locks and records: the median " +
				"over a third of --lock-ttl; 0 without calls.",
		}, func() float64 { return latency.Current(time.Now()).Seconds() })))
}

// setWithdrawn records whether this node is withdrawn.
func (m *metrics) setWithdrawn(was, is bool) {
	if was == is {
		return
	}
	m.withdrawals.Inc()
	m.withdrawn.Set(0)
	if is {
		m.withdrawn.Set(1)
	}
}
