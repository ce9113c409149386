package main

import (
	"context"
	"os"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fermata-io/fermata/internal/observe/tracing"
)

// spanFlushTimeout is how long a command waits for its span to be taken.
const spanFlushTimeout = 2 * time.Second

// startTrace continues the trace of the environment, as CI systems set it, and starts a span if there is an
// endpoint.
func (a *app) startTrace(ctx context.Context, name string) (_ context.Context, ended func(error), err error) {
	settings, err := tracing.CompleteSettings(a.traceTo, "", os.Getenv)
	if err != nil {
		return ctx, nil, err
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": os.Getenv("TRACEPARENT"), "tracestate": os.Getenv("TRACESTATE"),
	})
	// With a share of 0, only existing traces are continued.
	if settings.Endpoint == "" || settings.Share == 0 && !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, func(error) {}, nil
	}
	provider, err := tracing.Provider(ctx, settings, tracing.Process{Service: "fermata", Version: versionText()})
	if err != nil {
		return ctx, nil, err
	}
	ctx, span := provider.Tracer("github.com/fermata-io/fermata/cmd/fermata").Start(ctx, name,
		trace.WithSpanKind(trace.SpanKindClient))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), spanFlushTimeout)
		defer cancel()
		// A collector that is away is no reason for a command to fail.
		_ = provider.Shutdown(last)
	}, nil
}
