package httpbound

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"slices"

	"github.com/fermata-io/fermata/internal/lib/librarylog"
	"github.com/fermata-io/fermata/internal/lib/memorybudget"
)

// maxHeaderLines bounds the header lines of a request. Browsers send some twenty.
const maxHeaderLines = 100

// headerSlop is how many bytes of headers net/http takes beyond MaxHeaderBytes.
const headerSlop = 4 << 10

// Options bound a server. HTTP2Connections are required with TLS only, and what has a default is not.
type Options struct {
	// Connections may be open at once, ConnectionsOfHost of them of one host.
	Connections, ConnectionsOfHost int
	// HTTP2Connections may be of HTTP/2, a quarter of them of one host. Further ones are of HTTP/1.1. net/http answers some
	// requests of HTTP/2 by itself and keeps all their headers until the answer is read, on each stream of a connection.
	HTTP2Connections int
	// HeaderMemory is the memory in bytes of all headers that arrive at once and that are longer than 4 KiB.
	HeaderMemory int
	// Trusted reports whether an address with a port, such as that of a proxy, may have any number of connections.
	// Default: none may.
	Trusted func(address string) bool
	// OnClose is called for each connection that is closed for want of room, with one of [Reasons]. Default: none.
	OnClose func(reason string)
	// Logger receives panics of handlers, and a warning a minute about connections that are closed for want of room. At
	// level debug it receives what the server logs, such as failed TLS handshakes. Default: nothing is logged.
	Logger *slog.Logger

	memory        *memorybudget.Budget
	longestHeader int
}

// Bound bounds a server. The server has to be served on the listener that Bound returns. Bound sets the handler, the
// logger, the context and the state hook of connections. MaxHeaderBytes of the server has to be set.
func Bound(s *http.Server, l net.Listener, o Options) net.Listener {
	o.memory, o.longestHeader = memorybudget.New(o.HeaderMemory), s.MaxHeaderBytes+headerSlop
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnClose == nil {
		o.OnClose = func(string) {}
	}
	s.ErrorLog = librarylog.NewStandard(o.Logger, slog.LevelDebug, "message of the HTTP server")
	s.Handler = LogPanics(boundHeaders(s.Handler), o.Logger)
	s.ConnContext = func(ctx context.Context, outer net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, boundConn(outer))
	}
	s.ConnState = func(outer net.Conn, state http.ConnState) {
		c := boundConn(outer)
		if c != nil && state == http.StateIdle {
			c.awaitHeaders()
		}
	}
	bounded := &listener{Listener: l, o: o}
	bounded.closings.logger, bounded.failures.logger = o.Logger, o.Logger
	if s.TLSConfig != nil {
		s.TLSConfig = bounded.limitHTTP2(s.TLSConfig)
	}
	return bounded
}

// limitHTTP2 returns a configuration that agrees on HTTP/2 only while there is a place for it.
func (l *listener) limitHTTP2(base *tls.Config) *tls.Config {
	limited := base.Clone()
	limited.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		config := base
		if base.GetConfigForClient != nil {
			own, err := base.GetConfigForClient(hello)
			if err != nil {
				return nil, err
			}
			config = cmp.Or(own, base)
		}
		c, _ := hello.Conn.(*conn)
		if c != nil && slices.Contains(hello.SupportedProtos, http2Protocol) && l.takeHTTP2(c) {
			return config, nil
		}
		config = config.Clone()
		config.NextProtos = slices.DeleteFunc(slices.Clone(config.NextProtos), func(p string) bool { return p == http2Protocol })
		return config, nil
	}
	return limited
}

// http2Protocol is the name of HTTP/2 in a TLS handshake.
const http2Protocol = "h2"

type connKey struct{}

// boundHeaders refuses requests with too many header lines.
func boundHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lines := 0
		for _, values := range r.Header {
			lines += len(values)
		}
		if lines > maxHeaderLines {
			r.Header = http.Header{} // the server keeps the request for as long as the answer is not read
		}
		c, _ := r.Context().Value(connKey{}).(*conn)
		if c != nil {
			if !c.beginHandler() {
				panic(http.ErrAbortHandler)
			}
			defer c.endHandler()
		}
		if lines > maxHeaderLines {
			w.Header().Set("Connection", "close")
			http.Error(w, "too many headers", http.StatusRequestHeaderFieldsTooLarge)
			return
		}
		next.ServeHTTP(w, r)
	})
}
