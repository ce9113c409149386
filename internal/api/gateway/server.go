package gateway

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Bounds of the HTTP server.
const (
	// MaxHeaderBytes bounds the headers of a request.
	MaxHeaderBytes = 16 << 10
	// maxServerConnections bounds the open connections; a quarter may be of one remote address.
	maxServerConnections = 4096

	readHeaderTimeout = 10 * time.Second
	readTimeout       = 60 * time.Second
	writeTimeout      = 90 * time.Second
	keepAliveTimeout  = 2 * time.Minute
	// maxStreams bounds the requests of one HTTP/2 connection at once. Browsers open some tens.
	maxStreams = 100
	// receiveBuffer bounds what one HTTP/2 connection sends before it is read, also by callers that no node has verified.
	receiveBuffer = 64 << 10
)

// NewServer returns a server with bounds on the size and time of requests. Serve it on a listener of [Listener].
func NewServer(handler http.Handler, secure *tls.Config, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler: handler, TLSConfig: secure, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		MaxHeaderBytes: MaxHeaderBytes, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: keepAliveTimeout,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: receiveBuffer,
			MaxReceiveBufferPerStream: receiveBuffer},
	}
}

// Listener closes new connections while too many are open, in total or of one remote address that is no trusted proxy.
func Listener(l net.Listener, trusted []netip.Prefix) net.Listener {
	return &boundedListener{Listener: l, open: map[string]int{}, most: maxServerConnections, trusted: trusted}
}

type boundedListener struct {
	net.Listener
	most    int
	trusted trustedProxies

	mu    sync.Mutex
	total int
	open  map[string]int // by remote address
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := addressGroup(conn.RemoteAddr().String())
		if l.add(address) {
			return &boundedConn{Conn: conn, release: sync.OnceFunc(func() { l.remove(address) })}, nil
		}
		_ = conn.Close()
	}
}

func (l *boundedListener) add(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.most || l.open[address] >= max(1, l.most/4) && !l.trusted.trusts(address) {
		return false
	}
	l.total++
	l.open[address]++
	return true
}

func (l *boundedListener) remove(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	l.open[address]--
	if l.open[address] == 0 {
		delete(l.open, address)
	}
}

// boundedConn gives back its place when it is closed.
type boundedConn struct {
	net.Conn
	release func()
}

func (c *boundedConn) Close() error {
	c.release()
	return c.Conn.Close()
}
