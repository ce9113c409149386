//go:build unix

package guard

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// lent is a pool that knows what it has given away.
type lent struct {
	mu    sync.Mutex
	given int
	back  chan struct{} // has a token after something was given back
}

func (l *lent) Get(size int) *[]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.given++
	b := make([]byte, size)
	return &b
}

func (l *lent) Put(*[]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.given--
	select {
	case l.back <- struct{}{}:
	default:
	}
}

func (l *lent) out() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.given
}

// tcpPair is a connection and the other end of it, as the handshake leaves it.
func tcpPair(t *testing.T, u *unauthenticatedConns) (client net.Conn, server *readyConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	raw, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := countingCredentials{
		insecure.NewCredentials(), u, newUnreadBudget(processMemory()), newStrangersBudget(processMemory()),
		newOpenBudget(processMemory()),
	}.ServerHandshake(raw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	server, ok := conn.(*readyConn)
	if !ok {
		t.Fatalf("got a %T", conn)
	}
	return client, server
}

// A connection has a buffer only while there is something in it, and is counted and ends
// as one that is read otherwise.
func TestConnectionsWaitWithoutABuffer(t *testing.T) {
	var ended []error
	u := newUnauthenticatedConns(0, 0, func(_ string, why error) { ended = append(ended, why) })
	client, server := tcpPair(t, u)
	pool := &lent{back: make(chan struct{}, 1)}
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer)
	read := func() {
		b, n, err := server.ReadOnReady(32<<10, pool)
		a := answer{err: err}
		if b != nil {
			a.text = string((*b)[:n])
			pool.Put(b)
		}
		answers <- a
	}
	for _, text := range []string{"one", "two"} {
		go read()
		select {
		case <-pool.back: // it has found nothing
		case <-time.After(redistest.Patience):
			t.Fatal("it does not look whether there is something")
		}
		if n := pool.out(); n != 0 {
			t.Errorf("waits with %d buffers", n)
		}
		if _, err := client.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if a := <-answers; a.text != text || a.err != nil {
			t.Errorf("read %q, %v", a.text, a.err)
		}
		<-pool.back
	}
	if u.usedBytes != len("onetwo") {
		t.Errorf("%d bytes are counted", u.usedBytes)
	}

	server.connection.sentBytes = MaxUnauthenticatedBytes
	if _, err := client.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	go read()
	if a := <-answers; !errors.Is(a.err, errTooManyBytes) || !slices.Equal(ended, []error{errTooManyBytes}) {
		t.Errorf("read %q, %v where no more may come, ended for %v", a.text, a.err, ended)
	}

	_ = client.Close()
	go read()
	if a := <-answers; a.err != io.EOF {
		t.Errorf("read %q, %v at the end", a.text, a.err)
	}
	_ = server.Close()
	go read()
	if a := <-answers; !errors.Is(a.err, net.ErrClosed) {
		t.Errorf("read %q, %v after it was closed", a.text, a.err)
	}
	if n := pool.out(); n != 0 {
		t.Errorf("%d buffers are not given back", n)
	}
}
