package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// keepAlive finds a server that is gone without a word within a minute, as the client
// library's own dialer does.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// secured opens connections and speaks TLS on them. The library's own dialer knows
// one configuration for ever, and no deadline but its own.
func (o ClientOptions) secured() func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := o.Dialer
	if dial == nil {
		dial = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	}
	config := o.TLS
	if config == nil {
		config = func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
	}
	timeout := or(o.DialTimeout, DefaultDialTimeout)
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
		return secured, nil
	}
}
