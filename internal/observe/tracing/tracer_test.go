package tracing

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func recorded(share float64) (*Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithIDGenerator(spanIDs{}))
	return newTracer(provider, share, "node"), spans
}

var definition = &job.Definition{Key: job.Key{Namespace: "ns", ID: "j"}, Handler: "h", CreatedMS: 1}

func live(attempt uint32) job.State {
	return job.State{
		Region: job.RegionLeased, Token: 2_000_000, Lane: job.Lane{Namespace: "ns", Queue: "q"}, Generation: 1,
		Nominal: 1000, Due: 1500, Attempt: attempt, FirstMS: unixtime.Milli(map[bool]int64{true: 1200}[attempt > 0]),
	}
}

// TestRunsBecomeSpans: one for each attempt, and one for the run when it ends, over all of
// them, with the times of the shard's clock.
func TestRunsBecomeSpans(t *testing.T) {
	tracer, spans := recorded(1)
	s := live(0)
	failed := []job.Notice{{Kind: job.AttemptFailed, RunID: s.RunID(), AtMS: 2500}, {Kind: job.JobPaused, AtMS: 2500}}
	tracer.RecordDecision(definition, &s, job.FinishAttempt{Token: s.Token, Outcome: job.OutcomeFailed, Error: "boom",
		StartedMS: 2100, Worker: "w"}, nil, failed)
	again := live(1)
	again.Token, again.Due = 3_000_000, 2900
	ended := job.Run{ID: s.RunID(), Attempts: 2, Outcome: job.OutcomeSucceeded, DueMS: 2900, NominalMS: 1000}
	tracer.RecordDecision(definition, &again, job.FinishAttempt{Token: again.Token, Outcome: job.OutcomeSucceeded, StartedMS: 3100,
		Worker: "w"}, &ended,
		[]job.Notice{{Kind: job.RunSucceeded, RunID: s.RunID(), AtMS: 4000}})
	list := spans.Ended()
	if len(list) != 3 {
		t.Fatalf("%d spans", len(list))
	}
	if failed[0].TraceID == nil || failed[1].TraceID != nil {
		t.Errorf("the notices are of traces %v and %v", failed[0].TraceID, failed[1].TraceID)
	}
	first, second, run := list[0], list[1], list[2]
	for i, want := range []struct {
		span     sdktrace.ReadOnlySpan
		name     string
		from, to unixtime.Milli
		parent   trace.SpanID
		status   codes.Code
	}{
		{first, "attempt h", 1500, 2500, run.SpanContext().SpanID(), codes.Error},
		{second, "attempt h", 2900, 4000, run.SpanContext().SpanID(), codes.Unset},
		{run, "run h", 1200, 4000, trace.SpanID{}, codes.Unset},
	} {
		have := want.span
		if have.Name() != want.name || unixtime.MilliOf(have.StartTime()) != want.from ||
			unixtime.MilliOf(have.EndTime()) != want.to ||
			have.Parent().SpanID() != want.parent || have.Status().Code != want.status ||
			have.SpanContext().TraceID() != trace.TraceID(*failed[0].TraceID) {
			t.Errorf("span %d: %s %v to %v below %v, %v", i, have.Name(), have.StartTime(), have.EndTime(),
				have.Parent().SpanID(), have.Status())
		}
	}
	if first.SpanContext().SpanID() == second.SpanContext().SpanID() {
		t.Error("two attempts have one id")
	}
	parent, _ := tracer.Lease(&job.Record{Definition: definition, State: s})
	if want := "00-" + first.SpanContext().TraceID().String() + "-" + first.SpanContext().SpanID().String() + "-01"; parent != want {
		t.Errorf("the worker is told of %s, the attempt is %s", parent, want)
	}
}

