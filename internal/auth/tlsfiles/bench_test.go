package tlsfiles

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/tlstest"
)

const patience = redistest.Patience

// clock is a time that only the test moves, and that of this host to begin with.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	c.mu.Unlock()
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func all(d *tlstest.Dir) Files { return Files{Cert: d.Cert, Key: d.Key, Authorities: d.CA} }

func open(t *testing.T, o Options) *Source {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// must is for what the test has set up to be right.
func must(t *testing.T) func(credentials.TransportCredentials, error) credentials.TransportCredentials {
	t.Helper()
	return func(c credentials.TransportCredentials, err error) credentials.TransportCredentials {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// serve answers health checks until the test ends, and returns its address.
func serve(t *testing.T, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func connect(t *testing.T, target string, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func check(t *testing.T, conn *grpc.ClientConn) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

// try makes one call over a new connection.
func try(t *testing.T, addr string, c credentials.TransportCredentials) error {
	t.Helper()
	conn := connect(t, "passthrough:///"+addr, c)
	defer conn.Close()
	return check(t, conn)
}

// wants demands an error with this text; an empty one demands none.
func wants(t *testing.T, err error, text string) {
	t.Helper()
	switch {
	case text == "" && err != nil:
		t.Errorf("refused: %v", err)
	case text != "" && err == nil:
		t.Errorf("accepted, want %q", text)
	case text != "" && !strings.Contains(err.Error(), text):
		t.Errorf("refused with %q, want %q", err, text)
	}
}

// wants demands that the server says this of a client that it refused; an empty text
// demands that the client was not. The client itself may have seen no more than a
// connection that was closed.
func (l *lines) wants(t *testing.T, err error, text string) {
	t.Helper()
	if text == "" || err == nil {
		wants(t, err, text)
		return
	}
	redistest.Eventually(t, patience, "a reason in the log of the server that refused", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !strings.Contains(l.buf.String(), text) {
			return fmt.Errorf("no %q in:\n%s", text, l.buf.String())
		}
		return nil
	})
}
