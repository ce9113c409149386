package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"

	"github.com/fermata-io/fermata/internal/core/job"
)

// spanIDs gives spans the ids of their contexts, and random ones otherwise.
type spanIDs struct{}

// spanName is the id of the next span, with that of its trace.
type spanName struct {
	trace job.TraceID
	span  job.SpanID
}

type spanNameKey struct{}

// NewIDs returns the ids of the first span of a trace.
func (n spanIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if own, ok := ctx.Value(spanNameKey{}).(spanName); ok {
		return trace.TraceID(own.trace), trace.SpanID(own.span)
	}
	var id trace.TraceID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id, n.NewSpanID(ctx, id)
}

// NewSpanID returns the id of a further span.
func (spanIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if own, ok := ctx.Value(spanNameKey{}).(spanName); ok {
		return trace.SpanID(own.span)
	}
	var id trace.SpanID
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}
