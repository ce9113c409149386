package guard

import "google.golang.org/grpc/mem"

// tlsConn waits for input with a small buffer. TLS cannot tell whether there is something to read, and gRPC would keep
// 32 KiB for the wait: nearly as much as all else that a silent connection takes.
type tlsConn struct {
	*countingConn
	input [2 << 10]byte
}

// ReadOnReady waits until something can be read, and copies it into a buffer of the pool's.
func (c *tlsConn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	n, err := c.Read(c.input[:min(size, len(c.input))])
	if n == 0 {
		return nil, 0, err
	}
	buf := pool.Get(size)
	return buf, copy(*buf, c.input[:n]), err
}
