package guard

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// usedHeaders are the headers of a call that something reads, each with the most bytes of its values that are kept.
var usedHeaders = map[string]int{
	"authorization": MaxHeaderBytes,
	"traceparent":   128,
	"tracestate":    1 << 10, // W3C Trace Context asks for 512 at least
	PeerKeyHeader:   256,
}

// dropUnusedHeaders removes the headers of a call that nothing reads. gRPC keeps the headers of a call until its client
// has read the response, and they may be much larger in memory than on the wire: HPACK sends a repeated one as a byte.
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
