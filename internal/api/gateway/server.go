package gateway

import (
	"crypto/tls"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/fermata-io/fermata/internal/lib/httpbound"
)

// Bounds of the HTTP server.
const (
	// MaxHeaderBytes bounds the headers of a request.
	MaxHeaderBytes = 16 << 10
	// maxServerConnections bounds the open connections, or one for each memoryPerConnection of the memory that the process
	// is to keep to. A quarter may be of one remote address.
	maxServerConnections = 4096
	minServerConnections = 512
	memoryPerConnection  = 256 << 10
	// maxHeaderMemory bounds the memory of long headers that arrive, or an eighth of the memory of the process.
	maxHeaderMemory = 64 << 20
	minHeaderMemory = 4 << 20

	readHeaderTimeout = 10 * time.Second
	readTimeout       = 60 * time.Second
	writeTimeout      = 90 * time.Second
	keepAliveTimeout  = 2 * time.Minute
	// maxStreams bounds the requests of one HTTP/2 connection at once. A page of the console has some ten.
	maxStreams = 32
	// maxHTTP2Connections bounds the connections of HTTP/2, or a quarter of the memory of the process: each may have
	// maxStreams requests with 64 KiB of headers that are not read.
	maxHTTP2Connections  = 512
	minHTTP2Connections  = 16
	memoryPerHTTP2Client = maxStreams * 64 << 10
	// receiveBuffer bounds what one HTTP/2 connection sends before it is read, also by callers that no node has verified.
	receiveBuffer = 64 << 10
)

// NewServer returns a server with bounds on the size and time of requests. Serve it on a listener of
// [Gateway.BoundListener].
func NewServer(handler http.Handler, secure *tls.Config) *http.Server {
	return &http.Server{
		Handler: handler, TLSConfig: secure,
		MaxHeaderBytes: MaxHeaderBytes, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: keepAliveTimeout,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: receiveBuffer,
			MaxReceiveBufferPerStream: receiveBuffer},
	}
}

// BoundListener bounds the connections of a server, in total and of one remote address that is no trusted proxy, and
// what their headers take. The server is to be served on the listener that it returns.
func (g *Gateway) BoundListener(s *http.Server, l net.Listener) net.Listener {
	memory := debug.SetMemoryLimit(-1)
	connections := connectionsFor(memory)
	return httpbound.Bound(s, l, httpbound.Options{
		Connections: connections, ConnectionsOfHost: connections / 4, Trusted: g.proxies.trusts,
		HTTP2Connections: int(min(maxHTTP2Connections, max(minHTTP2Connections, memory/4/memoryPerHTTP2Client))),
		HeaderMemory:     int(min(maxHeaderMemory, max(minHeaderMemory, memory/8))),
		OnClose:          g.metrics.countClosed, Logger: g.options.Logger,
	})
}

// connectionsFor is how many connections a process has that is to keep to so many bytes.
func connectionsFor(limit int64) int {
	return int(min(maxServerConnections, max(minServerConnections, limit/memoryPerConnection)))
}

// unverifiedFor is how many requests of callers that no node has verified such a process has. Their connections make no
// room for others, so that they are half of the connections at most.
func unverifiedFor(limit int64) int { return min(maxUnverified, connectionsFor(limit)/2) }
