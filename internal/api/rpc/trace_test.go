package rpc

import (
	"bytes"
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/job"
)

// TestNoTracesCostNothing: a lease of a run that is not traced is the same on the wire,
// to the byte, and takes no allocation more, whether its node traces or not.
func TestNoTracesCostNothing(t *testing.T) {
	m := job.Assignments{{LeaseID: "l", Record: &job.Record{
		Definition: &job.Definition{Key: job.Key{Namespace: "ns", ID: "j"}, Handler: "h"}, State: job.State{Nominal: 1, Due: 1, Token: 1},
	}}}
	wire := func(tracer LeaseTracer) []byte { return (&leaseFrame{leases: m, trace: tracer}).AppendFrame(nil) }
	none := wire(nil)
	untraced := LeaseTracer(func(*job.Record) (string, string) { return "", "" })
	if have := wire(untraced); !bytes.Equal(have, none) {
		t.Errorf("%d bytes, want %d", len(have), len(none))
	}
	buf := make([]byte, 0, 1024)
	allocs := func(tracer LeaseTracer) float64 {
		f := &leaseFrame{leases: m, trace: tracer}
		return testing.AllocsPerRun(100, func() { buf = f.AppendFrame(buf[:0]) })
	}
	if with, without := allocs(untraced), allocs(nil); with != without {
		t.Errorf("%v allocations, want %v", with, without)
	}
	if have := wire(func(*job.Record) (string, string) { return "00-1-2-01", "" }); len(have) <= len(none) {
		t.Error("a traced run's lease says nothing of it")
	}
}

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
