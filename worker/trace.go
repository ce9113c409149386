package worker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// tracerScope is the instrumentation scope of the spans of handlers.
const tracerScope = "github.com/fermata-io/fermata/worker"

// contextWithTrace returns a context with the trace of a lease, or base if the trace is invalid or not sampled.
func contextWithTrace(base context.Context, t *fermatav1.TraceContext) context.Context {
	ctx := propagation.TraceContext{}.Extract(base, propagation.MapCarrier{
		"traceparent": t.GetTraceparent(), "tracestate": t.GetTracestate(),
	})
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return base
	}
	return ctx
}

// isTraced reports whether the attempt's run is traced.
func (w *Worker) isTraced(a *attempt) bool { return a.ctx.base != w.baseContext }

// beginSpan starts the handler's span. The handler has not used the context yet.
func (w *Worker) beginSpan(a *attempt, start time.Time) {
	if w.options.TracerProvider == nil {
		return
	}
	t := &a.task
	ctx, _ := w.options.TracerProvider.Tracer(tracerScope).Start(a.ctx.base, "handle "+t.Handler,
		trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			attribute.String("fermata.namespace", t.Namespace), attribute.String("fermata.queue", t.Queue),
			attribute.String("fermata.job", t.Job), attribute.String("fermata.run", lastNamePart(t.Run)),
			attribute.String("fermata.handler", t.Handler), attribute.Int("fermata.attempt", t.Attempt),
			attribute.String("fermata.worker", w.options.ID),
			attribute.String("fermata.correlation_id", t.CorrelationID),
		))
	a.ctx.replaceBase(ctx)
}

func endSpan(a *attempt, outcome string, e handlerEnd) {
	span := trace.SpanFromContext(a.ctx.base)
	span.SetAttributes(attribute.String("fermata.outcome", outcome))
	if e.failure != nil {
		span.SetStatus(codes.Error, e.failure.text)
	}
	span.End(trace.WithTimestamp(e.at))
}
