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
	PeerProofHeader: 128,
	PeerNonceHeader: maxNonce,
}

// Bounds of the headers of a call, beside its credential. gRPC keeps headers until the client has read the response, and
// they may be much larger in memory than on the wire: HPACK sends a repeated one as a byte.
const (
	maxHeaderFields      = 64
	maxOtherHeaderBytes  = 4 << 10
	maxAcceptedEncodings = 256 // bytes of grpc-accept-encoding, which gRPC copies for each call
)

// exceedsHeaders reports whether a call has more headers than any client needs.
func exceedsHeaders(headers metadata.MD) bool {
	fields := 0
	for _, values := range headers {
		fields += len(values)
	}
	return fields > maxHeaderFields || textBytes(headers["grpc-accept-encoding"]) > maxAcceptedEncodings ||
		headerSize(headers) > maxOtherHeaderBytes
}

func textBytes(values []string) (n int) {
	for _, v := range values {
		n += len(v)
	}
	return n
}

// refuseHeaders refuses a call with too many headers. If the call has a deadline, its connection is closed: gRPC would
// keep the refused call until the deadline.
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

// dropUnusedHeaders removes the headers of a call that nothing reads. gRPC's context keeps the table that they were in,
// 5 KiB at most, which streamBytes and unreadOverhead count.
func dropUnusedHeaders(headers metadata.MD) {
	for name, values := range headers {
		most, used := usedHeaders[name]
		if !used || textBytes(values) > most {
			delete(headers, name)
		}
	}
}

// keptHeaderBytes is about how many bytes of memory the headers of a call have.
func keptHeaderBytes(ctx context.Context) (n int) {
	for name := range usedHeaders {
		n += textBytes(metadata.ValueFromIncomingContext(ctx, name))
	}
	return n
}
