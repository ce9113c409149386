package httpbound

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fakeListener accepts what is queued.
type fakeListener struct {
	queued []net.Conn
	fault  error // nil: none
}

func (l *fakeListener) Accept() (net.Conn, error) {
	if l.fault != nil {
		return nil, l.fault
	}
	if len(l.queued) == 0 {
		return nil, net.ErrClosed
	}
	c := l.queued[0]
	l.queued = l.queued[1:]
	return c, nil
}

func (l *fakeListener) Close() error   { return nil }
func (l *fakeListener) Addr() net.Addr { return &net.TCPAddr{} }

// fakeConn is a connection from an address.
type fakeConn struct {
	net.Conn
	from     net.Addr
	isClosed atomic.Bool
}

func (c *fakeConn) RemoteAddr() net.Addr { return c.from }

func (c *fakeConn) Close() error {
	c.isClosed.Store(true)
	return nil
}

// bounded is a server whose connections are made by the test.
type bounded struct {
	t        *testing.T
	server   *http.Server
	fake     *fakeListener
	listener net.Listener
}

func bound(t *testing.T, o Options, handler http.HandlerFunc) *bounded {
	b := &bounded{t: t, server: &http.Server{Handler: handler, MaxHeaderBytes: 16 << 10}, fake: &fakeListener{}}
	b.listener = Bound(b.server, b.fake, o)
	return b
}

// connect opens a connection from an address; nil: it was refused.
func (b *bounded) connect(from string) *conn {
	b.t.Helper()
	fake := &fakeConn{from: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))}
	b.fake.queued = append(b.fake.queued, fake)
	c, err := b.listener.Accept()
	if err != nil {
		if !fake.isClosed.Load() {
			b.t.Error("a refused connection is open")
		}
		return nil
	}
	return c.(*conn)
}

// serve calls the handler for a request of a connection; false: it was not called to its end.
func (b *bounded) serve(c *conn) (called bool) {
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panic(p)
		}
	}()
	r := httptest.NewRequest("GET", "/", nil)
	b.server.Handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(b.server.ConnContext(r.Context(), c)))
	return true
}

func isClosedNow(c *conn) bool { return c.Conn.(*fakeConn).isClosed.Load() }

// TestEvictedConnectionsServeNothing: a request whose headers have arrived when its connection makes room is not
// served, because nobody would learn of it.
func TestEvictedConnectionsServeNothing(t *testing.T) {
	served := 0
	b := bound(t, Options{Connections: 2, ConnectionsOfHost: 2, HeaderMemory: 1 << 20},
		func(http.ResponseWriter, *http.Request) { served++ })
	first := b.connect("192.0.2.1:1")
	b.connect("192.0.2.1:2")
	if !b.serve(first) || served != 1 {
		t.Fatal("a request of an open connection is not served")
	}
	first.waiting.Store(1)
	if b.connect("192.0.2.2:1") == nil || !isClosedNow(first) {
		t.Fatal("the connection made no room")
	}
	if b.serve(first) || served != 1 {
		t.Error("a request of a closed connection is served")
	}
}

// TestHandlersKeepTheirConnections, also several of one connection, and only while they run.
func TestHandlersKeepTheirConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inHandler func()
		b := bound(t, Options{Connections: 2, ConnectionsOfHost: 2, HeaderMemory: 1 << 20},
			func(http.ResponseWriter, *http.Request) {
				if call := inHandler; call != nil {
					inHandler = nil
					call()
				}
			})
		c, other := b.connect("192.0.2.1:1"), b.connect("192.0.2.1:2")
		other.waiting.Store(0)
		inHandler = func() {
			b.serve(c) // another stream, which ends before
			b.server.ConnState(c, http.StateIdle)
			if b.connect("192.0.2.2:1") != nil {
				t.Error("a connection whose handler runs made room")
			}
		}
		b.serve(c)
		b.server.ConnState(c, http.StateIdle) // a stream that the client resets ends before its handler runs
		b.serve(c)
		if b.connect("192.0.2.2:1") == nil {
			t.Error("a connection without a handler made no room")
		}
		if isClosedNow(c) {
			t.Error("the connection was closed before the response was sent")
		}
		time.Sleep(flushTime)
		synctest.Wait()
		if !isClosedNow(c) {
			t.Error("the connection stays open")
		}
	})
}

