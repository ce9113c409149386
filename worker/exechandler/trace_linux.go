//go:build amd64 || arm64

package exechandler

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceVariables are the variables by which a program learns what trace it is part of: the
// names that tools for shell scripts have agreed on. None, if the run is not traced.
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
