package guard

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
	"github.com/fermata-io/fermata/internal/lib/memorybudget"
	"github.com/fermata-io/fermata/internal/lib/rawio"
)

// connection is what is known of one connection while it lives. It travels as the
// AuthInfo of the transport, around what the handshake found.
type connection struct {
	credentials.AuthInfo
	host string // remote address without port
	// hostShare names the share of the connection's address, or of its IPv6 network. It is used until the connection has
	// proved an identity with a role.
	hostShare string
	proof     atomic.Pointer[proof]
	// hasRole: an identity that has a role was proved once. Until then the connection is
	// bounded as those of strangers are.
	hasRole         atomic.Bool
	openMethodCalls atomic.Int32 // calls of methods that are open to everybody

	unauthenticated *unauthenticatedConns

	reads  readPacer
	writes writeGate

	// Before the first proof. The first three do not change, the others are guarded by
	// unauthenticated.
	rawConn      net.Conn
	admittedAt   time.Time
	group        string // the addresses that it counts among
	element      *list.Element
	timer        *time.Timer
	extended     bool // it was served what is open to everybody
	sentBytes    int  // bytes
	refusedCalls int  // calls, by their headers
	streams      map[*unauthenticatedStream]struct{}

	mu     sync.Mutex
	quota  *quota // of the identity that called last
	memory connectionMemory
	closed bool
	unread map[unreadAnswers]struct{} // see [Gate.BoundUnread] and queuedMessages

	lateStreams atomic.Int32 // streams that have ended while gRPC has messages of them
	closing     atomic.Bool  // by closeUnread
}

// markAuthenticated keeps a proof. With that of an identity that has a role the connection may send
// what it likes from now on.
func (c *connection) markAuthenticated(p *proof) {
	c.proof.Store(p)
	if p.hasRole && !c.hasRole.Swap(true) {
		c.unauthenticated.release(c)
	}
}

// isAuthenticated reports whether the connection has proved an identity that has a role. It stays
// so: a proxy's connection has calls of many.
func (c *connection) isAuthenticated() bool { return c.hasRole.Load() }

// beginOpenCall counts a call of a method that is open to everybody, for the connection and the
// identity that called last on it, or returns the limit that it exceeds.
func (c *connection) beginOpenCall() (end func(), limit string) {
	if c.openMethodCalls.Add(1) > MaxOpenMethodCalls {
		c.openMethodCalls.Add(-1)
		return nil, "streams"
	}
	c.mu.Lock()
	q := c.quota
	c.mu.Unlock()
	if q != nil && !q.beginUnratedCall() {
		c.openMethodCalls.Add(-1)
		return nil, "calls"
	}
	return func() {
		c.openMethodCalls.Add(-1)
		if q != nil {
			q.endCall()
		}
	}, ""
}

// memoryShare is whose memory the connection takes: that of the identity that it proved first, or proves again.
func (c *connection) memoryShare() string {
	if p := c.proof.Load(); p != nil && p.hasRole && p != anonymousProof {
		return p.identity.Subject
	}
	return c.hostShare
}

// unreadBudget is the budget of [connection.memoryShare] for answers that are not read.
func (c *connection) unreadBudget() *memorybudget.Budget {
	if c.isAuthenticated() {
		return c.reads.budget
	}
	return c.reads.strangers
}

// memoryOwner is whose memory a connection takes that proves this; "" if the identity has no role.
func (p *proof) memoryOwner() string {
	if !p.hasRole {
		return ""
	}
	return p.identity.Subject
}

// proof is an identity that was found, and what for.
type proof struct {
	token      string // empty: by the certificate
	generation uint64
	expires    time.Time
	identity   authz.Identity
	hasRole    bool // it has a role
	quota      *quota
}

// proofLifetime is how long a proof is believed without looking again. It bounds how
// long a key that its issuer has withdrawn is of use.
const proofLifetime = time.Minute

// matches reports whether a proof is valid for this credential.
func (p *proof) matches(token string, generation uint64, now time.Time) bool {
	return p != nil && p.generation == generation && now.Before(p.expires) && equalInConstantTime(p.token, token)
}

// equalInConstantTime compares in a time that depends on the lengths only: connections may be
// shared by several clients behind a proxy.
func equalInConstantTime(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	var differ byte
	for i := range len(a) {
		differ |= a[i] ^ b[i]
	}
	return differ == 0
}

// verifiedCertificate is what TLS has verified of the other side; nil if nothing.
func (c *connection) verifiedCertificate() *x509.Certificate {
	return verifiedCertificateOf(c.AuthInfo)
}

func verifiedCertificateOf(auth credentials.AuthInfo) *x509.Certificate {
	if c, ok := auth.(*connection); ok {
		auth = c.AuthInfo
	}
	info, ok := auth.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}

