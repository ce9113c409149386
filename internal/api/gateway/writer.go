package gateway

import (
	"net"
	"net/http"
	"net/netip"
)

// countedWriter remembers the status of a response.
type countedWriter struct {
	http.ResponseWriter
	code int
}

func (w *countedWriter) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *countedWriter) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Flush is what the translation asks of a writer. Unwrap is for [http.ResponseController].
func (w *countedWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// addressGroup is what remote addresses count as: the address, or for IPv6 its network of 64 bits.
func addressGroup(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a.Unmap().Is4() {
		return a.Unmap().String()
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return p.String()
}
