package worker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// tracedWorker has one handler, h, and the provider.
func tracedWorker(t *testing.T, p trace.TracerProvider, logger *slog.Logger, h Handler) *Worker {
	t.Helper()
	w, err := New(Options{Addresses: []string{"127.0.0.1:1"}, ID: "w", TracerProvider: p, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("h", h)
	w.baseContext = context.Background()
	return w
}

// once is what a runner does with one lease.
func (w *Worker) once(a *attempt) result {
	a.ctx = taskContext{base: w.baseContext}
	if a.trace != nil {
		a.ctx.base = contextWithTrace(w.baseContext, a.trace)
	}
	start := time.Now()
	a.ctx.startTimeout(start, a.task.Timeout)
	if w.isTraced(a) {
		w.beginSpan(a, start)
	}
	return w.buildResult(a, a.endHandler(w.callHandler(a), start))
}

func attemptFor(w *Worker, l *fermatav1.Lease) *attempt {
	b, err := proto.Marshal(l)
	if err != nil {
		panic(err)
	}
	a := &attempt{handler: w.handlers["h"]}
	if err := a.readLease(b, &Task{}); err != nil {
		panic(err)
	}
	return a
}

const parent = "00-11111111111111111111111111111111-2222222222222222-01"

func leaseWith(traceparent string) *fermatav1.Lease {
	l := &fermatav1.Lease{LeaseId: "l", Run: "namespaces/n/jobs/j/runs/1-2", Handler: "h", Queue: "q", Attempt: 1}
	if traceparent != "" {
		l.TraceContext = &fermatav1.TraceContext{Traceparent: traceparent, Tracestate: "v=x"}
	}
	return l
}

// TestHandlersContinueTheTrace: in a span of their own below that of the attempt, and
// without a provider in the attempt's.
func TestHandlersContinueTheTrace(t *testing.T) {
	var seen trace.SpanContext
	fail := func(ctx context.Context, _ *Task) error {
		seen = trace.SpanContextFromContext(ctx)
		if ctx.Done() == nil || context.Cause(ctx) != nil {
			t.Error("the context cannot end, or has")
		}
		return errors.New("boom")
	}
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, nil))
	spans := tracetest.NewSpanRecorder()
	w := tracedWorker(t, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)), logger, fail)
	l := leaseWith(parent)
	w.once(attemptFor(w, l))
	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("%d spans", len(ended))
	}
	s := ended[0]
	if s.Name() != "handle h" || s.Parent().SpanID().String() != "2222222222222222" ||
		s.SpanContext().TraceState().String() != "v=x" ||
		s.SpanContext().SpanID() != seen.SpanID() || s.Status().Description != "boom" {
		t.Errorf("%v below %v, %v; the handler saw %v", s.Name(), s.Parent(), s.Status(), seen)
	}
	if want := "job=n/j queue=q run=1-2 attempt=1 correlation_id=\"\" handler=h trace_id=11111111111111111111111111111111 outcome=failed error=boom"; !strings.Contains(out.String(), want) {
		t.Errorf("logged %s", out.String())
	}
	w = tracedWorker(t, nil, nil, fail)
	w.once(attemptFor(w, l))
	if seen.SpanID().String() != "2222222222222222" || !seen.IsRemote() {
		t.Errorf("without a provider the handler saw %v", seen)
	}
}

// TestInvalidTracesAreIgnored: a node may say anything.
func TestInvalidTracesAreIgnored(t *testing.T) {
	w := tracedWorker(t, untouched{}, nil, func(context.Context, *Task) error { return nil })
	for _, traceparent := range []string{"x", "00-0-0-01", strings.TrimSuffix(parent, "1") + "0"} {
		l := leaseWith(traceparent)
		if r := w.once(attemptFor(w, l)); r.outcome != fermatav1.Result_OUTCOME_SUCCEEDED {
			t.Errorf("%q: %v", traceparent, r)
		}
	}
}

// untouched is a provider that nobody may ask.
type untouched struct{ trace.TracerProvider }

// TestNoTracesCostNothing: a run that is not traced takes as many allocations with a
// provider as without, and none of them for its trace.
func TestNoTracesCostNothing(t *testing.T) {
	l := leaseWith("")
	var allocs []float64
	for _, p := range []trace.TracerProvider{nil, untouched{}} {
		w := tracedWorker(t, p, nil, func(context.Context, *Task) error { return nil })
		a := attemptFor(w, l)
		allocs = append(allocs, testing.AllocsPerRun(200, func() { w.once(a) }))
		if n := testing.AllocsPerRun(100, func() {
			if w.isTraced(a) {
				t.Error("traced")
			}
		}); n != 0 {
			t.Errorf("%v allocations to find out", n)
		}
	}
	if allocs[0] != allocs[1] || allocs[0] > 0 {
		t.Errorf("%v allocations", allocs)
	}
}