// TestClosedConnectionsTakeNoPlaceOfHTTP2: a handshake that goes on when its connection is closed takes no place.
func TestClosedConnectionsTakeNoPlaceOfHTTP2(t *testing.T) {
	b := bound(t, Options{Connections: 2, ConnectionsOfHost: 2, HTTP2Connections: 4, HeaderMemory: 1 << 20}, nil)
	ours := b.listener.(*listener)
	for range 4 {
		_ = b.connect("192.0.2.1:1").Close()
	}
	evicted := b.connect("192.0.2.1:1")
	b.connect("192.0.2.1:2")
	evicted.waiting.Store(1)
	next := b.connect("192.0.2.2:1")
	if ours.takeHTTP2(evicted) {
		t.Error("a closed connection takes a place of HTTP/2")
	}
	_ = evicted.Close()
	if !ours.takeHTTP2(next) {
		t.Error("an open connection finds no place of HTTP/2")
	}
	_ = next.Close()
	if last := b.connect("192.0.2.1:3"); !ours.takeHTTP2(last) {
		t.Error("a closed connection keeps a place of HTTP/2")
	}
}

// TestTrustedAddresses: an address of IPv6 is trusted by itself, not by its network. Its connections have no bound but
// the total, and its new ones replace those of others.
func TestTrustedAddresses(t *testing.T) {
	proxy := netip.MustParseAddr("2001:db8::9")
	b := bound(t, Options{Connections: 6, ConnectionsOfHost: 2, HeaderMemory: 1 << 20,
		Trusted: func(address string) bool {
			a, err := netip.ParseAddrPort(address)
			return err == nil && a.Addr() == proxy
		}}, nil)
	for range 3 {
		if b.connect("[2001:db8::9]:1") == nil {
			t.Fatal("a trusted address has the bound of others")
		}
	}
	first, second := b.connect("[2001:db8::1]:1"), b.connect("[2001:db8::2]:1")
	if first == nil || second == nil {
		t.Fatal("connections of a proxy count for its network")
	}
	if b.connect("[2001:db8::3]:1") != nil {
		t.Error("a network has more than its part")
	}
	b.connect("192.0.2.1:1")
	first.waiting.Store(1)
	if b.connect("[2001:db8::9]:1") == nil || !isClosedNow(first) {
		t.Error("a trusted address finds no place beside idle connections of others")
	}
}

// TestFullHostReplacesItsOldest: connections that wait for long do not keep others of the same address out.
func TestFullHostReplacesItsOldest(t *testing.T) {
	b := bound(t, Options{Connections: 4, ConnectionsOfHost: 2, HeaderMemory: 1 << 20}, nil)
	first, second := b.connect("192.0.2.1:1"), b.connect("192.0.2.1:2")
	if b.connect("192.0.2.1:3") != nil {
		t.Error("a new connection replaced another new one of its host")
	}
	second.waiting.Add(-int64(equalTurn))
	if b.connect("192.0.2.1:4") == nil || !isClosedNow(second) || isClosedNow(first) {
		t.Error("a connection that waited for long kept another one of its host out")
	}
}

// TestFilesAreGivenBack: a connection makes room if the process may open no more files.
func TestFilesAreGivenBack(t *testing.T) {
	log := &logText{}
	b := bound(t, Options{Connections: 8, ConnectionsOfHost: 4, HeaderMemory: 1 << 20, Logger: log.logger()}, nil)
	few, first, second := b.connect("192.0.2.1:1"), b.connect("192.0.2.2:1"), b.connect("192.0.2.2:2")
	first.waiting.Store(2)
	b.fake.fault = &net.OpError{Op: "accept", Err: os.NewSyscallError("accept", syscall.EMFILE)}
	_, err := b.listener.Accept()
	if !errors.Is(err, syscall.EMFILE) || !strings.Contains(log.String(), "failed to accept") {
		t.Errorf("%v; log: %s", err, log)
	}
	if !isClosedNow(first) || isClosedNow(second) || isClosedNow(few) {
		t.Error("the connection of the host with most that has waited for the longest is open, or another one closed")
	}
}

// TestUnreadBodiesKeepNoPlaces: after a handler has returned, net/http waits for the rest of the body. Meanwhile the
// connection can make room.
func TestUnreadBodiesKeepNoPlaces(t *testing.T) {
	o := wide()
	o.Connections, o.ConnectionsOfHost = 4, 4
	s := serve(t, o, nil)
	for range 4 {
		c := s.dial("127.0.0.1")
		if _, err := io.WriteString(c, "POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	for began := time.Now(); s.unread.Load() < 4 || s.listener.isAnyBusy(); runtime.Gosched() {
		if time.Since(began) > patience {
			t.Fatal("connections whose handlers have returned count as busy")
		}
	}
	if code := answerTo(t, s.dial("127.0.0.2"), ""); code != http.StatusOK {
		t.Errorf("another host: %d", code)
	}
}
