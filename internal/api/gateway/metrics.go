package gateway

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/lib/httpbound"
)

// metrics of a gateway.
type metrics struct {
	requests *prometheus.CounterVec
	inFlight prometheus.Gauge
	refused  *prometheus.CounterVec
	closed   *prometheus.CounterVec // connections
}

// refusalReasons are the values of the label reason.
var refusalReasons = []string{
	"unverified", "verification", "callers", "without_role", "calls", "event_streams", "memory", "slow_body", "sign_in",
}

func newMetrics(r prometheus.Registerer, g *Gateway) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_gateway_requests_total", Help: "HTTP requests that ended, by method and status.",
		}, []string{"method", "code"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_gateway_requests_in_flight", Help: "HTTP requests under way, event streams included.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_gateway_refused_total", Help: "Requests that this gateway refused for want of room, by the limit.",
		}, []string{"reason"}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_gateway_connections_closed_total",
			Help: "Connections that this gateway closed for want of room, by the reason.",
		}, []string{"reason"}),
	}
	for _, reason := range httpbound.Reasons() {
		m.closed.WithLabelValues(reason)
	}
	for _, reason := range refusalReasons {
		m.refused.WithLabelValues(reason)
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.inFlight, m.refused, m.closed,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fermata_gateway_callers", Help: "Credentials with a connection to the nodes.",
		}, g.credentials.connected),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fermata_gateway_event_streams", Help: "Open event streams.",
		}, g.events.readers),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fermata_gateway_body_memory_bytes",
			Help: "Memory that bodies of requests, responses and events take, of 256 MiB or less, by an estimate.",
		}, func() float64 { return float64(g.memory.InUse()) }),
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// knownMethods bound the values of a label.
var knownMethods = map[string]bool{
	http.MethodGet: true, http.MethodPost: true, http.MethodPut: true, http.MethodPatch: true, http.MethodDelete: true,
	http.MethodHead: true, http.MethodOptions: true,
}

func (m *metrics) countRequest(method string, code int) {
	if !knownMethods[method] {
		method = "other"
	}
	m.requests.WithLabelValues(method, strconv.Itoa(code)).Inc()
}

// refuse counts a request that was refused for want of room.
func (m *metrics) refuse(reason string) { m.refused.WithLabelValues(reason).Inc() }

// countClosed counts a connection that was closed for want of room.
func (m *metrics) countClosed(reason string) { m.closed.WithLabelValues(reason).Inc() }
