package telemetry

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestServerReportsItsFaults: panics of its handlers are logged, and it counts connections that it closes.
func TestServerReportsItsFaults(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log, registry := &bytes.Buffer{}, prometheus.NewRegistry()
	s := Serve(l, ServerOptions{Gatherer: registry, Registerer: registry, Up: func() bool { return true },
		Ready: func() []string { panic("this check fails") }, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if resp, err := http.Get("http://" + s.Addr() + "/readyz"); err == nil {
		resp.Body.Close()
		t.Error("a handler that panics has a response")
	}
	resp, err := http.Get("http://" + s.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	for _, reason := range []string{"evicted", "headers", "host", "total"} {
		want := `fermata_http_connections_closed_total{reason="` + reason + `"} 0`
		if !strings.Contains(string(text), want) {
			t.Errorf("no metric %s", want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "path=/readyz") || !strings.Contains(log.String(), "this check fails") {
		t.Errorf("the log has no panic:\n%s", log)
	}
}

// TestSlowRequestsAreFew: requests whose bodies do not arrive, or that wait for a check, take few connections.
func TestSlowRequestsAreFew(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	h := limitRequests(levelRequestsAtOnce, func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-end
	})
	ask := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/loglevel", nil))
		return w.Code
	}
	var slow sync.WaitGroup
	for range levelRequestsAtOnce {
		slow.Go(func() { ask() })
		<-began
	}
	if code := ask(); code != http.StatusServiceUnavailable {
		t.Errorf("one more request: %d", code)
	}
	close(end)
	slow.Wait()
	go func() { <-began }()
	if code := ask(); code != http.StatusOK {
		t.Errorf("a request after the slow ones: %d", code)
	}
}
