package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fermata-io/fermata/internal/lib/httpbound"
)

// Server answers /metrics, /healthz, /readyz and /loglevel.
type Server struct {
	listener net.Listener
	server   *http.Server
	done     chan error
}

// ServerOptions configure a [Server]. All but Level and Logger are required.
type ServerOptions struct {
	// Gatherer has the metrics that are served, and Registerer receives those of the server itself.
	Gatherer   prometheus.Gatherer
	Registerer prometheus.Registerer
	// Up reports whether metrics may be read. Before that they may read state that is still being made.
	Up func() bool
	// Ready returns what is missing for readiness; nothing: the process is ready.
	Ready func() []string
	// Level serves /loglevel; nil: it is not served.
	Level  http.Handler
	Logger *slog.Logger
}

// Serve serves on a listener, which it closes at the end. /healthz answers while the process runs. /metrics answers few
// scrapes at a time, once the process is up. The answer of /readyz serves all requests of the next 100 ms.
func Serve(l net.Listener, o ServerOptions) *Server {
	mux := http.NewServeMux()
	if o.Level != nil {
		mux.Handle("/loglevel", limitRequests(levelRequestsAtOnce, o.Level.ServeHTTP))
	}
	metrics := limitScrapes(promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: scrapesAtOnce, Timeout: scrapeTimeout,
	}))
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if !o.Up() {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		metrics.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	shared := newReadiness(o.Ready)
	mux.Handle("GET /readyz", limitRequests(readyRequestsAtOnce, func(w http.ResponseWriter, _ *http.Request) {
		if missing := shared.findMissing(); len(missing) > 0 {
			http.Error(w, strings.Join(missing, "\n"), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	}))
	s := &Server{
		listener: l,
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute,
			WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeaderBytes},
		done: make(chan error, 1),
	}
	closed := newClosedConnections(o.Registerer)
	bounded := httpbound.Bound(s.server, l, httpbound.Options{
		Connections: maxConnections, ConnectionsOfHost: maxConnectionsOfHost, HeaderMemory: maxHeaderMemory,
		OnClose: func(reason string) { closed.WithLabelValues(reason).Inc() }, Logger: o.Logger,
	})
	go func() { s.done <- s.server.Serve(bounded) }()
	return s
}

// newClosedConnections makes the counter of connections that the server closes.
func newClosedConnections(r prometheus.Registerer) *prometheus.CounterVec {
	closed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fermata_http_connections_closed_total",
		Help: "Connections to the port of metrics and health that were closed for want of room, by the reason.",
	}, []string{"reason"})
	for _, reason := range httpbound.Reasons() {
		closed.WithLabelValues(reason)
	}
	r.MustRegister(closed)
	return closed
}

// limitRequests answers so many requests at a time, whose bodies have to arrive soon. Only connections without a
// running handler make room for others.
func limitRequests(most int, next http.HandlerFunc) http.HandlerFunc {
	places := make(chan struct{}, most)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		next(w, r)
	}
}

// Bounds of the server. Connections of few hosts do not keep the probes of a kubelet out, as those without a running
// handler make room, and few handlers run for long.
const (
	maxConnections       = 1024
	maxConnectionsOfHost = 64
	maxHeaderBytes       = 4 << 10
	maxHeaderMemory      = 8 << 20
	levelRequestsAtOnce  = 8
	readyRequestsAtOnce  = 256 // they wait for a check, which takes seconds if Redis does not answer
	bodyTimeout          = 5 * time.Second
)

// Addr is where the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Stop completes requests in progress and closes, within ctx.
func (s *Server) Stop(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
