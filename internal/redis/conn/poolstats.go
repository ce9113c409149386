package conn

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// poolStats exports the counters of a pool of connections.
type poolStats struct {
	client                       redis.UniversalClient
	open, reused, dialled, waits *prometheus.Desc
	waited, timeouts, stale      *prometheus.Desc
}

// NewPoolStats is a collector for the connections of a client, of all servers
// together, under the label pool.
func NewPoolStats(pool string, client redis.UniversalClient) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("fermata_redis_pool_"+name, help, labels, prometheus.Labels{"pool": pool})
	}
	return &poolStats{
		client:   client,
		open:     desc("connections", "Open connections to Redis, by state.", "state"),
		reused:   desc("hits_total", "Times that an idle connection was available."),
		dialled:  desc("misses_total", "Times that no connection was idle."),
		waits:    desc("waits_total", "Times that a call waited for a connection because all were busy."),
		waited:   desc("wait_seconds_total", "Time that calls waited for a connection."),
		timeouts: desc("timeouts_total", "Calls that failed because no connection became free in time."),
		stale:    desc("stale_total", "Connections that were closed because they were too old or broken."),
	}
}

func (p *poolStats) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.open, p.reused, p.dialled, p.waits, p.waited, p.timeouts, p.stale} {
		out <- d
	}
}

func (p *poolStats) Collect(out chan<- prometheus.Metric) {
	s := p.client.PoolStats()
	gauge := func(v uint32, state string) {
		out <- prometheus.MustNewConstMetric(p.open, prometheus.GaugeValue, float64(v), state)
	}
	gauge(s.IdleConns, "idle")
	gauge(s.TotalConns-min(s.IdleConns, s.TotalConns), "busy")
	counter := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v)
	}
	counter(p.reused, float64(s.Hits))
	counter(p.dialled, float64(s.Misses))
	counter(p.waits, float64(s.WaitCount))
	counter(p.waited, float64(s.WaitDurationNs)/1e9)
	counter(p.timeouts, float64(s.Timeouts))
	counter(p.stale, float64(s.StaleConns))
}
