package httphandler

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fermata-io/fermata/worker/secrets"
)

// tracerScope is the instrumentation scope of requests.
const tracerScope = "github.com/fermata-io/fermata/worker/httphandler"

// traceRequest makes a request part of its run's trace, if the run is traced: it sets the trace headers unless
// the payload does, and starts a span that ends with the response headers. The tracer provider is that of the
// handler's span.
func traceRequest(q *http.Request, use *secrets.Resolver) (_ *http.Request, answered func(*http.Response, error)) {
	parent := trace.SpanFromContext(q.Context())
	if !parent.SpanContext().IsSampled() {
		return q, func(*http.Response, error) {}
	}
	ctx, span := parent.TracerProvider().Tracer(tracerScope).Start(q.Context(), q.Method,
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			attribute.String("http.request.method", q.Method), attribute.String("url.full", describeURL(q.URL, use)),
			attribute.String("server.address", q.URL.Hostname())))
	q = q.WithContext(ctx)
	if q.Header.Get("Traceparent") == "" {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(q.Header))
	}
	return q, func(a *http.Response, err error) {
		switch {
		case err != nil:
			// Its text may hold the URL: the handler's span has it, without secrets.
			span.SetStatus(codes.Error, "no answer")
		default:
			span.SetAttributes(attribute.Int("http.response.status_code", a.StatusCode))
			if a.StatusCode >= http.StatusBadRequest {
				span.SetStatus(codes.Error, "")
			}
		}
		span.End()
	}
}
