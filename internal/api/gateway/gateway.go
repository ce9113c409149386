package gateway

import (
	"context"
	"net/http"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	gatewayproto "github.com/fermata-io/fermata/proto/gateway"
)

// Gateway is the handler of the API over HTTP.
type Gateway struct {
	options     Options
	credentials *credentials
	hosts       hostChecker
	origins     *http.CrossOriginProtection
	rest        http.Handler
	events      *eventHub
	console     *consoleHandler // nil: none
	sessions    *sessions       // nil: none
	batchBodies chan struct{}
	metrics     *metrics
	stop        context.CancelFunc
	stopped     context.Context
}

// New returns a gateway. [Gateway.Close] ends it.
func New(o Options) (*Gateway, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Gateway{
		options: o, hosts: newHostChecker(o.AllowedHosts), origins: http.NewCrossOriginProtection(),
		batchBodies: make(chan struct{}, maxBatchBodies), events: newEventHub(),
	}
	g.credentials = newCredentials(o)
	g.stopped, g.stop = context.WithCancel(context.Background())
	g.rest, err = newMux(g.credentials)
	if err == nil && o.Console != nil {
		g.console, err = newConsoleHandler(o.Console)
		if err == nil {
			g.sessions, err = newSessions(o.Console.Sessions, o.BasePath)
		}
	}
	if err == nil {
		g.metrics, err = newMetrics(o.Registerer, g)
	}
	if err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// EndStreams ends all event streams, which readers continue at another gateway. Other requests go on.
func (g *Gateway) EndStreams() { g.stop() }

// Close ends all event streams and closes the connections. It may be called twice.
func (g *Gateway) Close() {
	g.stop()
	g.events.wait()
	g.credentials.close()
}

func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	counted := &countedWriter{ResponseWriter: w}
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			g.options.Logger.Error("request handler panicked", "panic", p, "stack", string(debug.Stack()))
			if counted.code == 0 {
				writeError(counted, r, status.Error(codes.Internal, "internal error; the gateway's log has more"))
			}
		}
		g.metrics.countRequest(r.Method, counted.code)
	}()
	setSecurityHeaders(w.Header())
	if err := g.hosts.check(r); err != nil {
		writeError(counted, r, err)
		return
	}
	if err := g.origins.Check(r); err != nil {
		writeError(counted, r, withReason(codes.PermissionDenied, "CROSS_ORIGIN",
			"a page of another origin sent the request"))
		return
	}
	if id := r.Header.Get("X-Request-Id"); isHeaderText(id) && id != "" {
		counted.Header().Set("X-Request-Id", id)
	}
	if base := g.options.BasePath; base != "" && r.URL.Path == base {
		http.Redirect(counted, r, base+"/", http.StatusPermanentRedirect)
		return
	}
	below, ok := withoutBasePath(r, g.options.BasePath)
	if !ok {
		handleRoutingError(r.Context(), nil, nil, counted, r, http.StatusNotFound)
		return
	}
	if err := g.console.checkReadOnly(below); err != nil {
		writeError(counted, r, err)
		return
	}
	g.route(counted, below)
}

func (g *Gateway) route(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/openapi.json" {
		serveOpenAPI(w, r)
		return
	}
	if g.console.serves(r.URL.Path) {
		g.console.ServeHTTP(w, r)
		return
	}
	if g.sessions.serves(r.URL.Path) {
		g.serveSession(w, r)
		return
	}
	token, err := bearerToken(r)
	if token == "" && err == nil {
		token = g.sessions.token(r)
	}
	if err == nil {
		var cred *credential
		cred, err = g.credentials.acquire(r.Context(), token, remoteHost(r))
		if err == nil {
			defer g.credentials.release(cred)
			g.serveCaller(w, r, cred)
			return
		}
	}
	if _, ok := eventsPath(r); ok && r.Method == http.MethodGet {
		newEventWriter(w, r).writeEnd(r, err)
		return
	}
	writeError(w, r, err)
}

// serveCaller serves a request whose caller is verified.
func (g *Gateway) serveCaller(w http.ResponseWriter, r *http.Request, cred *credential) {
	if parent, ok := eventsPath(r); ok && r.Method == http.MethodGet {
		g.serveEvents(w, r, cred, parent)
		return
	}
	end, err := g.credentials.beginCall(cred)
	if err != nil {
		writeError(w, r, err)
		return
	}
	defer end()
	c := newCall(r, cred)
	limit, values := int64(maxBodyBytes), maxBodyValues
	if takesBatch(r) {
		limit, values = maxBatchBodyBytes, maxBatchBodyValues
		select {
		case g.batchBodies <- struct{}{}:
			defer func() { <-g.batchBodies }()
		default:
			writeError(w, r, exhausted("too many large requests at once"))
			return
		}
	}
	if r.ContentLength > limit {
		writeError(w, r, refuseBody())
		return
	}
	ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), callKey{}, c), g.options.CallTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = &limitedBody{ReadCloser: http.MaxBytesReader(w, r.Body, limit), call: c, maxValues: values}
	g.rest.ServeHTTP(w, r)
}

// serveOpenAPI sends the description of the API, which is the same for everybody.
func serveOpenAPI(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		handleRoutingError(r.Context(), nil, nil, w, r, http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(gatewayproto.OpenAPI)
}

// metrics of a gateway.
type metrics struct{ requests *prometheus.CounterVec }

func newMetrics(r prometheus.Registerer, g *Gateway) (*metrics, error) {
	m := &metrics{requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fermata_gateway_requests_total", Help: "HTTP requests that ended, by method and status.",
	}, []string{"method", "code"})}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.requests,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fermata_gateway_callers", Help: "Credentials with a connection to the nodes.",
		}, g.credentials.connected),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fermata_gateway_event_streams", Help: "Open event streams.",
		}, g.events.readers),
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
