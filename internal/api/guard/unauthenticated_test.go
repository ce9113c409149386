package guard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// openStreams opens streams of a connection until it has no place for one more.
func (l *testConns) openStreams(c *connection, life time.Duration) (streams []context.Context) {
	for {
		ctx, ok := l.admitStream(context.Background(), c, life)
		if !ok {
			return streams
		}
		streams = append(streams, ctx)
	}
}

// TestUnauthenticatedStreams: each connection has a few, all have a bound together, and whoever
// has most of them makes room.
func TestUnauthenticatedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestConns(1000, time.Hour)
		var all []context.Context
		var first *connection
		for i := range MaxUnauthenticatedStreamsTotal / MaxUnauthenticatedStreams {
			c, err := l.connect(fmt.Sprint("10.0.0.", i%2)) // of two addresses
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = c
			}
			streams := l.openStreams(c, time.Minute)
			if len(streams) != MaxUnauthenticatedStreams {
				t.Fatalf("a connection has %d streams, want %d", len(streams), MaxUnauthenticatedStreams)
			}
			all = append(all, streams...)
		}
		honest, err := l.connect("10.0.9.9")
		if err != nil {
			t.Fatal(err)
		}
		mine := l.openStreams(honest, time.Minute)
		if len(mine) != MaxUnauthenticatedStreams || l.streams.count != MaxUnauthenticatedStreamsTotal {
			t.Fatalf("%d streams of somebody else, %d of all", len(mine), l.streams.count)
		}
		ended := 0
		for _, ctx := range all {
			if ctx.Err() != nil {
				ended++
			}
		}
		if ended != MaxUnauthenticatedStreams || mine[0].Err() != nil {
			t.Errorf("%d streams were ended for %d others", ended, MaxUnauthenticatedStreams)
		}

		// A stream that is over gives its place back, and so does a proof.
		over, end := context.WithCancel(context.Background())
		fresh, _ := l.connect("10.0.9.10")
		if _, ok := l.admitStream(over, fresh, time.Minute); !ok || len(fresh.streams) != 1 {
			t.Fatal("a stream finds no place")
		}
		end()
		synctest.Wait()
		if len(fresh.streams) != 0 {
			t.Error("a stream that is over has a place")
		}
		honest.markAuthenticated(&proof{hasRole: true})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if mine[0].Err() != nil {
			t.Error("a stream ended although its connection was proved")
		}
		for i, ctx := range all {
			if ctx.Err() == nil {
				t.Fatalf("stream %d of a stranger lives for ever", i)
			}
		}
		if l.streams.count != 0 || len(l.streams.hosts) != 0 || len(first.streams) != 0 {
			t.Errorf("%d places are taken in the end", l.streams.count)
		}
	})
}

// pipeTo is the server's side of a connection, which notes that it was closed.
type pipeTo struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (p *pipeTo) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

// testConns is an unauthenticated with connections that are not there.
type testConns struct{ *unauthenticatedConns }

func newTestConns(most int, age time.Duration) *testConns {
	return &testConns{newUnauthenticatedConns(most, age, func(string, error) {})}
}

func (l *testConns) connect(host string) (*connection, error) {
	c := &connection{host: host, unauthenticated: l.unauthenticatedConns}
	return c, l.admit(c, &pipeTo{closed: make(chan struct{})})
}

func isClosed(c *connection) bool {
	select {
	case <-c.rawConn.(*pipeTo).closed:
		return true
	default:
		return false
	}
}

