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

// Process describes the process that sends spans.
type Process struct {
	// Service is its service.name, unless OTEL_SERVICE_NAME sets another one.
	Service string
	Version string
	// Instance is its service.instance.id: the name of a node, the id of a worker.
	Instance string
	// Logger logs spans that could not be sent. Default: none.
	Logger *slog.Logger
	// Registerer registers the counters of spans; nil registers nothing.
	Registerer prometheus.Registerer
}

// scopeName is the instrumentation scope of all spans.
const scopeName = "github.com/fermata-io/fermata"

// Provider makes tracers whose spans go to the endpoint. It does not wait for a connection; spans that find none
// within a while are dropped. Its Shutdown sends the queued spans.
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
	counted, err := newCountingExporter(exporter, p)
	if err != nil {
		return nil, err
	}
	return sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(spanQueue{sdktrace.NewBatchSpanProcessor(counted), counted.madeSpans}),
		sdktrace.WithResource(described),
		// Sampling is decided before a span is made.
		sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithIDGenerator(spanIDs{}),
	), nil
}

// countingExporter counts the exported spans, and logs failures.
type countingExporter struct {
	sdktrace.SpanExporter
	logger                 *slog.Logger
	sentSpans, failedSpans prometheus.Counter
	madeSpans              prometheus.Counter
}

func newCountingExporter(e sdktrace.SpanExporter, p Process) (*countingExporter, error) {
	made := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fermata_trace_spans_total", Help: "Spans created.",
	})
	exported := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fermata_trace_spans_exported_total", Help: "Spans that left the queue, by result: sent or failed.",
	}, []string{"result"})
	if p.Registerer != nil {
		for _, c := range []prometheus.Collector{made, exported} {
			if err := p.Registerer.Register(c); err != nil {
				return nil, err
			}
		}
	}
	return &countingExporter{
		SpanExporter: e, logger: p.Logger, madeSpans: made,
		sentSpans: exported.WithLabelValues("sent"), failedSpans: exported.WithLabelValues("failed"),
	}, nil
}

// spanQueue is the library's bounded queue of spans, which drops silently: spans that are made and not exported
// were dropped.
type spanQueue struct {
	sdktrace.SpanProcessor
	madeSpans prometheus.Counter
}

// OnEnd counts and queues a span.
func (q spanQueue) OnEnd(s sdktrace.ReadOnlySpan) {
	q.madeSpans.Inc()
	q.SpanProcessor.OnEnd(s)
}

// ExportSpans hides the error, which the library would print to standard error.
func (c *countingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := c.SpanExporter.ExportSpans(ctx, spans); err != nil {
		c.failedSpans.Add(float64(len(spans)))
		c.logger.Warn("failed to send spans", "count", len(spans), "error", err)
		return nil
	}
	c.sentSpans.Add(float64(len(spans)))
	return nil
}
