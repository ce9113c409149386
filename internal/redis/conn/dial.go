package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/fermata-io/fermata/internal/lib/rawio"
)

// keepAlive detects a server that vanished within a minute, as the client library's own dialer does.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// timeLimitedDialer opens connections within DialTimeout. The library's own limit includes the handshake.
func (o ClientOptions) timeLimitedDialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := o.Dialer
	if dial == nil {
		dial = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	}
	timeout := orDefault(o.DialTimeout, DefaultDialTimeout)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return rawio.Wrap(conn), nil
	}
}

// tlsDialer opens connections with TLS. The library's own dialer never changes its configuration, and
// ignores the deadline of the call.
func (o ClientOptions) tlsDialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := o.timeLimitedDialer()
	config := o.TLS
	if config == nil {
		config = func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
	}
	timeout := orDefault(o.DialTimeout, DefaultDialTimeout)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := config()
		if c.ServerName == "" {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				_ = conn.Close()
				return nil, err
			}
			c = c.Clone() // it may be shared
			c.ServerName = host
		}
		secured := tls.Client(conn, c)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			// Nothing was sent that Redis could have acted on.
			return nil, &net.OpError{Op: "dial", Net: network, Addr: conn.RemoteAddr(), Err: err}
		}
		return alertConn{secured}, nil
	}
}

// alertConn reports why Redis closed the connection. With TLS 1.3 a client's handshake ends before Redis
// has checked its certificate, so that the first command fails. If Redis has already closed the
// connection, the write of that command only reports a reset. The alert with the reason arrived before
// the reset, and can still be read.
type alertConn struct{ *tls.Conn }

func (c alertConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		var alert *net.OpError
		// Read does not wait: after a reset it returns what has arrived, then an error.
		if _, why := c.Conn.Read(make([]byte, 1)); errors.As(why, &alert) && alert.Op == "remote error" {
			err = alert
		}
	}
	return n, err
}
