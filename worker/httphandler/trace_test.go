package httphandler

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fermata-io/fermata/worker"
)

// TestRequestsCarryTheirTrace: by the standard's headers, in a span of their own where
// spans are made; a payload's own header counts, and no trace is no header.
func TestRequestsCarryTheirTrace(t *testing.T) {
	var asked http.Header
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked = q.Header
		w.WriteHeader(http.StatusTeapot)
	}))
	defer target.Close()
	h := New(Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	send := func(ctx context.Context, headers map[string]string) {
		t.Helper()
		payload, err := json.Marshal(map[string]any{"url": target.URL + "/p/Zx93kfLq20vbTT71rWc4?token=hidden", "headers": headers})
		if err != nil {
			t.Fatal(err)
		}
		if err := h(ctx, &worker.Task{Payload: payload}); err == nil {
			t.Error("an answer of 418 is a success")
		}
	}
	send(t.Context(), nil)
	if have, ok := asked["Traceparent"]; ok {
		t.Errorf("of no trace: %q", have)
	}
	remote := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	}))
	send(remote, nil)
	if have, want := asked.Get("Traceparent"), "00-01000000000000000000000000000000-0200000000000000-01"; have != want {
		t.Errorf("of a trace that is only passed on: %q, want %q", have, want)
	}
	spans := tracetest.NewSpanRecorder()
	ctx, handle := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("t").Start(remote, "handle")
	send(ctx, nil)
	handle.End()
	request := spans.Ended()[0]
	if have, want := asked.Get("Traceparent"), "00-01000000000000000000000000000000-"+request.SpanContext().SpanID().String()+"-01"; have != want {
		t.Errorf("of a traced run: %q, want %q", have, want)
	}
	said := map[string]string{}
	for _, a := range request.Attributes() {
		said[string(a.Key)] = a.Value.String()
	}
	if request.Name() != "GET" || request.SpanKind() != trace.SpanKindClient || said["http.response.status_code"] != "418" || said["url.full"] != target.URL+"/p/[..]" {
		t.Errorf("%s, %v", request.Name(), said)
	}
	send(ctx, map[string]string{"traceparent": "mine"})
	if have := asked.Get("Traceparent"); have != "mine" {
		t.Errorf("the payload's header became %q", have)
	}
}
