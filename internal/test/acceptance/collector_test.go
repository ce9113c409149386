package acceptance

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// spanCollector is an OpenTelemetry collector: what processes send it stays here.
type spanCollector struct {
	collector.UnimplementedTraceServiceServer
	endpoint string

	mu    sync.Mutex
	spans []collected
}

// collected is a span with the service that sent it.
type collected struct {
	*tracev1.Span
	service string
}

func newCollector(t testing.TB) *spanCollector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &spanCollector{endpoint: "http://" + l.Addr().String()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c
}

// Export takes spans.
func (c *spanCollector) Export(_ context.Context, q *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range q.GetResourceSpans() {
		service := ""
		for _, a := range r.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, s := range r.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				c.spans = append(c.spans, collected{span, service})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// awaitSpan returns the span of this name in a trace, when it has come.
func (c *spanCollector) awaitSpan(t testing.TB, trace, name string) (found collected) {
	t.Helper()
	redistest.Eventually(t, patience, "span "+name+" of trace "+trace, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		var have []string
		for _, s := range c.spans {
			if hex.EncodeToString(s.GetTraceId()) != trace {
				continue
			}
			if s.GetName() == name {
				found = s
				return nil
			}
			have = append(have, s.GetName())
		}
		return fmt.Errorf("of %d spans there are in the trace: %s", len(c.spans), strings.Join(have, ", "))
	})
	return found
}

func (s collected) spanID() string   { return hex.EncodeToString(s.GetSpanId()) }
func (s collected) parentID() string { return hex.EncodeToString(s.GetParentSpanId()) }

// attributeText is an attribute.
func (s collected) attributeText(name string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == name {
			return strings.TrimPrefix(strings.TrimPrefix(a.GetValue().String(), "string_value:"), "int_value:")
		}
	}
	return ""
}
