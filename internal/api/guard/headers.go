package guard

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"
)

// usedHeaders are the headers of a call that something reads, each with the most bytes of its values that are kept.
var usedHeaders = map[string]int{
	"authorization": MaxHeaderBytes,
	"traceparent":   128,
	"tracestate":    1 << 10, // W3C Trace Context asks for 512 at least
	PeerKeyHeader:   256,
}

// Bounds of the headers of a call, beside its credential. gRPC keeps headers until the client has read the response, and
// they may be much larger in memory than on the wire: HPACK sends a repeated one as a byte.
const (
	maxHeaderFields      = 64
	maxOtherHeaderBytes  = 4 << 10
	maxAcceptedEncodings = 256 // bytes; gRPC keeps a copy for each call
)

// exceedsHeaders reports whether a call has more headers than any client needs.
func exceedsHeaders(headers metadata.MD) bool {
	fields, encodings := 0, 0
	for name, values := range headers {
		fields += len(values)
		for _, v := range values {
			if name == "grpc-accept-encoding" {
				encodings += len(v)
			}
		}
	}
	return fields > maxHeaderFields || encodings > maxAcceptedEncodings || headerSize(headers) > maxOtherHeaderBytes
}

// refuseHeaders refuses a call with too many headers. gRPC keeps a call that has a deadline until that has passed, even
// if it is refused: so such a call of an authenticated connection ends the connection.
func (g *Gate) refuseHeaders(ctx context.Context, conn *connection, method string) (context.Context, error) {
	c := &Caller{gate: g, method: method}
	if _, known := methodPermissions[method]; !known {
		c.method = "unknown"
	}
	if !conn.isAuthenticated() {
		return c.refuseUnauthenticated(ctx, conn, "headers")
	}
	if hasDeadline(ctx) {
		conn.closeNow()
	}
	return ctx, c.refuseOverLimit(ctx, "headers", time.Second)
}

// dropUnusedHeaders removes the headers of a call that nothing reads.
func dropUnusedHeaders(headers metadata.MD) {
	for name, values := range headers {
		most, n := usedHeaders[name], 0
		for _, v := range values {
			n += len(v)
		}
		if n > most || most == 0 {
			delete(headers, name)
		}
	}
}

// keptHeaderBytes is about how many bytes of memory the headers of a call have.
func keptHeaderBytes(ctx context.Context) (n int) {
	for name := range usedHeaders {
		for _, v := range metadata.ValueFromIncomingContext(ctx, name) {
			n += len(v)
		}
	}
	return n
}
