//go:build amd64 || arm64

package exechandler

import (
	"slices"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

func TestProgramsGetTraceVariables(t *testing.T) {
	if have := traceVariables(t.Context()); have != nil {
		t.Errorf("of no trace: %q", have)
	}
	state, err := trace.ParseTraceState("v=x")
	if err != nil {
		t.Fatal(err)
	}
	ctx := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
	want := []string{"TRACEPARENT=00-01000000000000000000000000000000-0200000000000000-01", "TRACESTATE=v=x"}
	if have := traceVariables(ctx); !slices.Equal(have, want) {
		t.Errorf("%q, want %q", have, want)
	}
}
