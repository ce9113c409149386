//go:build amd64 || arm64

package exechandler

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceVariables returns the environment variables with the trace of the run, under the names that shell tools
// use. It returns none if the run is not traced.
func traceVariables(ctx context.Context) []string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return nil
	}
	headers := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, headers)
	env := []string{"TRACEPARENT=" + headers["traceparent"]}
	if state := headers["tracestate"]; state != "" {
		env = append(env, "TRACESTATE="+state)
	}
	return env
}
