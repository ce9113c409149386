package admission

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
)

type metrics struct {
	admitted, woken, failures prometheus.Counter
	probes, opened            prometheus.Counter
	held, lost                *prometheus.CounterVec
	latency                   prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "fermata_admission_" + name, Help: help})
	}
	vector := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fermata_admission_" + name, Help: help},
			[]string{"reason"})
	}
	m := &metrics{
		admitted: counter("admitted_total", "Runs with gates that passed all of them and were delivered."),
		held:     vector("held_total", "Runs that a gate held back, by gate."),
		woken: counter("woken_total", "Held runs that became due because the lock or limit that they "+
			"waited for became free."),
		lost:     vector("units_lost_total", "Units of locks and queues that live attempts lost, by gate."),
		failures: counter("failures_total", "Calls for gates that Redis did not answer."),
		probes:   counter("probes_total", "Runs that were started to test whether a target has recovered."),
		opened: counter("circuits_opened_total",
			"Times that the circuit of a target opened, or opened again for longer, after results of this node."),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fermata_admission_gate_seconds",
			Help:    "Time from the lease of a run with gates until it passed them.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
	}
	for _, reason := range []job.HoldReason{job.HeldLock, job.HeldQueue} {
		m.lost.WithLabelValues(reason.String()) // there from the start, so that the first one shows
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.admitted, m.held, m.woken, m.lost, m.failures, m.probes, m.opened, m.latency,
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("admission: %w", err)
		}
	}
	return m, nil
}
