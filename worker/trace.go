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

// scope is the instrumentation scope of handlers' spans.
const scope = "github.com/fermata-io/fermata/worker"

// traced is a context with the trace of a lease; base, if it has none that is valid.
func traced(base context.Context, t *fermatav1.TraceContext) context.Context {
	ctx := propagation.TraceContext{}.Extract(base, propagation.MapCarrier{
		"traceparent": t.GetTraceparent(), "tracestate": t.GetTracestate(),
	})
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return base
	}
	return ctx
}

// traces tells whether the attempt's run is traced.
func (w *Worker) traces(a *attempt) bool { return a.ctx.base != w.base }

// beginSpan begins the handler's span. Nobody watches the attempt's context yet.
func (w *Worker) beginSpan(a *attempt, start time.Time) {
	if w.o.TracerProvider == nil {
		return
	}
	t := &a.task
	ctx, _ := w.o.TracerProvider.Tracer(scope).Start(a.ctx.base, "handle "+t.Handler,
		trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			attribute.String("fermata.namespace", t.Namespace), attribute.String("fermata.queue", t.Queue),
			attribute.String("fermata.job", t.Job), attribute.String("fermata.run", lastPart(t.Run)),
			attribute.String("fermata.handler", t.Handler), attribute.Int("fermata.attempt", t.Attempt),
			attribute.String("fermata.worker", w.o.ID), attribute.String("fermata.correlation_id", t.CorrelationID),
		))
	a.ctx.rebase(ctx)
}

func endSpan(a *attempt, outcome string, e ending) {
	span := trace.SpanFromContext(a.ctx.base)
	span.SetAttributes(attribute.String("fermata.outcome", outcome))
	if e.failure != nil {
		span.SetStatus(codes.Error, e.failure.text)
	}
	span.End(trace.WithTimestamp(e.at))
}
