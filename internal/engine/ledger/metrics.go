package ledger

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	batch     prometheus.Histogram
	commit    prometheus.Histogram
	conflicts prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		batch: f.NewHistogram(prometheus.HistogramOpts{
			Name: "fermata_ledger_batch_changes", Help: "Changes committed together in one batch of a shard.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 9),
		}),
		commit: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "fermata_ledger_commit_seconds",
			Help:    "Time from sending a batch of decisions to Redis until its reply.",
			Buckets: prometheus.ExponentialBuckets(0.0002, 2, 14),
		}),
		conflicts: f.NewCounter(prometheus.CounterOpts{
			Name: "fermata_ledger_conflicts_total",
			Help: "Decisions that were computed again because the record had changed meanwhile.",
		}),
	}
}
