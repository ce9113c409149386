package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// Call starts the span of a call that its caller has sampled. done receives the status code of the call. For
// other calls done is nil and the context is unchanged.
func (t *Tracer) Call(ctx context.Context, method string) (_ context.Context, done func(codes.Code)) {
	parent := metadata.ValueFromIncomingContext(ctx, "traceparent")
	if len(parent) == 0 {
		return ctx, nil
	}
	headers := propagation.MapCarrier{
		"traceparent": parent[0],
		"tracestate":  strings.Join(metadata.ValueFromIncomingContext(ctx, "tracestate"), ","),
	}
	called := propagation.TraceContext{}.Extract(ctx, headers)
	if !trace.SpanContextFromContext(called).IsSampled() {
		return ctx, nil
	}
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	called, span := t.tracer.Start(called, service+"/"+name, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service),
			attribute.String("rpc.method", name),
			attribute.String("fermata.node", t.node),
		))
	return called, func(code codes.Code) {
		span.SetAttributes(attribute.Int64("rpc.grpc.status_code", int64(code)))
		switch code {
		case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
			span.SetStatus(otelcodes.Error, code.String())
		}
		span.End()
	}
}
