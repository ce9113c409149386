package peer

import (
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"

	"context"
	"fmt"
)

// refusingServer is a peer that gives this node no role.
type refusingServer struct {
	fermatav1.UnimplementedPeerServiceServer
	asked atomic.Int64
}

func (r *refusingServer) Link(grpc.BidiStreamingServer[fermatav1.LinkRequest, fermatav1.LinkResponse]) error {
	r.asked.Add(1)
	return status.Error(codes.PermissionDenied, "no rule matches this identity")
}

// A peer that refuses this node is not linked, and is asked once more, but not again and again.
func TestARefusedLinkIsNotUp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &refusingServer{}
	server := grpc.NewServer()
	fermatav1.RegisterPeerServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	a := start(t, "a", "127.0.0.1:0", nil)
	began := time.Now()
	a.peer.SetView(sharding.NewView(1, "a", append(members(a), sharding.Member{Name: "b", PeerAddr: listener.Addr().String()})))
	redistest.Eventually(t, redistest.Patience, "three tries", func(context.Context) error {
		if n := r.asked.Load(); n < 3 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	if passed := time.Since(began); passed < retryMax/2 {
		t.Errorf("three tries in %v", passed)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.heard, "back b") {
		t.Error("the link counts as up")
	}
}
