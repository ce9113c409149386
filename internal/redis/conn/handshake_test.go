package conn

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestHandshakeIsSentOnce: what is sent ahead is all that the client library would send. If a
// new version of it sends something else, the handshake has to follow.
func TestHandshakeIsSentOnce(t *testing.T) {
	server := redistest.Start(t)
	var sent syncBuffer
	c, err := NewClient(ClientOptions{
		URL: strings.TrimSuffix(server.URL(), "/0") + "/3", ClientName: "fermata-test",
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return recordedConn{conn, &sent}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		if err := c.Ping(t.Context()).Err(); err != nil && !isAnswer(err) {
			t.Fatal(err)
		}
	}
	text := sent.String()
	for _, command := range []string{"hello", "select", "client\r\n$7\r\nsetname"} {
		if n := strings.Count(text, command); n != 1 {
			t.Errorf("%q was sent %d times in %q", command, n, text)
		}
	}
	if n := strings.Count(text, "ping"); n != 3 {
		t.Errorf("%d pings in %q", n, text)
	}
}

func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

type recordedConn struct {
	net.Conn
	sent *syncBuffer
}

func (r recordedConn) Write(b []byte) (int, error) {
	_, _ = r.sent.Write(b) // to memory
	return r.Conn.Write(b)
}

// TestIntroducedConnection: commands that were sent ahead are answered once, in order, and
// anything else goes through.
func TestIntroducedConnection(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	c := &introducedConn{Conn: near, unread: []byte(">push"), exchanges: []exchange{
		{encodeCommand("hello", "3"), []byte("%0\r\n")}, {encodeCommand("select", "3"), []byte("+OK\r\n")},
	}}
	write := func(b []byte) {
		t.Helper()
		if n, err := c.Write(b); n != len(b) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	read := func(want string) {
		t.Helper()
		b := make([]byte, 100)
		if n, err := c.Read(b); err != nil || string(b[:n]) != want {
			t.Fatalf("read %q (%v), want %q", b[:n], err, want)
		}
	}
	write(encodeCommand("hello", "3"))
	read("%0\r\n")
	var passed sync.WaitGroup
	passed.Go(func() {
		b := make([]byte, 100)
		if n, err := far.Read(b); err != nil || string(b[:n]) != "PING\r\n" {
			t.Errorf("the server got %q (%v)", b[:n], err)
		}
	})
	write(append(encodeCommand("select", "3"), "PING\r\n"...))
	passed.Wait()
	read("+OK\r\n")
	read(">push")

	other := &introducedConn{Conn: near, exchanges: []exchange{{encodeCommand("hello", "3"), []byte("%0\r\n")}}}
	passed.Go(func() { _, _ = far.Read(make([]byte, 100)) })
	if _, err := other.Write(encodeCommand("auth", "x")); err != nil || len(other.exchanges) != 0 || len(other.answers) != 0 {
		t.Errorf("another command: %v, %d exchanges are left", err, len(other.exchanges))
	}
	passed.Wait()
}

func TestReplies(t *testing.T) {
	for _, text := range []string{
		"+OK\r\n", "-NOAUTH Authentication required.\r\n", ":1\r\n", "$2\r\nab\r\n", "$-1\r\n", "_\r\n", "#t\r\n", ",1.5\r\n",
		"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "*-1\r\n", "%1\r\n+a\r\n*0\r\n", "~1\r\n+a\r\n", "|1\r\n+a\r\n:1\r\n+OK\r\n", "=5\r\ntxt:a\r\n",
	} {
		got, err := appendReply(nil, bufio.NewReader(strings.NewReader(text+"rest")))
		if err != nil || string(got) != text {
			t.Errorf("%q is read as %q (%v)", text, got, err)
		}
	}
	for _, text := range []string{"", "+OK", "?\r\n", "*x\r\n", "$9999999\r\n", "*9999999\r\n", strings.Repeat("*1\r\n", 100), "\n"} {
		if _, err := appendReply(nil, bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%q is a reply", text)
		}
	}
}

// TestPoolsRecoverWhileAnswersAreSlow: an answer comes within the time that a call has for it,
// but dialling, an introduction and the call together take longer than that. Calls succeed all the same:
// from the start, after a stall that broke all connections, and with a pool that has a single
// connection when answers become slow.
func TestPoolsRecoverWhileAnswersAreSlow(t *testing.T) {
	const late = 600 * time.Millisecond
	server := redistest.Start(t)
	for name, call := range map[string]func(context.Context, redis.UniversalClient) error{
		"command": func(ctx context.Context, c redis.UniversalClient) error { return c.Ping(ctx).Err() },
		"pipeline": func(ctx context.Context, c redis.UniversalClient) error {
			p := c.Pipeline()
			p.Ping(ctx)
			p.Ping(ctx)
			_, err := p.Exec(ctx)
			return err
		},
	} {
		t.Run(name+"/stall", func(t *testing.T) {
			t.Parallel()
			proxy, callers := newSlowCallers(t, server, call)
			proxy.Latency(late / 2) // each way
			redistest.Eventually(t, redistest.Patience, "calls succeed from the start", callers.mostSucceed)
			proxy.Blackhole(faultproxy.Both)
			for range 3 {
				if n := callers.round(8); n > 0 {
					t.Fatalf("%d calls have an answer in a stall", n)
				}
			}
			proxy.Pass()
			proxy.Latency(late / 2)
			redistest.Eventually(t, redistest.Patience, "calls succeed after a stall", callers.mostSucceed)
		})
		t.Run(name+"/one connection", func(t *testing.T) {
			t.Parallel()
			proxy, callers := newSlowCallers(t, server, call)
			redistest.Eventually(t, redistest.Patience, "one call succeeds", func(context.Context) error {
				if callers.round(1) < 1 {
					return errors.New("it has no answer")
				}
				return nil
			})
			proxy.Latency(late / 2)
			redistest.Eventually(t, redistest.Patience, "all callers succeed", callers.mostSucceed)
		})
	}
}

// slowCallers make the same call at once, each with a second of time.
type slowCallers struct {
	t      *testing.T
	client redis.UniversalClient
	call   func(context.Context, redis.UniversalClient) error
}

func newSlowCallers(t *testing.T, server *redistest.Server, call func(context.Context, redis.UniversalClient) error) (*faultproxy.Proxy, slowCallers) {
	t.Helper()
	proxy := faultproxy.New(t, server.Addr())
	c, err := NewClient(ClientOptions{URL: fmt.Sprintf("redis://%s/1", proxy.Addr()), ClientName: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // nothing is left to lose
	return proxy, slowCallers{t: t, client: c, call: call}
}

// round returns how many of the calls had an answer in time.
func (s slowCallers) round(calls int) (answered int64) {
	var n atomic.Int64
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
			defer cancel()
			if err := s.call(ctx, s.client); err == nil || isAnswer(err) {
				n.Add(1)
			}
		})
	}
	all.Wait()
	return n.Load()
}

// mostSucceed asks for half of eight calls: on a busy machine the others may lack a processor.
func (s slowCallers) mostSucceed(context.Context) error {
	if n := s.round(8); n < 4 {
		return fmt.Errorf("%d of 8 calls have an answer", n)
	}
	return nil
}
