package tracing

import (
	"context"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Tracer makes the spans of a node. It is safe for concurrent use.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	sampling job.Sampling
	node     string
}

// New makes the tracer of the node p.Instance.
func New(ctx context.Context, s Settings, p Process) (*Tracer, error) {
	provider, err := Provider(ctx, s, p)
	if err != nil {
		return nil, err
	}
	return newTracer(provider, s.Share, p.Instance), nil
}

func newTracer(provider *sdktrace.TracerProvider, share float64, node string) *Tracer {
	return &Tracer{provider: provider, tracer: provider.Tracer(scopeName), sampling: job.NewSampling(share), node: node}
}

// Stop sends the queued spans, within ctx.
func (t *Tracer) Stop(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// TraceID is the trace of a record's current run; nil if it is not traced.
func (t *Tracer) TraceID(r *job.Record) *job.TraceID {
	run, ok := t.sampling.Of(r.Definition, &r.State)
	if !ok {
		return nil
	}
	return &run.TraceID
}

// RunTraceID is the trace of a run of a job as people see it, which may have ended; nil if
// it is not traced.
func (t *Tracer) RunTraceID(d *job.Definition, r *job.Run) *job.TraceID {
	id, ok := t.sampling.OfRun(d, r)
	if !ok {
		return nil
	}
	return &id
}

// Lease returns the two headers of W3C Trace Context for the worker of a record's live attempt; they are empty if the
// run is not traced.
func (t *Tracer) Lease(r *job.Record) (traceparent, tracestate string) {
	run, ok := t.sampling.Of(r.Definition, &r.State)
	if !ok {
		return "", ""
	}
	return job.Traceparent(run.TraceID, run.Attempt(r.State.Token)), run.State
}

// Caller is the context of the call that ctx is of; nil if it is not sampled.
func (t *Tracer) Caller(ctx context.Context) *job.Trace {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() || !sc.IsSampled() {
		return nil
	}
	caller := &job.Trace{TraceID: job.TraceID(sc.TraceID()), SpanID: job.SpanID(sc.SpanID())}
	if state := sc.TraceState().String(); len(state) <= job.MaxTraceState {
		caller.State = state
	}
	return caller
}

// startSpan begins a span with a name of its own, below the parent if there is one.
func (t *Tracer) startSpan(run *job.RunTrace, id, parent job.SpanID, name string, atMS unixtime.Milli,
	o ...trace.SpanStartOption) trace.Span {
	ctx := context.WithValue(context.Background(), spanNameKey{}, spanName{run.TraceID, id})
	if parent != (job.SpanID{}) {
		ctx = trace.ContextWithRemoteSpanContext(ctx,
			spanContext(&job.Trace{TraceID: run.TraceID, SpanID: parent, State: run.State}))
	}
	_, span := t.tracer.Start(ctx, name, append(o, trace.WithTimestamp(atMS.Time()))...)
	return span
}

func spanContext(t *job.Trace) trace.SpanContext {
	state, _ := trace.ParseTraceState(t.State) // of none, if it is malformed
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(t.TraceID), SpanID: trace.SpanID(t.SpanID), TraceFlags: trace.FlagsSampled,
		TraceState: state, Remote: true,
	})
}