// TestUnauthenticatedBytes: all connections together have a bound too, beyond which those go
// that have sent most, and what ends or is proved gives its share back.
func TestUnauthenticatedBytes(t *testing.T) {
	l := newTestConns(1000, time.Hour)
	var all []*connection
	for i := range maxUnauthenticatedBytesTotal / MaxUnauthenticatedBytes {
		c, err := l.connect(fmt.Sprint("10.0.0.", i))
		if err != nil || !l.countBytes(c, MaxUnauthenticatedBytes) {
			t.Fatal(i, err)
		}
		all = append(all, c)
	}
	all[0].markAuthenticated(&proof{hasRole: true})
	all[0].markAuthenticated(&proof{hasRole: true})
	all[1].releasePlaces()
	if want := (len(all) - 2) * MaxUnauthenticatedBytes; l.usedBytes != want {
		t.Errorf("%d bytes are in use, want %d", l.usedBytes, want)
	}
	const part = MaxUnauthenticatedBytes / 2
	var honest []*connection
	for i := range (maxUnauthenticatedBytesTotal-l.usedBytes)/part + 1 { // the last one finds no room
		c, err := l.connect(fmt.Sprint("10.0.1.", i))
		if err != nil || !l.countBytes(c, part) {
			t.Fatalf("an honest request is refused while others hold on to theirs: %d, %v", i, err)
		}
		honest = append(honest, c)
	}
	gone := 0
	for _, c := range all[2:] {
		if isClosed(c) {
			gone++
		}
	}
	if gone == 0 || gone > 4 || slices.ContainsFunc(honest, isClosed) {
		t.Errorf("%d of those that had sent most were closed, want an eighth of all", gone)
	}
	if l.countBytes(honest[0], 1+part) || l.usedBytes > maxUnauthenticatedBytesTotal {
		t.Error("one connection has more than its share")
	}
}

// TestUnauthenticatedPlaces: an address that holds on to all the places it gets leaves room
// for others, and who comes from a crowd has its turn.
func TestUnauthenticatedPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 40
		l := newTestConns(most, time.Minute)
		var first []*connection
		for i := range most / 4 {
			c, err := l.connect("10.0.0.1")
			if err != nil {
				t.Fatal(i, err)
			}
			first = append(first, c)
		}
		if _, err := l.connect("10.0.0.1"); !errors.Is(err, errTooManyConnections) {
			t.Fatalf("beyond a quarter at once: %v", err)
		}
		time.Sleep(time.Minute / handshakeShare)
		if _, err := l.connect("10.0.0.1"); err != nil || !isClosed(first[0]) || isClosed(first[1]) {
			t.Fatalf("after their turn the oldest makes room: %v", err)
		}
		for i := range 3 {
			for k := range most / 4 {
				if _, err := l.connect(fmt.Sprint("10.0.0.", 2+i)); err != nil {
					t.Fatal(i, k, err)
				}
			}
		}
		honest, err := l.connect("10.0.9.9")
		if err != nil || l.count != most {
			t.Fatalf("an address that has none, with all places taken: %v, %d", err, l.count)
		}
		// Networks of 64 bits are one host, however many addresses they have.
		many := newTestConns(most, time.Minute)
		for i := range most {
			_, err := many.connect(fmt.Sprintf("2001:db8::%x", i))
			if refused := errors.Is(err, errTooManyConnections); refused != (i >= most/4) {
				t.Fatalf("address %d of a network: %v", i, err)
			}
		}
		// Who is proved takes no place; who is not, none for long.
		honest.markAuthenticated(&proof{hasRole: true})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if l.count != 0 || l.usedBytes != 0 || len(l.hosts) != 0 || many.count != 0 || isClosed(honest) {
			t.Errorf("%d places are taken in the end, and who was proved was closed: %t", l.count, isClosed(honest))
		}
	})
}

// TestUnauthenticatedShare: a process of little memory keeps less of what strangers send.
func TestUnauthenticatedShare(t *testing.T) {
	for memory, want := range map[int64]int{math.MaxInt64: maxUnauthenticatedBytesTotal, 4 << 30: maxUnauthenticatedBytesTotal, 1 << 30: 128 << 20, 100 << 20: MaxUnauthenticatedBytes} {
		if got := unauthenticatedMemory(memory); got != want {
			t.Errorf("%d: %d, want %d", memory, got, want)
		}
	}
}
