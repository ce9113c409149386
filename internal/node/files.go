package node

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
