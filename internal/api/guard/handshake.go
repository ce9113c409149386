package guard

import (
	"errors"
	"net"
)

const (
	// maxHandshakeBytes bounds what a client sends in a TLS handshake. That is up to 8 KiB: a ClientHello, and a chain of
	// certificates. crypto/tls takes certificates of 256 KiB from clients that it has asked for none.
	maxHandshakeBytes = 32 << 10
	// memoryPerHandshakeByte is what a byte of a handshake takes: TLS keeps a message as it came, and what it has made of it.
	memoryPerHandshakeByte = 2
)

var errLongHandshake = errors.New("the TLS handshake is too long")

// handshakeConn counts the bytes of a TLS handshake as those of an unauthenticated connection.
type handshakeConn struct {
	net.Conn
	connection *connection
	received   int
	ended      bool // what comes now is counted by countingConn, after decryption
}

func (h *handshakeConn) Read(p []byte) (int, error) {
	if h.ended {
		return h.Conn.Read(p)
	}
	n, err := h.Conn.Read(p)
	h.received += n
	u := h.connection.unauthenticated
	switch {
	case n <= 0:
		return n, err
	case h.received > maxHandshakeBytes:
		u.onClose(h.connection.host, errLongHandshake)
		return 0, errLongHandshake
	case !u.countBytes(h.connection, memoryPerHandshakeByte*n):
		u.onClose(h.connection.host, errTooManyBytes)
		return 0, errTooManyBytes
	}
	return n, err
}