// connectionFrom finds the connection of a call.
func connectionFrom(ctx context.Context) *connection {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	c, _ := p.AuthInfo.(*connection)
	return c
}

// countingCredentials make a connection of each handshake.
type countingCredentials struct {
	credentials.TransportCredentials
	unauthenticated *unauthenticatedConns
	unread          *memorybudget.Budget
	strangers       *memorybudget.Budget // the same of connections without an identity
	open            *memorybudget.Budget
}

func (w countingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := &connection{
		host: hostWithoutPort(raw.RemoteAddr()), unauthenticated: w.unauthenticated,
		reads: newReadPacer(w.unread, w.strangers), memory: connectionMemory{budget: w.open},
	}
	if err := w.unauthenticated.admit(c, raw); err != nil {
		return nil, nil, err
	}
	plain := rawio.Wrap(raw)
	handshake := &handshakeConn{Conn: plain, connection: c}
	conn, info, err := w.TransportCredentials.ServerHandshake(handshake)
	if err != nil {
		w.unauthenticated.release(c)
		return nil, nil, err
	}
	c.AuthInfo, handshake.ended = info, true
	if conn != handshake {
		return &tlsConn{countingConn: &countingConn{Conn: conn, connection: c}}, c, nil
	}
	return readWhenReady(&countingConn{Conn: plain, connection: c}, raw), c, nil
}

func (w countingCredentials) Clone() credentials.TransportCredentials {
	return countingCredentials{w.TransportCredentials.Clone(), w.unauthenticated, w.unread, w.strangers, w.open}
}

func hostWithoutPort(a net.Addr) string {
	if a == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// countingConn counts what its connection reads and writes, and gives back what the connection was counted for.
type countingConn struct {
	net.Conn
	connection *connection
	// rest are bytes that have been read and counted, and wait because of the calls before them.
	rest []byte
}

func (w *countingConn) Read(p []byte) (int, error) {
	if err := w.waitBeforeRead(); err != nil {
		return 0, err
	}
	if len(w.rest) > 0 {
		return w.takeRest(p), nil
	}
	n, err := w.Conn.Read(p)
	if n == 0 {
		return 0, err
	}
	if err := w.countBytes(n); err != nil {
		return 0, err
	}
	return w.admitRead(p[:n]), err
}

func (w *countingConn) Write(p []byte) (int, error) {
	w.connection.writes.beginWrite()
	defer w.connection.writes.endWrite()
	return w.Conn.Write(p)
}

// waitBeforeRead waits for a client that leaves answers unread. Its error ends the connection.
func (w *countingConn) waitBeforeRead() error {
	err := w.connection.reads.waitBeforeRead(w.connection)
	if err != nil {
		w.connection.unauthenticated.onClose(w.connection.host, err)
	}
	return err
}

// admitRead returns how many bytes of p gRPC is given now, and keeps the others.
func (w *countingConn) admitRead(p []byte) int {
	n := w.connection.reads.admitRead(p)
	if n < len(p) {
		w.rest = append(w.rest, p[n:]...)
	}
	return n
}

// takeRest moves bytes that have waited to p.
func (w *countingConn) takeRest(p []byte) int {
	n := w.connection.reads.admitRead(w.rest[:min(len(p), len(w.rest))])
	copy(p, w.rest[:n])
	w.rest = w.rest[n:]
	if len(w.rest) == 0 {
		w.rest = nil
	}
	return n
}

// countBytes counts what comes before the connection is known.
func (w *countingConn) countBytes(n int) error {
	u := w.connection.unauthenticated
	if !w.connection.isAuthenticated() && !u.countBytes(w.connection, n) && !w.connection.isAuthenticated() {
		u.onClose(w.connection.host, errTooManyBytes)
		return errTooManyBytes
	}
	return nil
}

func (w *countingConn) Close() error {
	w.connection.releasePlaces()
	w.connection.freeUnread()
	return w.Conn.Close()
}

// releasePlaces gives the connection's place back.
func (c *connection) releasePlaces() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.unauthenticated.release(c)
	c.memory.giveBack()
	if c.quota != nil {
		c.quota.removeConnection()
		c.quota = nil
	}
}

// countFor counts the connection for an identity, and takes its memory from the owner's part of the budget, or returns
// the limit that it exceeds.
func (c *connection) countFor(q *quota, owner string) (limit string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ""
	}
	moves := c.quota != q
	if moves && !q.addConnection() {
		return "connections"
	}
	if !c.memory.moveTo(owner) {
		if moves {
			q.removeConnection()
		}
		return openBytes
	}
	if moves {
		if c.quota != nil {
			c.quota.removeConnection()
		}
		c.quota = q
	}
	return ""
}
