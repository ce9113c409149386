package guard

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	"github.com/fermata-io/fermata/internal/core/authz"
)

// tapHandle bounds what callers may open before they are known, and what is open to everybody,
// when the headers of a call have come and before it costs any memory. It must not wait:
// gRPC holds a lock of the connection meanwhile.
func (g *Gate) tapHandle(ctx context.Context, info *tap.Info) (context.Context, error) {
	defer dropUnusedHeaders(info.Header)
	conn := connectionFrom(ctx)
	if conn == nil {
		return ctx, nil // admitCall refuses it
	}
	conn.reads.tapped++
	if exceedsHeaders(info.Header) {
		return g.refuseHeaders(ctx, conn, info.FullMethodName)
	}
	if g.authority == nil && conn.proof.Load() == nil && !g.admitAnonymous(conn) {
		c := &Caller{gate: g, method: "unknown"}
		return c.refuseUnauthenticated(ctx, conn, "connections")
	}
	d, known := methodPermissions[info.FullMethodName]
	missing := g.authority != nil && !d.open && len(info.Header.Get("authorization")) == 0 &&
		conn.verifiedCertificate() == nil
	if conn.isAuthenticated() && !missing && !d.open {
		return ctx, nil
	}
	c := &Caller{gate: g, method: info.FullMethodName}
	if !known {
		c.method = "unknown"
	}
	proved := conn.isAuthenticated() || c.authenticateWithoutWaiting(ctx, conn)
	switch {
	case d.open:
		return c.admitOpenCall(ctx, conn)
	case missing && proved:
		if hasDeadline(ctx) {
			return withRefusalTimeout(ctx), nil // admitCall returns the error
		}
		return ctx, c.refuseMissingCredential(ctx)
	case missing && !hasDistantDeadline(ctx):
		conn.unauthenticated.countRefusal(conn)
		return ctx, c.refuseMissingCredential(ctx)
	case proved:
		return ctx, nil
	}
	return c.admitUnauthenticated(ctx, conn)
}

// admitAnonymous has a connection count as authenticated where there is no authority, unless its host has too many.
func (g *Gate) admitAnonymous(conn *connection) bool {
	if g.ChecksCalls() && conn.countFor(g.quotas.quotaFor(conn.hostShare, g.limits), conn.hostShare) != "" {
		return false
	}
	conn.markAuthenticated(anonymousProof)
	return true
}

// hasDistantDeadline calls have a deadline that is far. gRPC keeps the deadline of a call that is
// refused by its headers until it has passed, beyond the end of the connection; that of an
// accepted call ends with the call.
func hasDistantDeadline(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return limited && time.Until(deadline) > maxRefusedDeadline
}

func hasDeadline(ctx context.Context) bool {
	_, limited := ctx.Deadline()
	return limited
}

// withRefusalTimeout ends a call that is accepted in order to be refused, so that it does not wait
// for a request that never comes.
func withRefusalTimeout(ctx context.Context) context.Context {
	ended, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(refusedCallTimeout, cancel)
	context.AfterFunc(ctx, func() { timer.Stop() })
	return ended
}

// admitUnauthenticated finds a place for a call of a connection that is not proved yet, or refuses it.
func (c *Caller) admitUnauthenticated(ctx context.Context, conn *connection) (context.Context, error) {
	life := min(firstMessageTimeout, conn.unauthenticated.maxAge)
	bounded, ok := conn.unauthenticated.admitStream(ctx, conn, life)
	if !ok {
		return c.refuseUnauthenticated(ctx, conn, "streams")
	}
	return bounded, nil
}

func (c *Caller) refuseUnauthenticated(ctx context.Context, conn *connection, limit string) (context.Context, error) {
	refusal := c.refuseOverLimit(ctx, limit, time.Second)
	if hasDistantDeadline(ctx) {
		conn.unauthenticated.closeIfPresent(conn, errTooManyRefusals)
		return ctx, nil
	}
	conn.unauthenticated.countRefusal(conn)
	return ctx, refusal
}

