package worker

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// log says something about an attempt, under the names that nodes use.
func (w *Worker) log(level slog.Level, message string, a *attempt, more ...slog.Attr) {
	ctx := context.Background()
	if !w.o.Logger.Enabled(ctx, level) {
		return
	}
	t := &a.task
	attrs := append(make([]slog.Attr, 0, 10),
		slog.String("job", t.Namespace+"/"+t.Job), slog.String("queue", t.Queue),
		slog.String("run", lastPart(t.Run)), slog.Int("attempt", t.Attempt),
		slog.String("correlation_id", t.CorrelationID), slog.String("handler", t.Handler))
	if w.traces(a) {
		attrs = append(attrs, slog.String("trace_id", trace.SpanContextFromContext(a.ctx.base).TraceID().String()))
	}
	w.o.Logger.LogAttrs(ctx, level, message, append(attrs, more...)...)
}
