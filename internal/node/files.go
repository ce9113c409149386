package node

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fermata-io/fermata/internal/auth/authn"
)

// reportFile exports whether a file that is reloaded while the node runs is valid. fault returns its error; nil:
// valid.
func (n *Node) reportFile(file string, fault func() error) {
	promauto.With(n.cfg.Registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_files_invalid", ConstLabels: prometheus.Labels{"file": file},
		Help: "1 while a file on disk is invalid, and the node keeps the last valid version.",
	}, func() float64 {
		if fault() != nil {
			return 1
		}
		return 0
	})
}

// maxTokenSeries bounds the tokens with series of their own; those that expire first have them.
const maxTokenSeries = 200

var tokenExpiryDesc = prometheus.NewDesc("fermata_access_token_expiry_timestamp_seconds",
	"When a token of the access file expires, in Unix seconds, for the 200 that expire first.",
	[]string{"token"}, nil)

// tokenExpiries collects the times at which tokens expire.
type tokenExpiries struct{ access *authn.Source }

func (tokenExpiries) Describe(out chan<- *prometheus.Desc) { out <- tokenExpiryDesc }

func (c tokenExpiries) Collect(out chan<- prometheus.Metric) {
	ends := c.access.TokenExpiries()
	names := slices.SortedFunc(maps.Keys(ends),
		func(a, b string) int { return cmp.Or(ends[a].Compare(ends[b]), cmp.Compare(a, b)) })
	for _, name := range names[:min(len(names), maxTokenSeries)] {
		out <- prometheus.MustNewConstMetric(tokenExpiryDesc, prometheus.GaugeValue, float64(ends[name].Unix()), name)
	}
}
