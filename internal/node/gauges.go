package node

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fermata-io/fermata/internal/redis/redisstore"
)

// clockTrust is the longest round trip whose half may be the error of a comparison
// of clocks.
const clockTrust = 250 * time.Millisecond

// gauges are what no single part knows: who holds the shards of the whole cluster,
// what Redis's clock shows, what is unsafe about Redis.
type gauges struct {
	unheld, ahead prometheus.Gauge
	aside         prometheus.Gauge
	stances       prometheus.Counter // changes of it
	findings      *prometheus.GaugeVec

	reporting sync.Mutex
	found     map[finding]int // at the last look
	keepOther prometheus.Gauge
	keepers   string // as they were last logged

	otherDefaults prometheus.Gauge
	deviants      string // nodes with other defaults, as they were last logged
}

// finding is what the labels tell of one.
type finding struct{ code, severity string }

func newGauges(n *Node) *gauges {
	f := promauto.With(n.cfg.Registerer)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_shards", Help: "Shards of the keyspace.",
	}, func() float64 { return float64(n.cfg.Shards) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_shards_owned", Help: "Shards that this node should hold, by the members that have a heartbeat in Redis.",
	}, func() float64 { return float64(n.owned()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_redis_latency_seconds",
		Help: "Time that Redis takes to answer this node's calls on locks and records, the median over a third of --lock-ttl; 0 where there were none.",
	}, func() float64 { return n.redisLatency().Seconds() })
	return &gauges{
		aside: f.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_node_aside", Help: "1 while this node leaves its shards to others, because Redis does not answer it or answers it much later than them; else 0.",
		}),
		stances: f.NewCounter(prometheus.CounterOpts{
			Name: "fermata_node_stance_changes_total", Help: "Times that this node began or ceased to leave its shards to others.",
		}),
		unheld: f.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_shards_without_holder", Help: "Shards of the cluster that nobody holds, by their locks in Redis.",
		}),
		ahead: f.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_redis_clock_offset_seconds", Help: "Redis's clock minus this node's; scheduling goes by Redis's.",
		}),
		keepOther: f.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_events_keep_mismatches", Help: "Live nodes whose --events-keep is not that of this node.",
		}),
		otherDefaults: f.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_policy_default_mismatches", Help: "Live nodes whose defaults of retry and backoff are not those of this node.",
		}),
		findings: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fermata_redis_findings", Help: "What is unsafe about Redis, by code and severity; the log has the words.",
		}, []string{"code", "severity"}),
	}
}

// stand takes over how this node stands to Redis.
func (g *gauges) stand(was, is stance) {
	if was.aside == is.aside {
		return
	}
	g.stances.Inc()
	if g.aside.Set(0); is.aside {
		g.aside.Set(1)
	}
}

// owned counts the shards that this node should hold.
func (n *Node) owned() int {
	if n.locks == nil {
		return 0
	}
	owned := 0
	for _, owner := range n.locks.Owners() {
		if owner == n.cfg.Name {
			owned++
		}
	}
	return owned
}

// look refreshes what has to be asked for. What Redis does not answer stays as it
// was: that Redis is away is told by other metrics.
func (g *gauges) look(ctx context.Context, n *Node) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if holders, err := n.locks.Holders(ctx); err == nil {
		unheld := 0
		for _, h := range holders {
			if h.Node == "" {
				unheld++
			}
		}
		g.unheld.Set(float64(unheld))
		n.unheld.look(n.locks.Owners(), holders, time.Now())
	}
	if n.cfg.Virtual {
		return // there is no clock to compare
	}
	sent := time.Now()
	there, err := n.lockConns.Time(ctx).Result()
	if took := time.Since(sent); err == nil && took < clockTrust {
		g.ahead.Set(there.Sub(sent.Add(took / 2)).Seconds())
	}
}

// report shows what was found about Redis. It deletes what is not found any more
// rather than all, so that no scrape in between misses what goes on.
func (g *gauges) report(r redisstore.Report) {
	g.reporting.Lock()
	defer g.reporting.Unlock()
	now := make(map[finding]int)
	for _, f := range r.Findings {
		now[finding{f.Code, f.Severity.String()}]++
	}
	for f, count := range now {
		g.findings.WithLabelValues(f.code, f.severity).Set(float64(count))
	}
	for f := range g.found {
		if now[f] == 0 {
			g.findings.DeleteLabelValues(f.code, f.severity)
		}
	}
	g.found = now
}
