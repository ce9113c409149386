package faultproxy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// silence is how long a test listens for bytes that must not come. Its only
// risk is to miss a fault, not to report one that is none.
const silence = 50 * time.Millisecond

func TestBytesAndClosesPassUnchanged(t *testing.T) {
	p := faultproxy.New(t, echoServer(t))
	conn := dialTCP(t, p.Addr())
	sent := make([]byte, 1<<20)
	_, _ = rand.Read(sent) // never fails
	go func() {
		_, _ = conn.Write(sent) // a failure shows as bytes that are missing
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes came back of %d, or others", len(got), len(sent))
	}
	if c := p.Counters(); c != (faultproxy.Counters{Connections: 1}) {
		t.Errorf("counters without a fault: %+v", c)
	}
	waitOpen(t, p, 0)
}

// The request runs, its answer is lost: the case that every repeat must survive.
func TestCutRepliesAgainstRedis(t *testing.T) {
	tests := []struct {
		name string
		cut  func(*faultproxy.Proxy)
		lost int64
	}{
		{"next two", func(p *faultproxy.Proxy) { p.CutNextReplies(2) }, 2},
		{"all", func(p *faultproxy.Proxy) { p.CutReplies(1) }, 5},
		{"none", func(p *faultproxy.Proxy) { p.CutReplies(0) }, 0},
	}
	s := redistest.Start(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			if err := s.Client().Del(ctx, "n").Err(); err != nil {
				t.Fatal(err)
			}
			p := faultproxy.New(t, s.Addr())
			o := *s.Client().Options() // with all rights
			o.Addr, o.MaxRetries, o.PoolSize, o.Protocol = p.Addr(), -1, 1, 2
			c := redis.NewClient(&o)
			defer c.Close()
			var failed int64
			for range 5 {
				p.Pass()
				if err := c.Ping(ctx).Err(); err != nil { // connects, with faults off
					t.Fatal(err)
				}
				if failed < tt.lost || tt.lost == 0 {
					tt.cut(p)
				}
				if c.Incr(ctx, "n").Err() != nil {
					failed++
				}
			}
			if failed != tt.lost || p.Counters().Cut != tt.lost {
				t.Errorf("%d calls failed, %d replies cut, want %d", failed, p.Counters().Cut, tt.lost)
			}
			if n, err := s.Client().Get(ctx, "n").Int(); err != nil || n != 5 {
				t.Errorf("the server ran %d of 5 requests (%v)", n, err)
			}
		})
	}
}

func TestCutNextRepliesStopsByItself(t *testing.T) {
	p := faultproxy.New(t, echoServer(t))
	p.CutNextReplies(1)
	first := dialTCP(t, p.Addr())
	writeText(t, first, "a")
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Fatal("the reply was not cut")
	}
	second := dialTCP(t, p.Addr())
	writeText(t, second, "b")
	expectText(t, second, "b")
	if c := p.Counters(); c.Cut != 1 || c.Connections != 2 {
		t.Errorf("counters %+v", c)
	}
}

func TestBlackholeHoldsItsDirectionsAndLosesNothing(t *testing.T) {
	tests := []struct {
		name             string
		dir              faultproxy.Direction
		reaches, answers bool
	}{
		{"to server", faultproxy.ToServer, false, true},
		{"to client", faultproxy.ToClient, true, false},
		{"both", faultproxy.Both, false, false},
		{"neither", 0, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			target := newPipeServer(t)
			p := faultproxy.New(t, target.addr)
			conn := dialTCP(t, p.Addr())
			server := target.acceptConn(t)
			p.Blackhole(tt.dir)
			writeText(t, conn, "ask\n")
			writeText(t, server, "tell\n")
			if tt.reaches {
				expectText(t, server, "ask\n")
			} else if isReadable(t, server) {
				t.Error("a blackhole passed bytes to the server")
			}
			if tt.answers {
				expectText(t, conn, "tell\n")
			} else if isReadable(t, conn) {
				t.Error("a blackhole passed bytes to the client")
			}
			if got := p.Counters().Stalled > 0; got == (tt.dir == 0) {
				t.Errorf("counters %+v", p.Counters())
			}
			p.Pass()
			if !tt.reaches {
				expectText(t, server, "ask\n")
			}
			if !tt.answers {
				expectText(t, conn, "tell\n")
			}
		})
	}
}

