package conn

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestDeadConnectionsAreNotUsed: the server closed the idle connections. A call that must not be repeated does not meet
// one of them.
func TestDeadConnectionsAreNotUsed(t *testing.T) {
	server := redistest.Start(t)
	dialled := make(chan *net.TCPConn, 8)
	client, err := NewClient(ClientOptions{
		URL: "redis://" + server.Addr(),
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err == nil {
				dialled <- conn.(*net.TCPConn)
			}
			return conn, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := server.Client().ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	waitForEnd(t, <-dialled)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a call after the server closed the idle connection: %v", err)
	}
}

// waitForEnd waits until the end of the connection has arrived, without reading it.
func waitForEnd(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
			return err != syscall.EAGAIN
		})
	}
	_ = conn.SetReadDeadline(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
}
