package rpc

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestConnectionsThatCallNothing are closed, of clients and of peers, with a credential
// that is not accepted as well as without; who has called is not, and who only asks for
// health has longer.
func TestConnectionsThatCallNothing(t *testing.T) {
	const age = time.Second // within which a slow machine makes a call
	counted := prometheus.NewRegistry()
	f := serveFlooded(t, Options{Registerer: counted, UnauthenticatedAge: age}, &floodJobs{}, nil)
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
# HELP fermata_connections_unauthenticated Connections of clients and workers that have not authenticated yet.
# TYPE fermata_connections_unauthenticated gauge
fermata_connections_unauthenticated 0
`), "fermata_connections_unauthenticated"); err != nil {
		t.Error(err)
	}

	open := serveFlooded(t, Options{Limits: authz.Limits{MaxOpenCalls: 100}, UnauthenticatedAge: age}, &floodJobs{}, nil)
	mute, calls := open.rude(t, window), open.rude(t, window)
	if code := calls.call(t, "", fermatav1.ClusterService_ListNodes_FullMethodName, nil); code != codes.OK {
		t.Fatal(code)
	}
	redistest.Eventually(t, patience, "without an authority too", mute.holds(func() bool { return mute.closed }))
	if code := calls.call(t, "", fermatav1.ClusterService_ListNodes_FullMethodName, nil); code != codes.OK {
		t.Errorf("who has called: %s", code)
	}

	few := serveFlooded(t, Options{Limits: authz.Limits{Connections: 1}, UnauthenticatedAge: age}, &floodJobs{}, nil)
	first, second := few.rude(t, window), few.rude(t, window)
	if code := first.call(t, "", fermatav1.ClusterService_ListNodes_FullMethodName, nil); code != codes.OK {
		t.Fatal(code)
	}
	if code := second.call(t, "", fermatav1.ClusterService_ListNodes_FullMethodName, nil); code != codes.ResourceExhausted {
		t.Errorf("a connection beyond those of its host: %s", code)
	}
	redistest.Eventually(t, patience, "a connection that its host may not have is closed", second.holds(func() bool { return second.closed }))
	if code := first.call(t, "", fermatav1.ClusterService_ListNodes_FullMethodName, nil); code != codes.OK {
		t.Errorf("the connection that the host may have: %s", code)
	}

	options, err := guard.PeerServerOptions(nil, nil, guard.Options{UnauthenticatedAge: age})
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
	f := serveFlooded(t, Options{MaxUnauthenticated: most}, &floodJobs{}, nil)
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
