package peer

import (
	"context"
	"net"
	"syscall"
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/fermata-io/fermata/internal/core/sharding"
)

// TestLinksHaveAUserTimeout: a peer that acknowledges no data is noticed by the kernel as soon as by pings. gRPC sets
// that on connections of package net only.
func TestLinksHaveAUserTimeout(t *testing.T) {
	dialled := make(chan *net.TCPConn, 8)
	a := startSecured(t, "a", "127.0.0.1:0", nil, insecure.NewCredentials(), func(o *Options) {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err == nil {
				dialled <- conn.(*net.TCPConn)
			}
			return conn, err
		}
	})
	b := start(t, "b", "127.0.0.1:0", nil)
	a.peer.SetView(sharding.NewView(1, "a", members(a, b)))
	a.waitFor("back b")
	raw, err := (<-dialled).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const userTimeout = 18 // TCP_USER_TIMEOUT
	milliseconds, failure := 0, error(nil)
	err = raw.Control(func(fd uintptr) {
		milliseconds, failure = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout)
	})
	if milliseconds != 5000 || err != nil || failure != nil {
		t.Errorf("the timeout is %d ms, %v, %v", milliseconds, err, failure)
	}
}
