package worker

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// logAttempt logs a message with the attempt's attributes, which have the same names as in the logs of nodes.
func (w *Worker) logAttempt(level slog.Level, message string, a *attempt, more ...slog.Attr) {
	ctx := context.Background()
	if !w.options.Logger.Enabled(ctx, level) {
		return
	}
	t := &a.task
	attrs := append(make([]slog.Attr, 0, 10),
		slog.String("job", t.Namespace+"/"+t.Job), slog.String("queue", t.Queue),
		slog.String("run", lastNamePart(t.Run)), slog.Int("attempt", t.Attempt),
		slog.String("correlation_id", t.CorrelationID), slog.String("handler", t.Handler))
	if w.isTraced(a) {
		attrs = append(attrs, slog.String("trace_id", trace.SpanContextFromContext(a.ctx.base).TraceID().String()))
	}
	w.options.Logger.LogAttrs(ctx, level, message, append(attrs, more...)...)
}