// admitOpenCall finds a place for a call of a method that is open to everybody, or refuses it.
// Such calls need no credential, so that neither a credential nor its end bounds them: each
// connection has a few, whoever it is of, and they count as calls of its identity.
func (c *Caller) admitOpenCall(ctx context.Context, conn *connection) (context.Context, error) {
	end, limit := conn.beginOpenCall()
	if limit == "" {
		// A watch of health of an unauthenticated connection has no other end than its time.
		bounded, ok := conn.unauthenticated.admitStream(ctx, conn, conn.unauthenticated.maxAge)
		if ok {
			context.AfterFunc(ctx, end)
			return bounded, nil
		}
		end()
		limit = "streams"
	}
	switch {
	case !conn.isAuthenticated():
		return c.refuseUnauthenticated(ctx, conn, limit)
	case hasDeadline(ctx):
		return context.WithValue(withRefusalTimeout(ctx), refusalKey{}, c.refuseOverLimit(ctx, limit, time.Second)), nil
	}
	return ctx, c.refuseOverLimit(ctx, limit, time.Second)
}

// refusalKey is for the error that a call is refused with which was let in by its headers.
type refusalKey struct{}

// authenticateWithoutWaiting proves a connection by its credential where that can be checked without asking anybody,
// and reports whether the connection is known then. All others are left to [Gate.admitCall], which may wait and says
// what is wrong with them.
func (c *Caller) authenticateWithoutWaiting(ctx context.Context, conn *connection) bool {
	token, err := bearerToken(ctx)
	if err != nil || token == "" && conn.verifiedCertificate() == nil {
		return false
	}
	now, generation := time.Now(), c.gate.authority.Generation()
	if p := conn.proof.Load(); p.matches(token, generation, now) {
		return conn.isAuthenticated()
	}
	id, err := c.identify(canceledContext, conn, token)
	if err != nil {
		return false
	}
	p := c.gate.newProof(id, token, generation, now)
	if conn.countFor(p.quota, p.memoryOwner()) != "" {
		return false
	}
	conn.markAuthenticated(p)
	return conn.isAuthenticated()
}

// canceledContext is for questions to an authority that are not worth waiting for.
var canceledContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// headerSize are those of a call beside its credential, counted as HTTP/2 counts them.
func headerSize(headers metadata.MD) int {
	const perField = 32
	n := 0
	for name, values := range headers {
		if name == "authorization" {
			continue
		}
		for _, v := range values {
			n += len(name) + len(v) + perField
		}
	}
	return n
}

// anonymousProof is the proof of who is not asked for one.
var anonymousProof = &proof{hasRole: true}

// reportClosed counts and logs a connection that was closed before its caller was authenticated.
func (g *Gate) reportClosed(host string, why error) {
	reason := "unauthenticated"
	switch {
	case errors.Is(why, errNeverAuthenticated):
		reason = "idle"
	case errors.Is(why, errTooManyConnections):
		reason = "crowded"
	case errors.Is(why, errTooManyRefusals), errors.Is(why, errTooManyStrayCalls):
		reason = "refused"
	case errors.Is(why, errUnreadAnswers):
		reason = "unread_bytes"
	}
	g.denied.WithLabelValues("none", reason).Inc()
	if g.logLimiter.Allow() {
		g.logger.Warn("connection closed", "peer", host, "error", why)
	}
}

// countingCredentials are credentials whose connections are bounded until they are proved.
func (g *Gate) countingCredentials(secure credentials.TransportCredentials) countingCredentials {
	if secure == nil {
		secure = insecure.NewCredentials()
	}
	watched := newUnauthenticatedConns(g.options.MaxUnauthenticated, g.options.UnauthenticatedAge, g.reportClosed)
	return countingCredentials{secure, watched, g.unread, g.strangers, g.open}
}

// registerGauge shows how many connections are unauthenticated.
func (g *Gate) registerGauge(u *unauthenticatedConns, r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	return r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_connections_unauthenticated",
		Help: "Connections of clients and workers that have not authenticated yet.",
	}, u.connectionCount))
}

// ChecksCalls reports whether calls have to pass the interceptors of the gate: it has an authority or limits.
func (g *Gate) ChecksCalls() bool { return g.authority != nil || g.limits != (authz.Limits{}) }

// ConnectionOptions are the options of a server whose connections the gate bounds, over the given credentials or, if
// they are nil, in plain text.
func (g *Gate) ConnectionOptions(secure credentials.TransportCredentials,
	r prometheus.Registerer) ([]grpc.ServerOption, error) {
	watched := g.countingCredentials(secure)
	if err := g.registerGauge(watched.unauthenticated, r); err != nil {
		return nil, err
	}
	return []grpc.ServerOption{grpc.Creds(watched), grpc.InTapHandle(g.tapHandle), refuseCompressed}, nil
}
