package node

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fermata-io/fermata/internal/redis/conn"
)

// maxClockRoundTrip is the longest round trip for a comparison of clocks, whose error is half of it.
const maxClockRoundTrip = 250 * time.Millisecond

// gauges are the metrics that need the whole node: holders of the cluster's shards, the clock of Redis, findings
// about Redis.
type gauges struct {
	unheld, clockOffset prometheus.Gauge
	findings            *prometheus.GaugeVec

	reportMu             sync.Mutex
	reported             map[finding]int // at the last report
	eventsKeepMismatches prometheus.Gauge
	loggedKeepers        string // as last logged

	defaultsMismatches prometheus.Gauge
	loggedDeviants     string // nodes with other defaults, as last logged
}

// finding has the labels of a finding.
type finding struct{ code, severity string }

func newGauges(n *Node) *gauges {
	f := promauto.With(n.cfg.Registerer)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_shards", Help: "Shards of the keyspace.",
	}, func() float64 { return float64(n.cfg.Shards) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_shards_owned", Help: "Shards that this node should hold, given the members that " +
			"have a heartbeat in Redis.",
	}, func() float64 { return float64(n.countOwned()) })
	return &gauges{
		unheld: f.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_shards_without_holder",
			Help: "Shards of the cluster that have no holder, according to the locks in Redis.",
		}),
		clockOffset: f.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_redis_clock_offset_seconds",
			Help: "Redis's clock minus this node's; scheduling uses Redis's clock.",
		}),
		eventsKeepMismatches: f.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_events_keep_mismatches", Help: "Live nodes with another --events-keep than " +
				"this node.",
		}),
		defaultsMismatches: f.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_policy_default_mismatches",
			Help: "Live nodes with other defaults of retry and backoff than this node.",
		}),
		findings: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fermata_redis_findings", Help: "Findings about Redis, by code and severity; the log has the " +
				"details.",
		}, []string{"code", "severity"}),
	}
}

// countOwned counts the shards that this node should hold.
func (n *Node) countOwned() int {
	if n.locks == nil {
		return 0
	}
	owned := 0
	for _, owner := range n.locks.ShardOwners() {
		if owner == n.cfg.Name {
			owned++
		}
	}
	return owned
}

// refresh updates the gauges that need calls to Redis. Without an answer they keep their values: other metrics
// show that Redis is unavailable.
func (g *gauges) refresh(ctx context.Context, n *Node) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	holders, known := n.readHolders(ctx)
	if len(known) > 0 {
		unheld := 0
		for _, h := range known {
			if h.Node == "" {
				unheld++
			}
		}
		g.unheld.Set(float64(unheld))
	}
	if abandoned := n.unheld.updateHolders(n.locks.ShardOwners(), holders, time.Now()); len(abandoned) > 0 {
		n.locks.TakeAbandoned(abandoned)
	}
	if n.cfg.Virtual {
		return // Redis's clock is not used
	}
	if offset, ok := n.measureRedisClock(ctx); ok {
		g.clockOffset.Set(offset.Seconds())
	}
}

// setFindings exports the findings about Redis. It deletes only obsolete series, so that no scrape misses a
// finding that persists.
func (g *gauges) setFindings(r conn.Report) {
	g.reportMu.Lock()
	defer g.reportMu.Unlock()
	now := make(map[finding]int)
	for _, f := range r.Findings {
		now[finding{f.Code, f.Severity.String()}]++
	}
	for f, count := range now {
		g.findings.WithLabelValues(f.code, f.severity).Set(float64(count))
	}
	for f := range g.reported {
		if now[f] == 0 {
			g.findings.DeleteLabelValues(f.code, f.severity)
		}
	}
	g.reported = now
}
