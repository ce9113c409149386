package httpbound

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// logText is a log in memory.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logText) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// TestClosedConnectionsAreReported by their reasons, and in one line of the log.
func TestClosedConnectionsAreReported(t *testing.T) {
	log, counts := &logText{}, map[string]int{}
	b := bound(t, Options{Connections: 3, ConnectionsOfHost: 2, HeaderMemory: 1, Logger: log.logger(),
		OnClose: func(reason string) { counts[reason]++ }}, nil)
	first := b.connect("192.0.2.1:1")
	b.connect("192.0.2.1:2")
	b.connect("192.0.2.1:3") // host
	last := b.connect("192.0.2.2:1")
	b.connect("192.0.2.3:1") // evicted
	b.connect("192.0.2.4:1") // total
	for range 2 {
		if last.takeMemory(2 * freeHeaderBytes) {
			t.Error("headers find memory")
		}
		last.onNoMemory()
	}
	if !isClosedNow(first) {
		t.Error("no connection was evicted")
	}
	if want := map[string]int{HostFull: 1, Evicted: 1, Full: 1, Headers: 1}; !maps.Equal(counts, want) {
		t.Errorf("counted are %v, want %v", counts, want)
	}
	for _, reason := range Reasons() {
		delete(counts, reason)
	}
	if len(counts) > 0 {
		t.Errorf("Reasons has no %v", counts)
	}
	text := log.String()
	if n := strings.Count(text, "\n"); n != 1 || !strings.Contains(text, "host=192.0.2.1") {
		t.Errorf("%d lines:\n%s", n, text)
	}
}

// TestPanicsAreLogged with path and stack, and what strangers send is not.
func TestPanicsAreLogged(t *testing.T) {
	certified := httptest.NewUnstartedServer(nil) // for its certificate
	certified.StartTLS()
	defer certified.Close()
	log, o := &logText{}, wide()
	o.HTTP2Connections, o.Logger = 8, log.logger()
	s := serve(t, o, &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}})
	plain := s.dial("127.0.0.1")
	_, _ = io.WriteString(plain, "no handshake")
	if !isClosed(plain, patience) {
		t.Fatal("a connection without TLS is open")
	}
	malformed := tls.Client(s.dial("127.0.0.1"), &tls.Config{InsecureSkipVerify: true}) // only its bytes matter
	_, _ = io.WriteString(malformed, "no request\r\n\r\n")
	if !isClosed(malformed, patience) {
		t.Fatal("a connection with a malformed request is open")
	}
	if text := log.String(); text != "" {
		t.Errorf("the log has what a stranger sent:\n%s", text)
	}
	for _, protocol := range []string{"http/1.1", "h2"} {
		client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: protocol == "h2",
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}}} // it is a test's
		for _, path := range []string{"/abort", "/panic"} {
			resp, err := client.Post("https://"+s.address+path, "text/plain", http.NoBody)
			if err == nil {
				resp.Body.Close()
				t.Errorf("%s by %s has a response", path, protocol)
			}
		}
		client.CloseIdleConnections()
		text := log.String()
		for _, part := range []string{"panic in an HTTP handler", "path=/panic", "panic=\"this fails\"",
			"httpbound_test.go"} {
			if !strings.Contains(text, part) {
				t.Errorf("the log has no %s after a panic by %s:\n%s", part, protocol, text)
			}
		}
		if n := strings.Count(text, "\n"); n != 1 {
			t.Errorf("%d lines:\n%s", n, text)
		}
		log.mu.Lock()
		log.text.Reset()
		log.mu.Unlock()
	}
}
