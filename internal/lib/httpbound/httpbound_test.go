package httpbound

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/lib/memorybudget"
)

const patience = 20 * time.Second

// served is a bounded server on loopback.
type served struct {
	t        *testing.T
	address  string
	listener *listener
	memory   *memorybudget.Budget
	unread   atomic.Int32 // requests of /unread
}

func serve(t *testing.T, o Options, secure *tls.Config) *served {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	into := &served{t: t, address: l.Addr().String()}
	s := &http.Server{TLSConfig: secure, ReadHeaderTimeout: patience, MaxHeaderBytes: 16 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/unread":
				into.unread.Add(1)
				return
			case "/abort":
				panic(http.ErrAbortHandler)
			case "/panic":
				panic("this fails")
			}
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, "hello")
		})}
	bounded := Bound(s, l, o)
	done := make(chan error, 1)
	go func() {
		if secure != nil {
			done <- s.ServeTLS(bounded, "", "")
			return
		}
		done <- s.Serve(bounded)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	into.listener = bounded.(*listener)
	into.memory = into.listener.o.memory
	return into
}

func wide() Options { return Options{Connections: 100, ConnectionsOfHost: 100, HeaderMemory: 1 << 20} }

// dial connects from an address of loopback.
func (s *served) dial(from string) net.Conn {
	s.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(s.t.Context(), "tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// answerTo sends a request and returns the status of the answer.
func answerTo(t *testing.T, c net.Conn, headers string) int {
	t.Helper()
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: h\r\n%s\r\n", headers); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// isClosed waits until the other side closes a connection; false: it does not within a time.
func isClosed(c net.Conn, within time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(within))
	_, err := io.Copy(io.Discard, c)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

func TestHeaderLinesAreBounded(t *testing.T) {
	s := serve(t, wide(), nil)
	c := s.dial("127.0.0.1")
	if code := answerTo(t, c, strings.Repeat("a:\r\n", maxHeaderLines-1)); code != http.StatusOK {
		t.Errorf("few lines: %d", code)
	}
	if code := answerTo(t, c, strings.Repeat("a:\r\n", maxHeaderLines+1)); code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("many lines: %d", code)
	}
	if !isClosed(c, patience) {
		t.Error("the connection stays open after many lines")
	}
}

// TestHeadersTakeMemory checks that headers without an end take memory of the budget, that a connection without memory
// is closed, and that other hosts have some left.
func TestHeadersTakeMemory(t *testing.T) {
	s := serve(t, wide(), nil)
	begin := func(from string, n int) net.Conn {
		c := s.dial(from)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n"+strings.Repeat("ab:\r\n", n/5))
		return c
	}
	var closed net.Conn
	for range 10 { // 10 KiB each, and 24 KiB are all that one host may have
		c := begin("127.0.0.1", freeHeaderBytes+10<<10)
		if isClosed(c, 200*time.Millisecond) {
			closed = c
		}
	}
	if closed == nil {
		t.Error("ten long headers find memory")
	}
	if used, most := s.memory.InUse(), s.memory.Largest(); used == 0 || used > most {
		t.Errorf("%d bytes are taken, at most %d may be", used, most)
	}
	if code := answerTo(t, s.dial("127.0.0.1"), strings.Repeat("ab:\r\n", 50)); code != http.StatusOK {
		t.Errorf("short headers of the same host: %d", code)
	}
	if code := answerTo(t, s.dial("127.0.0.2"), "x: "+strings.Repeat("x", freeHeaderBytes+8<<10)+"\r\n"); code != http.StatusOK {
		t.Errorf("long headers of another host: %d", code)
	}
}

// TestMemoryIsGivenBack for each request of a connection, and that bodies take none.
func TestMemoryIsGivenBack(t *testing.T) {
	server := httptest.NewUnstartedServer(nil) // for its certificate
	server.StartTLS()
	defer server.Close()
	for name, secure := range map[string]*tls.Config{"plain": nil, "TLS": {Certificates: server.TLS.Certificates}} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, wide(), secure)
			c := s.dial("127.0.0.1")
			if secure != nil {
				c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) // only its bytes matter
			}
			long := "x: " + strings.Repeat("x", freeHeaderBytes+8<<10) + "\r\n"
			for i := range 10 {
				if code := answerTo(t, c, long); code != http.StatusOK {
					t.Fatalf("request %d: %d", i, code)
				}
			}
			body := strings.Repeat("x", 1<<20)
			_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || answer.StatusCode != http.StatusOK {
				t.Errorf("a long body: %v, %v", answer, err)
			}
			if used := s.memory.InUse(); used != 0 {
				t.Errorf("%d bytes are still taken", used)
			}
		})
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	o := wide()
	o.Connections, o.ConnectionsOfHost = 3, 2
	o.Trusted = func(address string) bool { return strings.HasPrefix(address, "127.0.0.9:") }
	s := serve(t, o, nil)
	open := func(from string, want bool) net.Conn {
		t.Helper()
		c := s.dial(from)
		if !want {
			if !isClosed(c, patience) {
				t.Errorf("a connection of %s is open", from)
			}
			return nil
		}
		if code := answerTo(t, c, ""); code != http.StatusOK {
			t.Errorf("a connection of %s: %d", from, code)
		}
		return c
	}
	first, second := open("127.0.0.1", true), open("127.0.0.1", true)
	open("127.0.0.1", false)
	last := open("127.0.0.2", true)
	open("127.0.0.3", true) // in the place of an idle one of the host with most
	for began := time.Now(); !isClosed(first, time.Millisecond) && !isClosed(second, time.Millisecond); {
		if time.Since(began) > patience {
			t.Fatal("the connections of the host with most are open")
		}
	}
	open("127.0.0.4", false) // all have one, for a short time
	_ = last.Close()
	for began := time.Now(); s.listener.openConnections() == o.Connections && time.Since(began) < patience; {
		runtime.Gosched()
	}
	open("127.0.0.9", true)
}

