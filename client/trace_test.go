package client

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// TestCallsCarryTheirTrace: in the headers of the standard, beside what the caller sends.
func TestCallsCarryTheirTrace(t *testing.T) {
	state, err := trace.ParseTraceState("v=x")
	if err != nil {
		t.Fatal(err)
	}
	ctx := trace.ContextWithSpanContext(metadata.AppendToOutgoingContext(t.Context(), "mine", "1"), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
	var sent metadata.MD
	send := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		sent, _ = metadata.FromOutgoingContext(ctx)
		return nil
	}
	for range 2 { // a repetition says it once
		if err := sendTrace(ctx, "/m", nil, nil, nil, send); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"traceparent": "00-01000000000000000000000000000000-0200000000000000-01", "tracestate": "v=x", "mine": "1",
	} {
		if have := sent.Get(name); len(have) != 1 || have[0] != want {
			t.Errorf("%s is %q, want %q", name, have, want)
		}
	}
}

// TestNoTracesCostNothing: a call without a trace is sent as it is.
func TestNoTracesCostNothing(t *testing.T) {
	ctx := t.Context()
	send := func(got context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		if got != ctx {
			t.Error("the context is another one")
		}
		return nil
	}
	if n := testing.AllocsPerRun(100, func() { _ = sendTrace(ctx, "/m", nil, nil, nil, send) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
