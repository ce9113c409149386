package rpc

import (
	"container/list"
	"context"
	"crypto/x509"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/fermata-io/fermata/internal/core/authz"
)

// connection is what is known of one connection while it lives. It travels as the
// AuthInfo of the transport, around what the handshake found.
type connection struct {
	credentials.AuthInfo
	host  string // remote address without port
	proof atomic.Pointer[proof]
	// granted: an identity that has a role was proved once. Until then the connection is
	// bounded as those of strangers are.
	granted atomic.Bool
	open    atomic.Int32 // calls of methods that are open to everybody

	unproved *unproved

	// Before the first proof. The first three do not change, the others are guarded by
	// unproved.
	raw     net.Conn
	entered time.Time
	crowd   string // the addresses that it counts among
	place   *list.Element
	timer   *time.Timer
	greeted bool // it was served what is open to everybody
	sent    int  // bytes
	refused int  // calls, by their headers
	streams map[*unprovedStream]struct{}

	mu     sync.Mutex
	quota  *quota // of the identity that called last
	closed bool
}

// proved keeps a proof. With that of an identity that has a role the connection may send
// what it likes from now on.
func (c *connection) proved(p *proof) {
	c.proof.Store(p)
	if p.granted && !c.granted.Swap(true) {
		c.unproved.leave(c)
	}
}

// known reports whether the connection has proved an identity that has a role. It stays
// so: a proxy's connection has calls of many.
func (c *connection) known() bool { return c.granted.Load() }

// beginOpen counts a call of a method that is open to everybody, for the connection and the
// identity that called last on it, or says which limit it meets.
func (c *connection) beginOpen() (end func(), limit string) {
	if c.open.Add(1) > openCalls {
		c.open.Add(-1)
		return nil, "streams"
	}
	c.mu.Lock()
	q := c.quota
	c.mu.Unlock()
	if q != nil && !q.beginOpen() {
		c.open.Add(-1)
		return nil, "calls"
	}
	return func() {
		c.open.Add(-1)
		if q != nil {
			q.end()
		}
	}, ""
}

// proof is an identity that was found, and what for.
type proof struct {
	token      string // empty: by the certificate
	generation uint64
	until      time.Time
	identity   authz.Identity
	granted    bool // it has a role
	quota      *quota
}

// keptProof is how long a proof is believed without looking again. It bounds how
// long a key that its issuer has withdrawn is of use.
const keptProof = time.Minute

// fits tells whether a proof is still one of this credential.
func (p *proof) fits(token string, generation uint64, now time.Time) bool {
	return p != nil && p.generation == generation && now.Before(p.until) && sameText(p.token, token)
}

// sameText compares in a time that depends on the lengths only: connections may be
// shared by several clients behind a proxy.
func sameText(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	var differ byte
	for i := range len(a) {
		differ |= a[i] ^ b[i]
	}
	return differ == 0
}

// certificate is what TLS has verified of the other side; nil if nothing.
func (c *connection) certificate() *x509.Certificate { return certificateOf(c.AuthInfo) }

func certificateOf(auth credentials.AuthInfo) *x509.Certificate {
	if c, ok := auth.(*connection); ok {
		auth = c.AuthInfo
	}
	info, ok := auth.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}

// connectionOf finds the connection of a call.
func connectionOf(ctx context.Context) *connection {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	c, _ := p.AuthInfo.(*connection)
	return c
}

// watchedCredentials make a connection of each handshake.
type watchedCredentials struct {
	credentials.TransportCredentials
	unproved *unproved
}

func (w watchedCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := &connection{host: hostOf(raw.RemoteAddr()), unproved: w.unproved}
	if err := w.unproved.enter(c, raw); err != nil {
		return nil, nil, err
	}
	conn, info, err := w.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		w.unproved.leave(c)
		return nil, nil, err
	}
	c.AuthInfo = info
	return calm(&watchedConn{Conn: conn, c: c}), c, nil
}

func (w watchedCredentials) Clone() credentials.TransportCredentials {
	return watchedCredentials{w.TransportCredentials.Clone(), w.unproved}
}

func hostOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// watchedConn gives back what its connection was counted for.
type watchedConn struct {
	net.Conn
	c *connection
}

func (w *watchedConn) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		if over := w.count(n); over != nil {
			return 0, over
		}
	}
	return n, err
}

// count counts what comes before the connection is known.
func (w *watchedConn) count(n int) error {
	if !w.c.known() && !w.c.unproved.take(w.c, n) && !w.c.known() {
		w.c.unproved.closed(w.c.host, errUnproved)
		return errUnproved
	}
	return nil
}

func (w *watchedConn) Close() error {
	w.c.close()
	return w.Conn.Close()
}

// close gives the connection's place back.
func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.unproved.leave(c)
	if c.quota != nil {
		c.quota.leave()
		c.quota = nil
	}
}

// belongs counts the connection for an identity; false if that has too many.
func (c *connection) belongs(q *quota) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quota == q || c.closed {
		return true
	}
	if !q.enter() {
		return false
	}
	if c.quota != nil {
		c.quota.leave()
	}
	c.quota = q
	return true
}