// TestFewHostsLeavePlacesToOthers: connections of few hosts, which wait for a request or send one slowly, do not keep
// another host out. Those with a request in progress keep their places.
func TestFewHostsLeavePlacesToOthers(t *testing.T) {
	o := wide()
	o.Connections, o.ConnectionsOfHost = 16, 4
	s := serve(t, o, nil)
	ask := func(c net.Conn, text string) {
		t.Helper()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	busy := s.dial("127.0.0.1")
	ask(busy, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nbegin")
	for began := time.Now(); !s.listener.isAnyBusy() && time.Since(began) < patience; {
		runtime.Gosched()
	}
	for i, from := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"} {
		for k := range 4 {
			switch c := net.Conn(nil); {
			case i == 0 && k == 0: // it is busy
			case k < 2:
				c = s.dial(from)
				if code := answerTo(t, c, ""); code != http.StatusOK {
					t.Fatal(code)
				}
			default:
				ask(s.dial(from), "GET / HTTP/1.1\r\n") // the rest does not come
			}
		}
	}
	for range 3 {
		if code := answerTo(t, s.dial("127.0.0.5"), ""); code != http.StatusOK {
			t.Errorf("a fifth host: %d", code)
		}
	}
	if isClosed(busy, patience/20) {
		t.Error("a connection with a request in progress was closed")
	}
}

func (l *listener) isAnyBusy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.hosts {
		for c := range h.open {
			if c.waiting.Load() == 0 {
				return true
			}
		}
	}
	return false
}

func (l *listener) openConnections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// TestHTTP2IsBounded checks that connections beyond the bound agree on HTTP/1.1, and that places are given back.
func TestHTTP2IsBounded(t *testing.T) {
	server := httptest.NewUnstartedServer(nil) // for its certificate
	server.StartTLS()
	defer server.Close()
	for name, config := range map[string]*tls.Config{
		"fixed": {Certificates: server.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}},
		"chosen": {GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return &tls.Config{Certificates: server.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := wide()
			o.HTTP2Connections = 8
			s := serve(t, o, config)
			open := func(from, want string) net.Conn {
				t.Helper()
				c := tls.Client(s.dial(from), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}) // only the protocol matters
				if err := c.HandshakeContext(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := c.ConnectionState().NegotiatedProtocol; got != want {
					t.Errorf("a connection of %s agrees on %q, want %q", from, got, want)
				}
				return c
			}
			first := open("127.0.0.1", "h2")
			open("127.0.0.1", "h2")
			open("127.0.0.1", "http/1.1")
			for i := range 6 {
				open(fmt.Sprintf("127.0.0.%d", 2+i), "h2")
			}
			open("127.0.0.9", "http/1.1") // as many as may be of all
			before := s.listener.openConnections()
			_ = first.Close()
			for began := time.Now(); s.listener.openConnections() == before && time.Since(began) < patience; {
				runtime.Gosched()
			}
			open("127.0.0.9", "h2")
		})
	}
}
