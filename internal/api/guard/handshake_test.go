package guard

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
)

// TestHandshakesAreBounded checks that the bytes of a TLS handshake count as those of an unauthenticated connection, and
// that a handshake beyond the bound fails. TLS itself accepts messages of 64 KiB, and certificates of 256 KiB.
func TestHandshakesAreBounded(t *testing.T) {
	server := httptest.NewUnstartedServer(nil) // for its certificate
	server.StartTLS()
	defer server.Close()
	var closed []error
	u := newUnauthenticatedConns(100, time.Hour, func(_ string, why error) { closed = append(closed, why) })
	w := countingCredentials{
		credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: server.TLS.Certificates, NextProtos: []string{"h2"}}), u,
		newUnreadBudget(processMemory()), newStrangersBudget(processMemory()), newOpenBudget(processMemory()),
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	handshake := func(client func(net.Conn)) (net.Conn, error) {
		t.Helper()
		ours, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ours.Close() })
		go client(ours)
		theirs, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { theirs.Close() })
		conn, _, err := w.ServerHandshake(theirs)
		return conn, err
	}

	honest := func(c net.Conn) {
		secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) // only its bytes matter
		_, _ = secure.Write([]byte("hello"))
	}
	conn, err := handshake(honest)
	if err != nil {
		t.Fatal(err)
	}
	u.mu.Lock()
	used := u.usedBytes
	u.mu.Unlock()
	if used < 200 || used > maxHandshakeBytes {
		t.Errorf("a handshake counts as %d bytes", used)
	}
	if n, err := conn.Read(make([]byte, 5)); n != 5 || err != nil {
		t.Errorf("the first bytes after the handshake: %d, %v", n, err)
	}
	_ = conn.Close()

	endless := func(c net.Conn) { // a ClientHello that says that it has 65,000 bytes
		_, _ = c.Write([]byte("\x16\x03\x01\x10\x00\x01\x00\xfd\xe8" + strings.Repeat("x", 4092)))
		for range 15 {
			_, _ = c.Write([]byte("\x16\x03\x01\x10\x00" + strings.Repeat("x", 4096)))
		}
	}
	if _, err := handshake(endless); !errors.Is(err, errLongHandshake) {
		t.Errorf("a long handshake: %v", err)
	}
	if len(closed) != 1 || !errors.Is(closed[0], errLongHandshake) || u.usedBytes != 0 {
		t.Errorf("closed for %v, %d bytes are left", closed, u.usedBytes)
	}
}

// TestSilentTLSConnectionsHaveNoBuffer checks that a connection over TLS takes a buffer of gRPC's pool only when there
// is something in it, and that a long message is read in parts.
func TestSilentTLSConnectionsHaveNoBuffer(t *testing.T) {
	server := httptest.NewUnstartedServer(nil) // for its certificate
	server.StartTLS()
	defer server.Close()
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: server.TLS.Certificates, NextProtos: []string{"h2"},
	}
	w := countingCredentials{
		credentials.NewTLS(config), newUnauthenticatedConns(100, time.Hour, func(string, error) {}),
		newUnreadBudget(processMemory()), newStrangersBudget(processMemory()), newOpenBudget(processMemory()),
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	const size = 5000
	sent := []byte(strings.Repeat("0123456789", size/10))
	pool := &countingPool{}
	go func() {
		secure := tls.Client(ours, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) // only its bytes matter
		if err := secure.Handshake(); err != nil {
			return
		}
		pool.beforeInput.Store(pool.given.Load())
		_, _ = secure.Write(sent)
	}()
	conn, _, err := w.ServerHandshake(theirs)
	if err != nil {
		t.Fatal(err)
	}
	ready, ok := conn.(interface {
		ReadOnReady(int, mem.BufferPool) (*[]byte, int, error)
	})
	if !ok {
		t.Fatalf("gRPC keeps a buffer for a %T", conn)
	}
	var got []byte
	for len(got) < size {
		buf, n, err := ready.ReadOnReady(32<<10, pool)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, (*buf)[:n]...)
	}
	if n := pool.beforeInput.Load(); n != 0 || string(got) != string(sent) {
		t.Errorf("%d buffers while it was silent, %d bytes read", n, len(got))
	}
	_ = ours.Close()
	before := pool.given.Load()
	if buf, n, err := ready.ReadOnReady(32<<10, pool); buf != nil || n != 0 || err == nil || pool.given.Load() != before {
		t.Errorf("at the end: %d bytes, %v", n, err)
	}
}

// countingPool counts the buffers that it has given.
type countingPool struct{ given, beforeInput atomic.Int64 }

func (p *countingPool) Get(size int) *[]byte {
	p.given.Add(1)
	b := make([]byte, size)
	return &b
}

func (*countingPool) Put(*[]byte) {}
