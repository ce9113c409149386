package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// pipeTo is the server's side of a connection, which notes that it was closed.
type pipeTo struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (p *pipeTo) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

// lobby is an unproved with connections that are not there.
type lobby struct{ *unproved }

func newLobby(most int, age time.Duration) *lobby {
	return &lobby{newUnproved(most, age, func(string, error) {})}
}

func (l *lobby) arrive(host string) (*connection, error) {
	c := &connection{host: host, unproved: l.unproved}
	return c, l.enter(c, &pipeTo{closed: make(chan struct{})})
}

func shutDown(c *connection) bool {
	select {
	case <-c.raw.(*pipeTo).closed:
		return true
	default:
		return false
	}
}

// TestUnprovedBytes: all connections together have a bound too, beyond which those go
// that have sent most, and what ends or is proved gives its share back.
func TestUnprovedBytes(t *testing.T) {
	l := newLobby(1000, time.Hour)
	var all []*connection
	for i := range allUnprovedBytes / unprovedBytes {
		c, err := l.arrive(fmt.Sprint("10.0.0.", i))
		if err != nil || !l.take(c, unprovedBytes) {
			t.Fatal(i, err)
		}
		all = append(all, c)
	}
	all[0].proved(&proof{granted: true})
	all[0].proved(&proof{granted: true})
	all[1].close()
	if want := (len(all) - 2) * unprovedBytes; l.used != want {
		t.Errorf("%d bytes are in use, want %d", l.used, want)
	}
	const part = unprovedBytes / 2
	var honest []*connection
	for i := range (allUnprovedBytes-l.used)/part + 1 { // the last one finds no room
		c, err := l.arrive(fmt.Sprint("10.0.1.", i))
		if err != nil || !l.take(c, part) {
			t.Fatalf("an honest request is refused while others hold on to theirs: %d, %v", i, err)
		}
		honest = append(honest, c)
	}
	gone := 0
	for _, c := range all[2:] {
		if shutDown(c) {
			gone++
		}
	}
	if gone == 0 || gone > 4 || slices.ContainsFunc(honest, shutDown) {
		t.Errorf("%d of those that had sent most were closed, want an eighth of all", gone)
	}
	if l.take(honest[0], 1+part) || l.used > allUnprovedBytes {
		t.Error("one connection has more than its share")
	}
}

// TestUnprovedPlaces: an address that holds on to all the places it gets leaves room
// for others, and who comes from a crowd has its turn.
func TestUnprovedPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 40
		l := newLobby(most, time.Minute)
		var first []*connection
		for i := range most / 4 {
			c, err := l.arrive("10.0.0.1")
			if err != nil {
				t.Fatal(i, err)
			}
			first = append(first, c)
		}
		if _, err := l.arrive("10.0.0.1"); !errors.Is(err, errCrowded) {
			t.Fatalf("beyond a quarter at once: %v", err)
		}
		time.Sleep(time.Minute / unprovedTurn)
		if _, err := l.arrive("10.0.0.1"); err != nil || !shutDown(first[0]) || shutDown(first[1]) {
			t.Fatalf("after their turn the oldest makes room: %v", err)
		}
		for i := range 3 {
			for k := range most / 4 {
				if _, err := l.arrive(fmt.Sprint("10.0.0.", 2+i)); err != nil {
					t.Fatal(i, k, err)
				}
			}
		}
		honest, err := l.arrive("10.0.9.9")
		if err != nil || l.count != most {
			t.Fatalf("an address that has none, with all places taken: %v, %d", err, l.count)
		}
		// Networks of 64 bits are one host, however many addresses they have.
		many := newLobby(most, time.Minute)
		for i := range most {
			_, err := many.arrive(fmt.Sprintf("2001:db8::%x", i))
			if refused := errors.Is(err, errCrowded); refused != (i >= most/4) {
				t.Fatalf("address %d of a network: %v", i, err)
			}
		}
		// Who is proved takes no place; who is not, none for long.
		honest.proved(&proof{granted: true})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if l.count != 0 || l.used != 0 || len(l.hosts) != 0 || many.count != 0 || shutDown(honest) {
			t.Errorf("%d places are taken in the end, and who was proved was closed: %t", l.count, shutDown(honest))
		}
	})
}

