package tracing

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fermata-io/fermata/internal/core/job"
)

// BenchmarkRun is what a run of one attempt costs its node, traced and not.
func BenchmarkRun(b *testing.B) {
	for name, share := range map[string]float64{"traced": 1, "not": 0} {
		b.Run(name, func(b *testing.B) {
			provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()),
				sdktrace.WithIDGenerator(spanIDs{}))
			tracer := newTracer(provider, share, "node")
			s := live(0)
			record := &job.Record{Definition: definition, State: s}
			notices := []job.Notice{{Kind: job.RunSucceeded, RunID: s.RunID(), AtMS: 4000}}
			ended := &job.Run{Outcome: job.OutcomeSucceeded}
			b.ReportAllocs()
			for b.Loop() {
				tracer.Lease(record)
				tracer.TraceID(record)
				tracer.RecordDecision(definition, &s,
					job.FinishAttempt{Token: s.Token, Outcome: job.OutcomeSucceeded, StartedMS: 2100}, ended, notices)
			}
		})
	}
}