// A peer behind a network that loses everything does not learn of a close.
func TestBlackholeHidesClose(t *testing.T) {
	target := newPipeServer(t)
	p := faultproxy.New(t, target.addr)
	conn := dialTCP(t, p.Addr())
	server := target.acceptConn(t)
	p.Blackhole(faultproxy.Both)
	_ = conn.Close()
	_ = server.SetReadDeadline(time.Now().Add(silence))
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the server saw %v", err)
	}
	p.Pass()
	_ = server.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("after the fault the server saw %v, want the end", err)
	}
}

func TestLatencyDelaysBothWays(t *testing.T) {
	const d = 30 * time.Millisecond
	p := faultproxy.New(t, echoServer(t))
	p.Latency(d)
	conn := dialTCP(t, p.Addr())
	begin := time.Now()
	writeText(t, conn, "x")
	expectText(t, conn, "x")
	if took := time.Since(begin); took < 2*d {
		t.Errorf("round trip in %v, want at least %v", took, 2*d)
	}
	if got := p.Counters().Delayed; got != 2 {
		t.Errorf("%d chunks delayed, want 2", got)
	}
	p.Latency(time.Hour)
	writeText(t, conn, "y")
	redistest.Eventually(t, redistest.Patience, "delay", func(context.Context) error {
		if p.Counters().Delayed < 3 {
			return errors.New("not held yet")
		}
		return nil
	})
	p.Pass() // what is held goes on at once
	expectText(t, conn, "y")
}

func TestCloseAllAndRefuse(t *testing.T) {
	p := faultproxy.New(t, echoServer(t))
	old := []net.Conn{dialTCP(t, p.Addr()), dialTCP(t, p.Addr())}
	waitOpen(t, p, 2)
	p.CloseAll()
	for _, c := range old {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("an old connection still lives")
		}
	}
	waitOpen(t, p, 0)
	p.Refuse(true)
	refused := dialTCP(t, p.Addr())
	if _, err := refused.Read(make([]byte, 1)); err == nil {
		t.Error("a connection was not refused")
	}
	p.Pass()
	fresh := dialTCP(t, p.Addr())
	writeText(t, fresh, "x")
	expectText(t, fresh, "x")
	if got, want := p.Counters(), (faultproxy.Counters{Connections: 3, Refused: 1, Closed: 2}); got != want {
		t.Errorf("counters %+v, want %+v", got, want)
	}
}

func TestDeadTargetClosesClient(t *testing.T) {
	s := redistest.Start(t)
	p := faultproxy.New(t, s.Addr())
	s.Kill()
	if _, err := dialTCP(t, p.Addr()).Read(make([]byte, 1)); err == nil {
		t.Fatal("connected to nothing")
	}
}

// TestDeadTargetRefusesNewClients: who dials a proxy before a dead target is refused, until
// the target listens again.
func TestDeadTargetRefusesNewClients(t *testing.T) {
	target, err := net.Listen("tcp", "127.81.67.2:0") // an address that no other test uses
	if err != nil {
		t.Fatal(err)
	}
	addr := target.Addr().String()
	p := faultproxy.NewAt(t, "127.81.67.3:0", addr)
	p.MirrorRefusals()
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := dialTCP(t, p.Addr()).Read(make([]byte, 1)); err == nil {
		t.Fatal("connected to nothing")
	}
	redistest.Eventually(t, redistest.Patience, "a refusal", func(context.Context) error {
		conn, err := net.Dial("tcp", p.Addr())
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("dialling gives %v", err)
		}
		return nil
	})
	again, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	redistest.Eventually(t, redistest.Patience, "connections again", func(context.Context) error {
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func TestCutRepliesRefusesInvalidValues(t *testing.T) {
	p := faultproxy.New(t, "127.0.0.1:1")
	defer func() {
		if recover() == nil {
			t.Error("probability 2 was accepted")
		}
	}()
	p.CutReplies(2)
}

func waitOpen(t *testing.T, p *faultproxy.Proxy, want int) {
	t.Helper()
	redistest.Eventually(t, redistest.Patience, "open connections", func(context.Context) error {
		if p.Open() != want {
			return errors.New("other number")
		}
		return nil
	})
}

func dialTCP(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

func writeText(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func expectText(t *testing.T, c net.Conn, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q (%v), want %q", got, err, want)
	}
}

// isReadable reads one line, and reports whether any came in a while.
func isReadable(t *testing.T, c net.Conn) bool {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(silence))
	_, err := bufio.NewReader(c).ReadString('\n')
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return err == nil
}
