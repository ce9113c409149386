package telemetry

import (
	"encoding/hex"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/job"
)

// observe adds a value, and that of a traced run as an example of its bucket: by the
// trace, those who look at a graph come to a run that made it so.
func observe(o prometheus.Observer, value float64, trace *job.TraceID) {
	if trace == nil {
		o.Observe(value)
		return
	}
	// Histograms take examples.
	o.(prometheus.ExemplarObserver).ObserveWithExemplar(value, prometheus.Labels{"trace_id": hex.EncodeToString(trace[:])})
}
