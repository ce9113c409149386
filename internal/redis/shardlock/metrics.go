package shardlock

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Reasons why a shard is no longer held: label values of
// fermata_shard_lock_losses_total and arguments of OnLose. The last four are by
// our own will.
const (
	LossExpired  = "expired"  // no refresh was confirmed within the validity
	LossTaken    = "lost"     // Redis has another value, or none
	LossHandover = "handover" // the ring names another member
	LossReleased = "released" // [Manager.Release]
	LossDrained  = "drained"  // [Manager.Drain]
	LossStopped  = "stopped"  // Run ended
)

type metrics struct {
	held      prometheus.Gauge
	losses    *prometheus.CounterVec
	free      prometheus.Counter
	broken    prometheus.Counter
	abandoned prometheus.Counter
	obtaining prometheus.Observer
	refresh   prometheus.Observer
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	takeovers := f.NewCounterVec(prometheus.CounterOpts{
		Name: "fermata_shard_takeovers_total",
		Help: "Shard locks obtained: free (no node held it), break (its holder was dead) or abandoned (its owner " +
			"was alive and did not hold it).",
	}, []string{"how"})
	seconds := f.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "fermata_shard_lock_seconds",
		Help:    "Duration of calls on shard locks, whatever their outcome.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
	}, []string{"op"})
	m := &metrics{
		held: f.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_shards_held",
			Help: "Shards that this node holds a valid lock for.",
		}),
		losses: f.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_shard_lock_losses_total",
			Help: "Shards that this node stopped holding, by reason.",
		}, []string{"reason"}),
		free:      takeovers.WithLabelValues("free"),
		broken:    takeovers.WithLabelValues("break"),
		abandoned: takeovers.WithLabelValues("abandoned"),
		obtaining: seconds.WithLabelValues("obtain"),
		refresh:   seconds.WithLabelValues("refresh"),
	}
	for _, reason := range []string{LossExpired, LossTaken, LossHandover, LossReleased, LossDrained, LossStopped} {
		m.losses.WithLabelValues(reason)
	}
	return m
}