// TestConnectionsThatCallNothing are closed, of clients and of peers, with a credential
// that is not accepted as well as without; who has called is not, and who only asks for
// health has longer.
func TestConnectionsThatCallNothing(t *testing.T) {
	const age = time.Second // within which a slow machine makes a call
	counted := prometheus.NewRegistry()
	f := serveFlooded(t, Options{Registerer: counted, UnprovedAge: age}, &floodJobs{}, nil)
	stop := f.others(t)
	var silent []*rude
	for range 20 {
		silent = append(silent, f.rude(t, window))
	}
	stranger := f.rude(t, window)
	if code := stranger.call(t, "bad", fermatav1.ClusterService_ListNodes_FullMethodName, nil); code != codes.Unauthenticated {
		t.Fatal(code)
	}
	known, healthy := f.rude(t, window), f.rude(t, window)
	if code := known.call(t, "flood", fermatav1.ClusterService_ListNodes_FullMethodName, nil); code != codes.OK {
		t.Fatal(code)
	}
	if code := healthy.call(t, "", grpc_health_v1.Health_Check_FullMethodName, nil); code != codes.OK {
		t.Fatal(code)
	}
	for _, w := range append(silent, stranger) {
		redistest.Eventually(t, patience, "a connection that calls nothing is closed", w.holds(func() bool { return w.closed }))
	}
	if code := healthy.call(t, "", grpc_health_v1.Health_Check_FullMethodName, nil); code != codes.OK {
		t.Errorf("health, later: %s", code)
	}
	redistest.Eventually(t, patience, "health alone does not keep it", healthy.holds(func() bool { return healthy.closed }))
	if code := known.call(t, "flood", fermatav1.ClusterService_ListNodes_FullMethodName, nil); code != codes.OK {
		t.Errorf("who was known, later: %s", code)
	}
	stop()
	if err := testutil.GatherAndCompare(counted, strings.NewReader(`
# HELP fermata_connections_unproved Connections of clients and workers of which no caller is known yet.
# TYPE fermata_connections_unproved gauge
fermata_connections_unproved 0
`), "fermata_connections_unproved"); err != nil {
		t.Error(err)
	}

	open := serveFlooded(t, Options{Limits: authz.Limits{Calls: 100}, UnprovedAge: age}, &floodJobs{}, nil)
	mute, calls := open.rude(t, window), open.rude(t, window)
	if code := calls.call(t, "", fermatav1.ClusterService_ListNodes_FullMethodName, nil); code != codes.OK {
		t.Fatal(code)
	}
	redistest.Eventually(t, patience, "without an authority too", mute.holds(func() bool { return mute.closed }))
	if code := calls.call(t, "", fermatav1.ClusterService_ListNodes_FullMethodName, nil); code != codes.OK {
		t.Errorf("who has called: %s", code)
	}

	options, err := PeerCredentials(nil, Options{UnprovedAge: age})
	if err != nil {
		t.Fatal(err)
	}
	peers := grpc.NewServer(options...)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = peers.Serve(listener) }()
	t.Cleanup(peers.Stop)
	nobody := (&flooded{address: listener.Addr().String()}).rude(t, window)
	redistest.Eventually(t, patience, "where peers link too", nobody.holds(func() bool { return nobody.closed }))
}

// TestFloodOfConnections: a host that opens connections as fast as it can and calls
// nothing is held to its part of the places; somebody else connects anew and is served.
func TestFloodOfConnections(t *testing.T) {
	const most = 64
	hosts := 10
	f := serveFlooded(t, Options{MaxUnproved: most}, &floodJobs{}, nil)
	var all []net.Conn
	for range 10 * most {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}).DialContext(t.Context(), "tcp", f.address)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	if runtime.GOOS != "linux" { // where loopback has other addresses
		hosts = 0
	}
	for i := range hosts {
		ctx, cancel := context.WithTimeout(as(t.Context(), "healthy"), patience)
		conn, err := grpc.NewClient("passthrough:///"+f.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i))}}).DialContext(ctx, "tcp", address)
			}))
		if err != nil {
			t.Fatal(err)
		}
		if err := listNodes(ctx, conn); err != nil {
			t.Errorf("somebody else: %v", err)
		}
		_ = conn.Close()
		cancel()
	}
	redistest.Eventually(t, patience, "what is beyond a quarter of the places is closed", func() bool {
		all = slices.DeleteFunc(all, func(conn net.Conn) bool {
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := conn.Read(make([]byte, 1))
			var late net.Error
			over := err != nil && !(errors.As(err, &late) && late.Timeout())
			if over {
				_ = conn.Close()
			}
			return over
		})
		return len(all) <= most/4
	})
	for _, conn := range all {
		_ = conn.Close()
	}
}

// TestUnprovedShare: a process of little memory keeps less of what strangers send.
func TestUnprovedShare(t *testing.T) {
	for memory, want := range map[int64]int{math.MaxInt64: allUnprovedBytes, 4 << 30: allUnprovedBytes, 1 << 30: 128 << 20, 100 << 20: unprovedBytes} {
		if got := unprovedShare(memory); got != want {
			t.Errorf("%d: %d, want %d", memory, got, want)
		}
	}
}
