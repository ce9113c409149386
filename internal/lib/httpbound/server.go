package httpbound

import (
	"context"
	"net"
	"net/http"

	"github.com/fermata-io/fermata/internal/lib/memorybudget"
)

// maxHeaderLines bounds the header lines of a request. Browsers send some twenty.
const maxHeaderLines = 100

// headerSlop is how many bytes of headers net/http takes beyond MaxHeaderBytes.
const headerSlop = 4 << 10

// Options bound a server. All but Trusted are required.
type Options struct {
	// Connections may be open at once, ConnectionsOfHost of them of one host.
	Connections, ConnectionsOfHost int
	// HeaderMemory is the memory in bytes of all headers that arrive at once and that are longer than 4 KiB.
	HeaderMemory int
	// Trusted reports whether a host, such as a proxy, may have any number of connections. Default: none may.
	Trusted func(host string) bool

	memory        *memorybudget.Budget
	longestHeader int
}

func (o Options) isTrusted(host string) bool { return o.Trusted != nil && o.Trusted(host) }

// Bound bounds a server. The server has to be served on the listener that Bound returns. Bound sets the handler, the
// context and the state hook of connections. MaxHeaderBytes of the server has to be set.
func Bound(s *http.Server, l net.Listener, o Options) net.Listener {
	o.memory, o.longestHeader = memorybudget.New(o.HeaderMemory), s.MaxHeaderBytes+headerSlop
	s.Handler = boundHeaders(s.Handler)
	s.ConnContext = func(ctx context.Context, outer net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, boundConn(outer))
	}
	s.ConnState = func(outer net.Conn, state http.ConnState) {
		c := boundConn(outer)
		if c != nil && state == http.StateIdle {
			c.awaitHeaders()
		}
	}
	return &listener{Listener: l, o: o, open: map[string]int{}}
}

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
			c.endHeaders()
		}
		if lines > maxHeaderLines {
			w.Header().Set("Connection", "close")
			http.Error(w, "too many headers", http.StatusRequestHeaderFieldsTooLarge)
			return
		}
		next.ServeHTTP(w, r)
	})
}
