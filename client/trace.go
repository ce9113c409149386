package client

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// sendTrace sends the trace of the call's context to the cluster.
func sendTrace(ctx context.Context, method string, q, a any, conn *grpc.ClientConn, call grpc.UnaryInvoker,
	o ...grpc.CallOption) error {
	if trace.SpanContextFromContext(ctx).IsValid() {
		headers := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, headers)
		md, _ := metadata.FromOutgoingContext(ctx)
		md = md.Copy()
		for name, value := range headers {
			md.Set(name, value)
		}
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	return call(ctx, method, q, a, conn, o...)
}
