package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"

	"github.com/fermata-io/fermata/internal/core/job"
)

// names gives spans the ids that their contexts say, and random ones otherwise.
type names struct{}

// named is the name of the next span.
type named struct {
	trace job.TraceID
	span  job.SpanID
}

type nameKey struct{}

// NewIDs names the first span of a trace.
func (n names) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if own, ok := ctx.Value(nameKey{}).(named); ok {
		return trace.TraceID(own.trace), trace.SpanID(own.span)
	}
	var id trace.TraceID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id, n.NewSpanID(ctx, id)
}

// NewSpanID names a further one.
func (names) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if own, ok := ctx.Value(nameKey{}).(named); ok {
		return trace.SpanID(own.span)
	}
	var id trace.SpanID
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}
