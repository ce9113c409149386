//go:build linux && (amd64 || arm64) && !race

package rawio

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// maxCallBytes bounds the bytes that one system call moves: the time that the call takes, some tens of
// microseconds.
const maxCallBytes = 64 << 10

// Conn is a TCP connection that is read and written as the package comment says. Its errors are those of
// *net.TCPConn. It does not offer SyscallConn; see [Conn.IdleCheck].
type Conn struct {
	net.Conn
	raw    syscall.RawConn
	reads  transfer
	writes transfer
}

// transfer is the state of one direction. Its mutex orders the callers, as the lock of a descriptor of package
// net does.
type transfer struct {
	mu sync.Mutex
	// call tries the system call; false if it has to wait. It is made once, so that no transfer allocates.
	call  func(fd uintptr) bool
	b     []byte
	n     int
	errno syscall.Errno
}

// Wrap returns a connection for the same socket. One that is not a *net.TCPConn is returned unchanged.
func Wrap(conn net.Conn) net.Conn {
	system, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := system.SyscallConn()
	if err != nil {
		return conn
	}
	c := &Conn{Conn: system, raw: raw}
	c.reads.call, c.writes.call = c.reads.tryRead, c.writes.tryWrite
	return c
}

// Read reads what has arrived, or waits for it.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return c.Conn.Read(b)
	}
	c.reads.mu.Lock()
	defer c.reads.mu.Unlock()
	n, err := c.reads.wait(c.raw.Read, b)
	switch {
	case err != nil:
		return 0, c.operationError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write writes all of b, or returns an error.
func (c *Conn) Write(b []byte) (int, error) {
	c.writes.mu.Lock()
	defer c.writes.mu.Unlock()
	for written := 0; ; {
		n, err := c.writes.wait(c.raw.Write, b[written:])
		written += n
		if err != nil {
			return written, c.operationError("write", err)
		}
		switch {
		case written == len(b):
			return written, nil
		case n == 0:
			return written, c.operationError("write", io.ErrUnexpectedEOF)
		}
	}
}

// IdleCheck is for clients that look whether something has arrived before they use an idle connection. Read of
// the returned RawConn calls its function only if there is something, an end or an error; otherwise it returns
// nil at once.
func (c *Conn) IdleCheck() syscall.RawConn { return idleCheck{c.raw} }

type idleCheck struct{ syscall.RawConn }

func (c idleCheck) Read(f func(fd uintptr) bool) error {
	return c.RawConn.Read(func(fd uintptr) bool { return isQuiet(fd) || f(fd) })
}

// wait makes the call for b, by a method of RawConn that calls it again when the socket is ready.
func (t *transfer) wait(by func(func(fd uintptr) bool) error, b []byte) (int, error) {
	t.b, t.n, t.errno = b[:min(len(b), maxCallBytes)], 0, 0
	err := by(t.call)
	n, errno := t.n, t.errno
	t.b = nil
	switch {
	case err != nil:
		return 0, err // closed or late: the call was not made, or has moved nothing
	case errno != 0:
		return 0, errno
	}
	return n, nil
}

func (t *transfer) tryRead(fd uintptr) bool {
	t.n, t.errno = read(fd, t.b)
	return t.errno != syscall.EAGAIN
}

func (t *transfer) tryWrite(fd uintptr) bool {
	t.n, t.errno = move(syscall.SYS_WRITE, fd, t.b)
	return t.errno != syscall.EAGAIN
}

// operationError is the error that package net returns for the same failure.
func (c *Conn) operationError(operation string, err error) error {
	var raw *net.OpError
	var errno syscall.Errno
	switch {
	case errors.As(err, &raw):
		err = raw.Err
	case errors.As(err, &errno):
		err = os.NewSyscallError(operation, errno)
	}
	local := c.LocalAddr()
	return &net.OpError{Op: operation, Net: local.Network(), Source: local, Addr: c.RemoteAddr(), Err: err}
}

// Read reads once from a descriptor that does not block. A count of 0 without an error is the end.
func Read(fd uintptr, b []byte) (int, error) {
	n, errno := read(fd, b[:min(len(b), maxCallBytes)])
	if errno != 0 {
		return 0, errno
	}
	return n, nil
}

func read(fd uintptr, b []byte) (int, syscall.Errno) { return move(syscall.SYS_READ, fd, b) }

// move makes a system call that reads into or writes from b.
func move(trap, fd uintptr, b []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), 0
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}

// isQuiet reports whether nothing has arrived on an open socket.
func isQuiet(fd uintptr) bool {
	var b [1]byte
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b[0])), 1,
		syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	return errno == syscall.EAGAIN
}
