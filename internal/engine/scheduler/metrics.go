package scheduler

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	leases, failures              prometheus.Counter
	batch                         prometheus.Histogram
	permitsSent, permitsUsed      prometheus.Counter
	permitsUnused, permitsExpired prometheus.Counter
	reaped, swept                 prometheus.Counter
	lanes, oversizedShards        prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	return &metrics{
		leases: counter("fermata_leases_total", "Attempts leased by this node."),
		batch: f.NewHistogram(prometheus.HistogramOpts{
			Name: "fermata_lease_batch_size", Help: "Leases returned by one call for one shard.",
			Buckets: []float64{0, 1, 2, 5, 10, 20, 50, 100, 200},
		}),
		failures: counter("fermata_lease_call_failures_total", "Calls for leases that failed."),
		permitsExpired: counter("fermata_permits_expired_total", "Permits that the other node did not "+
			"answer in time."),
		permitsSent: counter("fermata_permits_sent_total", "Permits given to other nodes."),
		permitsUsed: counter("fermata_permits_used_total", "Permits of other nodes that this node used "+
			"for a lease."),
		permitsUnused: counter("fermata_permits_unused_total", "Permits that other nodes returned "+
			"without a lease."),
		reaped: counter("fermata_leases_expired_total", "Leases that were found to have ended "+
			"without a result."),
		swept: counter("fermata_records_swept_total", "Finished and dead records that were "+
			"deleted because their retention ended."),
		lanes: gauge("fermata_lanes", "Lanes that this node knows in the shards that it holds: "+
			"queues by priority and shard."),
		oversizedShards: gauge("fermata_oversized_shards",
			"Held shards with more lanes than one read lists. Lanes of queues with workers are looked up; "+
				"the others are read in turns."),
	}
}

func (m *metrics) countLeases(n int, err error) {
	if err != nil {
		m.failures.Inc()
		return
	}
	m.leases.Add(float64(n))
	m.batch.Observe(float64(n))
}
