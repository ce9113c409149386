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

	// verifications are the places of credentials that are being verified, withoutRole those of requests by callers
	// without a role.
	verifications, withoutRole *places
	refuse                     func(reason string)

	mu         sync.Mutex
	byKey      map[credentialKey]*credential
	identities map[string]*identityUse
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
	hasRole  bool          // set before verified is closed
	identity *identityUse  // set before verified is closed
	users    int           // requests and event streams that hold it
	dropped  bool          // closed when the last user leaves
	usedAt   time.Time
}

// identityUse is what one identity uses, with all its credentials: whoever gets new tokens again and again has no more
// than others.
type identityUse struct {
	name           string // "" where nodes do not authenticate callers: then each credential counts by itself
	share          string // in the budget of memory; does not change
	credentials    int
	calls, watches int
}

func newCredentials(o Options) *credentials {
	c := &credentials{
		options: o, byKey: map[credentialKey]*credential{}, identities: map[string]*identityUse{},
		verifications: newPlaces(maxVerifications), withoutRole: newPlaces(maxWithoutRole), refuse: func(string) {},
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
	cred, err := c.findOrVerify(ctx, credentialKey(sha256.Sum256([]byte(token))), token, address)
	if err != nil {
		return nil, err
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

// findOrVerify returns the entry of a key. A new one takes a place of those that are being verified until a node has
// answered who the caller is.
func (c *credentials) findOrVerify(ctx context.Context, key credentialKey, token, address string) (*credential, error) {
	if cred := c.find(key); cred != nil {
		return cred, nil
	}
	release, ok := c.verifications.take(ctx, address)
	if !ok {
		c.refuse("verification")
		return nil, exhausted("too many credentials are being verified")
	}
	defer release()
	cred, isNew, err := c.findOrAdd(key)
	if isNew {
		// Others may wait for the same verification: it does not end with the request that began it.
		c.verify(context.WithoutCancel(ctx), cred, token)
	}
	return cred, err
}

// find returns the entry of a key, nil if there is none.
func (c *credentials) find(key credentialKey) *credential {
	c.mu.Lock()
	defer c.mu.Unlock()
	cred := c.byKey[key]
	if cred != nil {
		cred.users++
	}
	return cred
}

// findOrAdd returns the entry of a key, and whether the caller has to verify it.
func (c *credentials) findOrAdd(key credentialKey) (cred *credential, isNew bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, unavailable("this gateway stops")
	}
	if cred := c.byKey[key]; cred != nil {
		cred.users++
		return cred, false, nil
	}
	if len(c.byKey) >= c.options.MaxConnections && !c.evictIdle() {
		c.refuse("callers")
		return nil, false, unavailable("too many callers are connected")
	}
	cred = &credential{key: key, verified: make(chan struct{}), users: 1}
	c.byKey[key] = cred
	return cred, true, nil
}

// verify asks a node who the caller is. It is one call for each credential in use, not for each request. A caller
// without a role is not kept: nodes bound its connection as those of strangers.
func (c *credentials) verify(ctx context.Context, cred *credential, token string) {
	conn, identity, hasRole, err := c.connect(ctx, token)
	c.mu.Lock()
	defer c.mu.Unlock()
	cred.conn, cred.hasRole, cred.err = conn, hasRole, err
	cred.identity = c.joinIdentity(identity, cred.key)
	if !hasRole {
		c.drop(cred)
	}
	close(cred.verified)
}

// joinIdentity adds a credential to those of an identity.
func (c *credentials) joinIdentity(name string, key credentialKey) *identityUse {
	i := c.identities[name]
	if i == nil || name == "" {
		i = &identityUse{name: name, share: "identity " + name}
	}
	if name == "" {
		i.share = "credential " + string(key[:])
	}
	if name != "" {
		c.identities[name] = i
	}
	i.credentials++
	return i
}

// leaveIdentity removes a credential from those of its identity.
func (c *credentials) leaveIdentity(cred *credential) {
	i := cred.identity
	i.credentials--
	if i.credentials == 0 && i.name != "" {
		delete(c.identities, i.name)
	}
}

// connect dials, and calls WhoAmI.
func (c *credentials) connect(ctx context.Context, token string) (conn Connection, identity string, hasRole bool,
	err error) {
	conn, err = c.options.Dial(token)
	if err != nil {
		c.options.Logger.Warn("failed to connect to the nodes", "error", err)
		return nil, "", false, unavailable("this gateway cannot send the credential to the nodes")
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	caller, err := fermatav1.NewAccessServiceClient(conn).WhoAmI(ctx, &fermatav1.WhoAmIRequest{})
	if err == nil && c.options.RequireToken && !isAuthenticatedByToken(caller) {
		c.options.Logger.Error("request refused: nodes do not check tokens, and this gateway presents its certificate",
			"fix", "give the nodes an access file")
		return conn, "", false, status.Error(codes.Unauthenticated,
			"the nodes do not check tokens: they need an access file for calls over HTTP")
	}
	if caller.GetAuthentication() == fermatav1.WhoAmIResponse_AUTHENTICATION_NONE {
		return conn, "", err == nil, err
	}
	return conn, caller.GetIdentity(), err == nil && len(caller.GetGrants()) > 0, err
}

// isAuthenticatedByToken reports whether a node has verified the caller's token. Otherwise the call has the rights of
// whoever made the connection.
func isAuthenticatedByToken(caller *fermatav1.WhoAmIResponse) bool {
	switch caller.GetAuthentication() {
	case fermatav1.WhoAmIResponse_AUTHENTICATION_TOKEN, fermatav1.WhoAmIResponse_AUTHENTICATION_JWT:
		return true
	}
	return false
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
	if cred.identity != nil {
		c.leaveIdentity(cred)
		cred.identity = nil
	}
	if cred.conn != nil {
		_ = cred.conn.Close()
		cred.conn = nil
	}
}

// beginCall counts a call of an identity, or returns RESOURCE_EXHAUSTED. Calls of callers without a role are few in
// all.
func (c *credentials) beginCall(ctx context.Context, cred *credential, address string) (end func(), err error) {
	if !cred.hasRole {
		end, ok := c.withoutRole.take(ctx, address)
		if !ok {
			c.refuse("without_role")
			return nil, exhausted("too many requests of callers without a role")
		}
		return end, nil
	}
	return c.count(&cred.identity.calls, c.options.MaxCalls, "calls", "too many requests of this caller at once")
}

// beginWatch counts an event stream of an identity, or returns RESOURCE_EXHAUSTED.
func (c *credentials) beginWatch(cred *credential) (end func(), err error) {
	return c.count(&cred.identity.watches, c.options.MaxWatches, "event_streams",
		"too many event streams of this caller at once")
}

func (c *credentials) count(n *int, limit int, reason, text string) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *n >= limit {
		c.refuse(reason)
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
