package gateway

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// credentialKey identifies a credential without keeping it: the hash of its token.
type credentialKey [sha256.Size]byte

// credentials holds a connection for each credential that is in use, and verifies new ones.
type credentials struct {
	options Options

	mu         sync.Mutex
	byKey      map[credentialKey]*credential
	verifying  int
	byAddress  map[string]int // of those, by remote address
	closed     bool
	stopSweeps chan struct{}
	sweepsDone chan struct{}
}

// credential is one token with its connection. Its fields are guarded by credentials.mu, except conn and verified,
// which do not change after verification.
type credential struct {
	key      credentialKey
	conn     Connection
	verified chan struct{} // closed after the verification
	err      error         // why the verification failed
	users    int           // requests and event streams that hold it
	calls    int
	watches  int
	dropped  bool // closed when the last user leaves
	usedAt   time.Time
	// address is the remote address that the verification counts for, until the caller is known to have a role.
	address   string
	holdsSlot bool
}

func newCredentials(o Options) *credentials {
	c := &credentials{
		options: o, byKey: map[credentialKey]*credential{}, byAddress: map[string]int{},
		stopSweeps: make(chan struct{}), sweepsDone: make(chan struct{}),
	}
	go c.sweep()
	return c
}

// acquire returns the verified connection of a token. The caller releases it. Errors are gRPC statuses.
func (c *credentials) acquire(ctx context.Context, token, address string) (*credential, error) {
	if token == "" && c.options.RequireToken {
		return nil, status.Error(codes.Unauthenticated, "the request has no token: send Authorization: Bearer TOKEN")
	}
	key := credentialKey(sha256.Sum256([]byte(token)))
	cred, isNew, err := c.find(key, address)
	if err != nil {
		return nil, err
	}
	if isNew {
		// Others may wait for the same verification: it does not end with the request that began it.
		c.verify(context.WithoutCancel(ctx), cred, token)
	}
	select {
	case <-cred.verified:
	case <-ctx.Done():
		c.release(cred)
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if cred.err != nil {
		c.release(cred)
		return nil, cred.err
	}
	return cred, nil
}

// find returns the entry of a key, and whether the caller has to verify it.
func (c *credentials) find(key credentialKey, address string) (cred *credential, isNew bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, unavailable("this gateway stops")
	}
	if cred := c.byKey[key]; cred != nil {
		cred.users++
		return cred, false, nil
	}
	if c.verifying >= maxVerifications || c.byAddress[address] >= maxVerifications/4 {
		return nil, false, exhausted("too many credentials are being verified")
	}
	if len(c.byKey) >= c.options.MaxConnections && !c.evictIdle() {
		return nil, false, unavailable("too many callers are connected")
	}
	cred = &credential{key: key, verified: make(chan struct{}), users: 1, address: address, holdsSlot: true}
	c.byKey[key] = cred
	c.verifying++
	c.byAddress[address]++
	return cred, true, nil
}

// verify asks a node who the caller is. It is one call for each credential in use, not for each request. A caller
// without a role is not kept: nodes bound its connection as those of strangers.
func (c *credentials) verify(ctx context.Context, cred *credential, token string) {
	conn, hasRole, err := c.connect(ctx, token)
	c.mu.Lock()
	defer c.mu.Unlock()
	cred.conn, cred.err = conn, err
	if hasRole {
		c.freeSlot(cred)
	} else {
		c.drop(cred)
	}
	close(cred.verified)
}

// connect dials, and calls WhoAmI.
func (c *credentials) connect(ctx context.Context, token string) (conn Connection, hasRole bool, err error) {
	conn, err = c.options.Dial(token)
	if err != nil {
		c.options.Logger.Warn("failed to connect to the nodes", "error", err)
		return nil, false, unavailable("this gateway cannot send the credential to the nodes")
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	caller, err := fermatav1.NewAccessServiceClient(conn).WhoAmI(ctx, &fermatav1.WhoAmIRequest{})
	open := caller.GetAuthentication() == fermatav1.WhoAmIResponse_AUTHENTICATION_NONE
	return conn, err == nil && (open || len(caller.GetGrants()) > 0), err
}

// freeSlot ends what a credential counts for among those that are being verified.
func (c *credentials) freeSlot(cred *credential) {
	if !cred.holdsSlot {
		return
	}
	cred.holdsSlot = false
	c.verifying--
	c.byAddress[cred.address]--
	if c.byAddress[cred.address] == 0 {
		delete(c.byAddress, cred.address)
	}
}

// retain adds a use of a credential that is in use.
func (c *credentials) retain(cred *credential) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cred.users++
}

// release ends a use of a credential.
func (c *credentials) release(cred *credential) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cred.users--
	cred.usedAt = time.Now()
	c.closeIfUnused(cred)
}

// reject forgets a credential that a node has rejected: the next request is verified again.
func (c *credentials) reject(cred *credential) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(cred)
}

// drop removes a credential; its connection ends with its last user.
func (c *credentials) drop(cred *credential) {
	if cred.dropped {
		return
	}
	cred.dropped = true
	delete(c.byKey, cred.key)
	c.closeIfUnused(cred)
}

func (c *credentials) closeIfUnused(cred *credential) {
	if !cred.dropped || cred.users > 0 {
		return
	}
	c.freeSlot(cred)
	if cred.conn != nil {
		_ = cred.conn.Close()
		cred.conn = nil
	}
}

// beginCall counts a call of a credential, or returns RESOURCE_EXHAUSTED.
func (c *credentials) beginCall(cred *credential) (end func(), err error) {
	return c.count(&cred.calls, c.options.MaxCalls, "too many requests of this caller at once")
}

// beginWatch counts an event stream of a credential, or returns RESOURCE_EXHAUSTED.
func (c *credentials) beginWatch(cred *credential) (end func(), err error) {
	return c.count(&cred.watches, c.options.MaxWatches, "too many event streams of this caller at once")
}

func (c *credentials) count(n *int, limit int, text string) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *n >= limit {
		return nil, exhausted(text)
	}
	*n++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		*n--
	}, nil
}

// evictIdle removes the credential that has been unused for longest; false if all are in use.
func (c *credentials) evictIdle() bool {
	var oldest *credential
	for _, cred := range c.byKey {
		if cred.users == 0 && (oldest == nil || cred.usedAt.Before(oldest.usedAt)) {
			oldest = cred
		}
	}
	if oldest == nil {
		return false
	}
	c.drop(oldest)
	return true
}

// sweep closes unused connections, until close.
func (c *credentials) sweep() {
	defer close(c.sweepsDone)
	tick := time.NewTicker(idleTimeout / 4)
	defer tick.Stop()
	for {
		select {
		case <-c.stopSweeps:
			return
		case now := <-tick.C:
			c.dropIdle(now)
		}
	}
}

func (c *credentials) dropIdle(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cred := range c.byKey {
		if cred.users == 0 && now.Sub(cred.usedAt) >= idleTimeout {
			c.drop(cred)
		}
	}
}

// close drops all credentials. It may be called twice.
func (c *credentials) close() {
	c.mu.Lock()
	wasClosed := c.closed
	c.closed = true
	for _, cred := range c.byKey {
		c.drop(cred)
	}
	c.mu.Unlock()
	if !wasClosed {
		close(c.stopSweeps)
	}
	<-c.sweepsDone
}

// connected is the number of credentials with a connection.
func (c *credentials) connected() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return float64(len(c.byKey))
}
