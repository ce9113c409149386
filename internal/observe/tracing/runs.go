package tracing

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// RecordDecision makes the spans that end with a stored decision, and adds the trace to the notices about the run. It
// receives the definition and the state before the decision, the event, the run that ended by it, if any, and
// the notices.
func (t *Tracer) RecordDecision(d *job.Definition, before *job.State, ev job.Input,
	ended *job.Run, notices []job.Notice) {
	if !before.HasRun() {
		return
	}
	run, ok := t.sampling.Of(d, before)
	if !ok {
		return
	}
	id := before.RunID()
	var now unixtime.Milli
	for i := range notices {
		if n := &notices[i]; n.RunID == id {
			n.TraceID = &run.TraceID
		}
		now = notices[i].AtMS
	}
	if now == 0 {
		return
	}
	f := spanFacts{definition: d, state: before, id: id, now: now}
	switch ev := ev.(type) {
	case job.FinishAttempt:
		f.outcome, f.startedMS, f.worker, f.err = ev.Outcome.String(), ev.StartedMS, ev.Worker, ev.Error
		t.recordAttempt(&run, &f)
	case job.LoseLease:
		f.outcome, f.err = "lost", "the worker was lost"
		t.recordAttempt(&run, &f)
	case job.ForgiveLoss:
		if !before.Live() || before.Token != ev.Token {
			break // the attempt has ended before
		}
		f.outcome, f.err = "lost", "the worker lost its node"
		t.recordAttempt(&run, &f)
	case job.ReturnLease:
		f.outcome = "returned"
		t.recordAttempt(&run, &f)
	}
	if ended != nil {
		t.recordRun(&run, &f, ended)
	}
}

// spanFacts are the facts for the spans of one decision.
type spanFacts struct {
	definition *job.Definition
	state      *job.State     // before the decision
	id         string         // of the run
	now        unixtime.Milli // time of the decision, by the shard's clock
	startedMS  unixtime.Milli // of the attempt; 0: it did not start, or that is unknown
	outcome    string
	worker     string
	err        string
}

func (f *spanFacts) attributes() []attribute.KeyValue {
	s := f.state
	return []attribute.KeyValue{
		attribute.String("fermata.namespace", f.definition.Namespace),
		attribute.String("fermata.queue", s.Lane.Queue),
		attribute.String("fermata.job", f.definition.ID),
		attribute.String("fermata.run", f.id),
		attribute.String("fermata.handler", f.definition.Handler),
		attribute.String("fermata.trigger", s.Trigger.String()),
		attribute.String("fermata.correlation_id", job.Correlation(f.definition.Key, f.id)),
	}
}

// recordAttempt makes the span of an attempt, from its due time until its end was stored. The handler's span,
// which the worker sends, is its child: the time before is waiting, the time after is settlement.
func (t *Tracer) recordAttempt(run *job.RunTrace, f *spanFacts) {
	s := f.state
	span := t.startSpan(run, run.Attempt(s.Token), run.Run, "attempt "+f.definition.Handler, min(s.Due, f.now),
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(f.attributes()...))
	span.SetAttributes(
		attribute.Int64("fermata.attempt", int64(s.Attempt)+1),
		attribute.String("fermata.outcome", f.outcome),
		attribute.String("fermata.node", t.node),
	)
	at := func(name string, ms unixtime.Milli) {
		if ms > 0 {
			span.AddEvent(name, trace.WithTimestamp(ms.Time()))
		}
	}
	// An attempt that was leased in advance did not wait.
	at("leased", min(max(unixtime.Milli(s.Token/1000), s.Due), f.now))
	at("started", f.startedMS)
	at("settled", f.now)
	if f.startedMS > 0 {
		span.SetAttributes(attribute.Float64("fermata.lag_seconds", float64(f.startedMS-s.Due)/1000))
	}
	if f.worker != "" {
		span.SetAttributes(attribute.String("fermata.worker", f.worker))
	}
	if f.err != "" {
		span.SetStatus(codes.Error, job.Clip(f.err, job.MaxError))
	}
	span.End(trace.WithTimestamp(f.now.Time()))
}

// recordRun makes the span of a run that ended, from its first due time.
func (t *Tracer) recordRun(run *job.RunTrace, f *spanFacts, ended *job.Run) {
	from := f.state.Due
	if f.state.Attempt > 0 && f.state.FirstMS > 0 {
		from = min(from, f.state.FirstMS) // the first due time is no longer stored elsewhere
	}
	if since := f.state.Held.SinceMS; since > 0 {
		from = min(from, since)
	}
	o := []trace.SpanStartOption{trace.WithAttributes(f.attributes()...)}
	if run.Link != nil {
		o = append(o, trace.WithLinks(trace.Link{
			SpanContext: spanContext(run.Link),
			Attributes:  []attribute.KeyValue{attribute.String("fermata.link", "registration")},
		}))
	}
	span := t.startSpan(run, run.Run, run.Parent, "run "+f.definition.Handler, min(from, f.now), o...)
	span.SetAttributes(
		attribute.Int64("fermata.attempts", int64(ended.Attempts)),
		attribute.String("fermata.outcome", ended.Outcome.String()),
		attribute.String("fermata.due_time", ended.DueMS.Time().UTC().Format(time.RFC3339Nano)),
		attribute.String("fermata.nominal_time", ended.NominalMS.Time().UTC().Format(time.RFC3339Nano)),
		attribute.String("fermata.node", t.node),
	)
	if f.startedMS > 0 {
		span.SetAttributes(attribute.Float64("fermata.lag_seconds", float64(f.startedMS-f.state.Due)/1000))
	}
	if ended.Outcome != job.OutcomeSucceeded && ended.Outcome != job.OutcomeCancelled {
		span.SetStatus(codes.Error, job.Clip(ended.Error, job.MaxError))
	}
	span.End(trace.WithTimestamp(f.now.Time()))
}