// TestWhatEndsWithoutAResultIsSeen: lost and returned attempts, runs that never began.
func TestWhatEndsWithoutAResultIsSeen(t *testing.T) {
	for _, c := range []struct {
		ev    job.Input
		ended *job.Run
		want  string
	}{
		{job.LoseLease{Token: 2_000_000}, nil, "attempt h: lost"},
		{job.ReturnLease{Token: 2_000_000}, nil, "attempt h: returned"},
		{job.LoseLease{Token: 2_000_000}, &job.Run{Outcome: job.OutcomeQuarantined}, "attempt h: lost, run h: quarantined"},
		{job.CancelRun{}, &job.Run{Outcome: job.OutcomeCancelled}, "run h: cancelled"},
		{job.Pause{}, nil, ""},
	} {
		tracer, spans := recorded(1)
		s := live(0)
		tracer.RecordDecision(definition, &s, c.ev, c.ended, []job.Notice{{RunID: s.RunID(), AtMS: 4000}})
		var have []string
		for _, s := range spans.Ended() {
			for _, a := range s.Attributes() {
				if a.Key == "fermata.outcome" {
					have = append(have, s.Name()+": "+a.Value.AsString())
				}
			}
		}
		if text := strings.Join(have, ", "); text != c.want {
			t.Errorf("%T: %q, want %q", c.ev, text, c.want)
		}
	}
	tracer, spans := recorded(0)
	s := live(0)
	tracer.RecordDecision(definition, &s, job.LoseLease{}, nil, []job.Notice{{RunID: s.RunID(), AtMS: 4000}})
	if parent, _ := tracer.Lease(&job.Record{Definition: definition, State: s}); len(spans.Ended()) > 0 ||
		parent != "" {
		t.Error("a run is traced that is not in the share")
	}
}

// TestOnlySampledCallersAreFollowed: what is no context, or one that nobody samples, is
// left alone, without an allocation where there is none at all.
func TestOnlySampledCallersAreFollowed(t *testing.T) {
	tracer, spans := recorded(1)
	const ids = "00-11111111111111111111111111111111-2222222222222222-"
	for _, header := range []string{"", "x", ids + "00", strings.ToUpper(ids) + "zz"} {
		ctx := t.Context()
		if header != "" {
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("traceparent", header))
		}
		called, done := tracer.Call(ctx, "/fermata.v1.JobService/CreateJob")
		if done != nil || called != ctx || tracer.Caller(called) != nil {
			t.Errorf("%q is followed", header)
		}
	}
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("user-agent", "x"))
	if n := testing.AllocsPerRun(100, func() { tracer.Call(ctx, "/m") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for state, want := range map[string]string{"a=1": "a=1", "a=" + strings.Repeat("x", job.MaxTraceState): ""} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", ids+"01", "tracestate", state))
		called, done := tracer.Call(ctx, "/fermata.v1.JobService/CreateJob")
		caller := tracer.Caller(called)
		if done == nil || caller == nil || caller.State != want && len(state) <= 256 {
			t.Fatalf("%.9s: %+v", state, caller)
		}
		done(grpccodes.Unavailable)
	}
	if s := spans.Ended()[0]; s.Name() != "fermata.v1.JobService/CreateJob" || s.Status().Code != codes.Error ||
		s.Parent().SpanID().String() != "2222222222222222" {
		t.Errorf("%v", s)
	}
}

// broken is an exporter whose collector is away.
type broken struct{ sdktrace.SpanExporter }

func (broken) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return errors.New("away") }

// TestSpansAreCounted: those that are made, sent, and lost.
func TestSpansAreCounted(t *testing.T) {
	for _, c := range []struct {
		exporter     sdktrace.SpanExporter
		sent, failed float64
	}{{tracetest.NewInMemoryExporter(), 2, 0}, {broken{}, 0, 2}} {
		counted, err := newCountingExporter(c.exporter, Process{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		q := spanQueue{sdktrace.NewBatchSpanProcessor(counted), counted.madeSpans}
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(q))
		for range 2 {
			_, span := provider.Tracer("t").Start(t.Context(), "s", trace.WithTimestamp(time.UnixMilli(1)))
			span.End()
		}
		if err := provider.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
		made, sent, failed := testutil.ToFloat64(counted.madeSpans), testutil.ToFloat64(counted.sentSpans), testutil.ToFloat64(counted.failedSpans)
		if made != 2 || sent != c.sent || failed != c.failed {
			t.Errorf("%T: %v made, %v sent, %v failed", c.exporter, made, sent, failed)
		}
	}
}
