package worker

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Handler durations: from a no-op to an hour.
var secondsBuckets = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}

// unregistered is the handler label of leases that name no handler of this
// worker: their names come from outside and must not become labels.
const unregistered = "unregistered"

// succeeded is the outcome of attempts without an error.
const succeeded = "succeeded"

type metrics struct {
	running    prometheus.Gauge
	handled    *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	reconnects prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	return &metrics{
		running: register(r, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_worker_running", Help: "Handlers that run now.",
		})),
		handled: register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_worker_handled_total", Help: "Attempts whose handler ended, by outcome.",
		}, []string{"handler", "outcome"})),
		seconds: register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fermata_worker_handler_seconds", Help: "How long handlers ran.", Buckets: secondsBuckets,
		}, []string{"handler"})),
		reconnects: register(r, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_worker_reconnects_total", Help: "Streams opened after the first one.",
		})),
	}
}

// register lets several workers of one process share their collectors.
func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
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

// handler is a registered one, with the collectors that each of its attempts needs.
type handler struct {
	name      string
	handle    Handler
	seconds   prometheus.Observer
	succeeded func() prometheus.Counter // makes the series with the first success
}

func (m *metrics) handler(name string, handle Handler) *handler {
	return &handler{
		name: name, handle: handle, seconds: m.seconds.WithLabelValues(name),
		succeeded: sync.OnceValue(func() prometheus.Counter { return m.handled.WithLabelValues(name, succeeded) }),
	}
}

// ended counts an attempt; h is nil if no handler has the name.
func (m *metrics) ended(h *handler, outcome string, took time.Duration) {
	switch {
	case h == nil:
		m.handled.WithLabelValues(unregistered, outcome).Inc()
		m.seconds.WithLabelValues(unregistered).Observe(took.Seconds())
		return
	case outcome == succeeded:
		h.succeeded().Inc()
	default:
		m.handled.WithLabelValues(h.name, outcome).Inc()
	}
	h.seconds.Observe(took.Seconds())
}
