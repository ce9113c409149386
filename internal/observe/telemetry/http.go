package telemetry

import (
	"context"
	"errors"
	"fmt"
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

// Serve serves on a listener, which it closes at the end. /healthz answers while the process runs. /metrics
// answers once up is true, because metrics may read state that is still being made; it answers few scrapes at a
// time. /readyz calls ready, which returns what is missing (nothing: ready); the answer serves all requests of the
// next 100 ms. /loglevel is served by level, and by none if that is nil.
func Serve(l net.Listener, g prometheus.Gatherer, up func() bool, ready func() []string, level http.Handler) *Server {
	mux := http.NewServeMux()
	if level != nil {
		mux.Handle("/loglevel", limitLevelRequests(level))
	}
	metrics := limitScrapes(promhttp.HandlerFor(g, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: scrapesAtOnce, Timeout: scrapeTimeout,
	}))
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if !up() {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		metrics.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	shared := newReadiness(ready)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if missing := shared.findMissing(); len(missing) > 0 {
			http.Error(w, strings.Join(missing, "\n"), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	s := &Server{
		listener: l,
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute,
			WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeaderBytes},
		done: make(chan error, 1),
	}
	bounded := httpbound.Bound(s.server, l, httpbound.Options{
		Connections: maxConnections, ConnectionsOfHost: maxConnectionsOfHost, HeaderMemory: maxHeaderMemory,
	})
	go func() { s.done <- s.server.Serve(bounded) }()
	return s
}

// limitLevelRequests answers few requests at a time, whose bodies have to arrive soon: the connection of a request that
// is read makes no room for others.
func limitLevelRequests(next http.Handler) http.Handler {
	turns := make(chan struct{}, levelRequestsAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		default:
			http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(levelBodyTimeout))
		next.ServeHTTP(w, r)
	})
}

// Bounds of the server. There are many connections, so that idle ones of some hosts do not keep the probes of a kubelet
// out.
const (
	maxConnections       = 1024
	maxConnectionsOfHost = 64
	maxHeaderBytes       = 4 << 10
	maxHeaderMemory      = 8 << 20
	levelRequestsAtOnce  = 8
	levelBodyTimeout     = 5 * time.Second
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
