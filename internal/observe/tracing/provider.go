package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Process describes who sends spans.
type Process struct {
	// Service is its service.name, unless OTEL_SERVICE_NAME says another one.
	Service string
	Version string
	// Instance is its service.instance.id: the name of a node, the id of a worker.
	Instance string
	// Logger hears of spans that could not be sent. Default: nobody.
	Logger *slog.Logger
	// Registerer is for the number of spans sent; nil registers nothing.
	Registerer prometheus.Registerer
}

// scope is the instrumentation scope of all spans.
const scope = "github.com/fermata-io/fermata"

// Provider makes tracers whose spans go to the endpoint. It does not wait for a
// connection; spans that find none within a while are dropped. Shut it down in the
// end, to send what waits.
func Provider(ctx context.Context, s Settings, p Process) (*sdktrace.TracerProvider, error) {
	if p.Logger == nil {
		p.Logger = slog.New(slog.DiscardHandler)
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(s.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("trace endpoint: %w", err)
	}
	described, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", p.Service), attribute.String("service.version", p.Version),
			attribute.String("service.instance.id", p.Instance)),
		resource.WithFromEnv(),
	)
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	counted, err := newCounted(exporter, p)
	if err != nil {
		return nil, err
	}
	return sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(queue{sdktrace.NewBatchSpanProcessor(counted), counted.made}),
		sdktrace.WithResource(described),
		// What is to be traced is decided before a span is made.
		sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithIDGenerator(names{}),
	), nil
}

// counted counts what an exporter sends, and says what it could not.
type counted struct {
	sdktrace.SpanExporter
	logger       *slog.Logger
	sent, failed prometheus.Counter
	made         prometheus.Counter
}

func newCounted(e sdktrace.SpanExporter, p Process) (*counted, error) {
	made := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fermata_trace_spans_total", Help: "Spans made.",
	})
	exported := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fermata_trace_spans_exported_total", Help: "Spans that left the queue, by what became of them: sent or failed.",
	}, []string{"result"})
	if p.Registerer != nil {
		for _, c := range []prometheus.Collector{made, exported} {
			if err := p.Registerer.Register(c); err != nil {
				return nil, err
			}
		}
	}
	return &counted{
		SpanExporter: e, logger: p.Logger, made: made,
		sent: exported.WithLabelValues("sent"), failed: exported.WithLabelValues("failed"),
	}, nil
}

// queue is the library's bounded queue of spans, which drops in silence: what is made
// and does not leave it was dropped.
type queue struct {
	sdktrace.SpanProcessor
	made prometheus.Counter
}

// OnEnd takes a span.
func (q queue) OnEnd(s sdktrace.ReadOnlySpan) {
	q.made.Inc()
	q.SpanProcessor.OnEnd(s)
}

// ExportSpans hides the error, which the library would print to standard error.
func (c *counted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := c.SpanExporter.ExportSpans(ctx, spans); err != nil {
		c.failed.Add(float64(len(spans)))
		c.logger.Warn("spans could not be sent", "count", len(spans), "error", err)
		return nil
	}
	c.sent.Add(float64(len(spans)))
	return nil
}
