//go:build unix

package guard

import (
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"

	"github.com/fermata-io/fermata/internal/lib/rawio"
)

// readyConn is a countingConn that takes a buffer only when there is something to read.
// gRPC asks connections whether they can do that, and keeps 32 KiB for each that cannot:
// as much as all else that a worker takes which has nothing to do.
type readyConn struct {
	*countingConn
	raw         syscall.RawConn
	tryReadFunc func(fd uintptr) bool // made once

	// Of the read that goes on; there is one at a time.
	pool mem.BufferPool
	size int
	buf  *[]byte
	n    int
	err  error
}

// readWhenReady makes a readyConn that reads the socket itself, if it is one of the system. w writes to it.
func readWhenReady(w *countingConn, socket net.Conn) net.Conn {
	system, ok := socket.(*net.TCPConn)
	if !ok {
		return w
	}
	raw, err := system.SyscallConn()
	if err != nil {
		return w
	}
	c := &readyConn{countingConn: w, raw: raw}
	c.tryReadFunc = c.tryRead
	return c
}

// tryRead reads what is there; false if that is nothing yet.
func (c *readyConn) tryRead(fd uintptr) bool {
	c.buf = c.pool.Get(c.size)
	c.n, c.err = rawio.Read(fd, *c.buf)
	if c.err != nil || c.n == 0 {
		c.pool.Put(c.buf)
		c.buf, c.n = nil, 0
	}
	return c.err != syscall.EAGAIN
}

// ReadOnReady waits until something can be read and reads it into a buffer of the pool's.
func (c *readyConn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	if err := c.waitBeforeRead(); err != nil {
		return nil, 0, err
	}
	if len(c.rest) > 0 {
		buf := pool.Get(size)
		return buf, c.takeRest(*buf), nil
	}
	c.pool, c.size = pool, size
	err := c.raw.Read(c.tryReadFunc)
	buf, n := c.buf, c.n
	if err == nil {
		err = c.err
	}
	c.pool, c.buf, c.n, c.err = nil, nil, 0, nil
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err == nil {
		err = c.countBytes(n)
	}
	if err != nil {
		if buf != nil {
			pool.Put(buf)
		}
		return nil, 0, err
	}
	return buf, c.admitRead((*buf)[:n]), nil
}
