package guard

import (
	"errors"
	"net"
)

const (
	// maxHandshakeBytes bounds the bytes that a client sends in a TLS handshake. Usual clients send less than 8 KiB: a
	// ClientHello and a chain of certificates. crypto/tls accepts 256 KiB of certificates, even if it has not asked for any.
	maxHandshakeBytes = 32 << 10
	// memoryPerHandshakeByte is the memory for each byte of a handshake: TLS keeps a message and its decoded form.
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
