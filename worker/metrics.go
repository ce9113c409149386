package worker

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Handler durations: from a no-op to an hour.
var secondsBuckets = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}

// unregisteredLabel is the handler label of attempts whose handler this worker does not have. Names from outside
// must not become label values.
const unregisteredLabel = "unregistered"

// succeededOutcome is the outcome of attempts without an error.
const succeededOutcome = "succeeded"

type metrics struct {
	running    prometheus.Gauge
	handled    *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	reconnects prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	return &metrics{
		running: registerShared(r, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_worker_running", Help: "Handlers that are running.",
		})),
		handled: registerShared(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_worker_handled_total", Help: "Attempts whose handler ended, by outcome.",
		}, []string{"handler", "outcome"})),
		seconds: registerShared(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fermata_worker_handler_seconds", Help: "Duration of handlers.", Buckets: secondsBuckets,
		}, []string{"handler"})),
		reconnects: registerShared(r, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_worker_reconnects_total", Help: "Streams opened after the first one.",
		})),
	}
}

// registerShared registers a collector, or returns the one registered before, so that several workers of a
// process share their collectors.
func registerShared[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r == nil {
		return c
	}
	err := r.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	if err != nil {
		panic(err)
	}
	return c
}

// handler is a registered handler with the collectors of its attempts.
type handler struct {
	name      string
	handle    Handler
	seconds   prometheus.Observer
	succeeded func() prometheus.Counter // creates the series with the first success
}

func (m *metrics) newHandler(name string, handle Handler) *handler {
	return &handler{
		name: name, handle: handle, seconds: m.seconds.WithLabelValues(name),
		succeeded: sync.OnceValue(func() prometheus.Counter {
			return m.handled.WithLabelValues(name,
				succeededOutcome)
		}),
	}
}

// countAttempt counts an ended attempt; h is nil if this worker does not have the handler.
func (m *metrics) countAttempt(h *handler, outcome string, took time.Duration) {
	switch {
	case h == nil:
		m.handled.WithLabelValues(unregisteredLabel, outcome).Inc()
		m.seconds.WithLabelValues(unregisteredLabel).Observe(took.Seconds())
		return
	case outcome == succeededOutcome:
		h.succeeded().Inc()
	default:
		m.handled.WithLabelValues(h.name, outcome).Inc()
	}
	h.seconds.Observe(took.Seconds())
}
