package telemetry

import (
	"encoding/hex"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
)

// observeWithTrace adds a value. The value of a traced run becomes an exemplar of its bucket, which leads from a
// graph to the trace of such a run.
func observeWithTrace(o prometheus.Observer, value float64, trace *job.TraceID) {
	if trace == nil {
		o.Observe(value)
		return
	}
	// Histograms take examples.
	o.(prometheus.ExemplarObserver).ObserveWithExemplar(value,
		prometheus.Labels{"trace_id": hex.EncodeToString(trace[:])})
}
