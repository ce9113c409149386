package rpc

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/job"
)

// TestCallTracerHearsHowCallsEnd: with the code that the caller gets, a panic included.
func TestCallTracerHearsHowCallsEnd(t *testing.T) {
	type key struct{}
	var have codes.Code
	tracer := guard.CallTracer(func(ctx context.Context, method string) (context.Context, func(codes.Code)) {
		if method == "/untraced" {
			return ctx, nil
		}
		return context.WithValue(ctx, key{}, method), func(c codes.Code) { have = c }
	})
	call := func(method string, next grpc.UnaryHandler) {
		defer func() { _ = recover() }()
		_, _ = tracer.UnaryInterceptor(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, next)
	}
	for want, next := range map[codes.Code]grpc.UnaryHandler{
		codes.OK: func(ctx context.Context, _ any) (any, error) {
			if ctx.Value(key{}) != "/m" {
				t.Error("the call is not in its span")
			}
			return nil, nil
		},
		codes.InvalidArgument: func(context.Context, any) (any, error) { return nil, job.Invalid("f", "is bad") },
		codes.Internal:        func(context.Context, any) (any, error) { panic("boom") },
	} {
		have = codes.Unknown
		if call("/m", next); have != want {
			t.Errorf("told of %v, want %v", have, want)
		}
	}
	have = codes.Unknown
	if call("/untraced", func(context.Context, any) (any, error) { return nil, nil }); have != codes.Unknown {
		t.Error("told of a call that is not traced")
	}
}
