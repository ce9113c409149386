package gateway

import (
	"context"
	"net/http"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/lib/httpbound"
	"github.com/fermata-io/fermata/internal/lib/memorybudget"
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
	memory      *memorybudget.Budget
	proxies     trustedProxies
	metrics     *metrics
	unverified  *places // of requests whose caller no node has verified
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
		memory: newMemory(), proxies: o.TrustedProxies,
		unverified: newPlaces(unverifiedFor(debug.SetMemoryLimit(-1))),
	}
	g.events = newEventHub(g.memory)
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
	if err == nil {
		g.credentials.refuse = g.metrics.refuse
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
	endUnverified, ok := g.unverified.tryTake(g.proxies.remoteHost(r))
	if !ok {
		g.metrics.refuse("unverified")
		panic(http.ErrAbortHandler) // a response would wait for a client that does not read
	}
	defer endUnverified()
	defer flushResponse(w, r)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(unverifiedTime))
	r = r.WithContext(context.WithValue(r.Context(), endUnverifiedKey{}, endUnverified))
	counted := &countedWriter{ResponseWriter: w}
	g.metrics.inFlight.Inc()
	defer func() {
		g.metrics.inFlight.Dec()
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			httpbound.LogPanic(g.options.Logger, r, p)
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
	if err := checkText(r); err != nil {
		writeError(counted, r, err)
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
	if isEventsRequest(r) && r.ContentLength != 0 {
		refuseEventsBody(w, r)
		return
	}
	token, err := bearerToken(r)
	if token == "" && err == nil {
		token = g.sessions.token(r)
	}
	if err == nil {
		var cred *credential
		cred, err = g.credentials.acquire(r.Context(), token, g.proxies.remoteHost(r))
		if err == nil {
			defer g.credentials.release(cred)
			g.serveCaller(w, r, cred)
			return
		}
	}
	if isEventsRequest(r) {
		newEventWriter(w, r).writeEnd(r, err)
		return
	}
	writeError(w, r, err)
}

var errNoRole = status.Error(codes.PermissionDenied, "the caller has no role")

// endUnverifiedKey is the key of the function that ends the part of a request whose caller is not verified.
type endUnverifiedKey struct{}

// endUnverifiedPart frees the place of a request when the limits of its caller count.
func endUnverifiedPart(w http.ResponseWriter, r *http.Request) {
	if end, ok := r.Context().Value(endUnverifiedKey{}).(func()); ok {
		end()
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
}

// flushResponse waits until a client of HTTP/2 has taken a small response. Otherwise the server waits for it after the
// handler has returned, when the request counts for no limit any more.
func flushResponse(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		_ = http.NewResponseController(w).Flush()
	}
}

// serveCaller serves a request whose caller is verified.
func (g *Gateway) serveCaller(w http.ResponseWriter, r *http.Request, cred *credential) {
	if parent, _ := eventsPath(r); isEventsRequest(r) {
		if !cred.hasRole {
			newEventWriter(w, r).writeEnd(r, errNoRole)
			return
		}
		g.serveEvents(w, r, cred, parent)
		return
	}
	if !cred.hasRole && hasBody(r) {
		writeError(w, r, errNoRole)
		return
	}
	end, err := g.credentials.beginCall(r.Context(), cred, g.proxies.remoteHost(r))
	if err != nil {
		writeError(w, r, err)
		return
	}
	defer end()
	defer flushResponse(w, r)
	endUnverifiedPart(w, r)
	c := newCall(r, cred)
	body, release, err := g.readBody(w, r, cred.identity)
	if err != nil {
		writeError(w, r, err)
		return
	}
	defer release()
	if r.Method == http.MethodPatch {
		c.patch = body
	}
	giveBack, err := g.takeCallMemory(r.Context(), c)
	if err != nil {
		writeError(w, r, err)
		return
	}
	defer giveBack()
	ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), callKey{}, c), g.options.CallTimeout)
	defer cancel()
	g.rest.ServeHTTP(newPacedWriter(w), r.WithContext(ctx))
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
