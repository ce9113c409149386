//go:build linux && (amd64 || arm64) && !race

package rawio_test

import (
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/fermata-io/fermata/internal/lib/rawio"
)

// A client that looks at an idle connection makes its own call only if there is something to see.
func TestIdleConnectionsAreChecked(t *testing.T) {
	near, far := connect(t, rawio.Wrap)
	conn := near.(*rawio.Conn)
	look := func() (looked bool) {
		t.Helper()
		if err := conn.IdleCheck().Read(func(uintptr) bool { looked = true; return true }); err != nil {
			t.Error(err)
		}
		return looked
	}
	if look() {
		t.Error("something was seen on a quiet connection")
	}
	_, _ = far.Write([]byte("x"))
	b := make([]byte, 1)
	if _, err := io.ReadFull(near, b); err != nil || look() {
		t.Errorf("read %v; something was seen after it", err)
	}
	_, _ = far.Write([]byte("y"))
	waitForInput(t, conn)
	if !look() {
		t.Error("input was not seen")
	}
	if _, err := io.ReadFull(near, b); err != nil || b[0] != 'y' {
		t.Errorf("read %q, %v: the check took the input", b, err)
	}
	_ = far.Close()
	waitForInput(t, conn)
	if !look() {
		t.Error("the end was not seen")
	}
	_ = near.Close()
	if err := conn.IdleCheck().Read(func(uintptr) bool { return true }); err == nil {
		t.Error("a closed connection was checked")
	}
}

// waitForInput waits until something is there to be read.
func waitForInput(t *testing.T, conn *rawio.Conn) {
	t.Helper()
	raw, err := conn.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return err != syscall.EAGAIN
	})
	if err != nil {
		t.Fatal(err)
	}
}

// go-redis and gRPC read a connection that offers SyscallConn by calls of their own.
func TestSyscallConnIsNotOffered(t *testing.T) {
	near, _ := connect(t, rawio.Wrap)
	if _, ok := near.(syscall.Conn); ok {
		t.Error("the connection offers SyscallConn")
	}
	if _, ok := near.(*rawio.Conn); !ok {
		t.Errorf("got a %T", near)
	}
}

func TestTransfersDoNotAllocate(t *testing.T) {
	near, accepted := connect(t, rawio.Wrap)
	far := rawio.Wrap(accepted)
	b := make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() {
		_, _ = near.Write(b)
		_, _ = far.Read(b)
	}); n > 0 {
		t.Errorf("%v allocations for a write and a read", n)
	}
}
