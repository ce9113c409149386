package node

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fermata-io/fermata/internal/auth/authn"
)

// reportFile shows whether a file that is read again while the node runs can be used.
// fault is why not; nil while it can.
func (n *Node) reportFile(file string, fault func() error) {
	promauto.With(n.cfg.Registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_files_invalid", ConstLabels: prometheus.Labels{"file": file},
		Help: "1 while a file of the node on disk cannot be used, so that the one read before is in force.",
	}, func() float64 {
		if fault() != nil {
			return 1
		}
		return 0
	})
}

// maxTokenSeries bounds the tokens with series of their own: those that end first.
const maxTokenSeries = 200

var tokenEndDesc = prometheus.NewDesc("fermata_access_token_expiry_timestamp_seconds",
	"When a token of the access file expires, in Unix seconds; of the 200 tokens that expire first.", []string{"token"}, nil)

// tokenEnds collects when tokens expire.
type tokenEnds struct{ access *authn.Source }

func (tokenEnds) Describe(out chan<- *prometheus.Desc) { out <- tokenEndDesc }

func (c tokenEnds) Collect(out chan<- prometheus.Metric) {
	ends := c.access.TokenEnds()
	names := slices.SortedFunc(maps.Keys(ends), func(a, b string) int { return cmp.Or(ends[a].Compare(ends[b]), cmp.Compare(a, b)) })
	for _, name := range names[:min(len(names), maxTokenSeries)] {
		out <- prometheus.MustNewConstMetric(tokenEndDesc, prometheus.GaugeValue, float64(ends[name].Unix()), name)
	}
}
