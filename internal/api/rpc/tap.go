package rpc

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	"github.com/fermata-io/fermata/internal/core/authz"
)

// tap bounds what callers may open before they are known, and what is open to everybody,
// when the headers of a call have come and before it costs any memory. It must not wait:
// gRPC holds a lock of the connection meanwhile.
func (g *gate) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	conn := connectionOf(ctx)
	if conn == nil {
		return ctx, nil // enter refuses it
	}
	if g.authority == nil && conn.proof.Load() == nil {
		// Nobody is asked who it is: whoever calls is known as well as can be.
		conn.proved(anybody)
	}
	d, known := demands[info.FullMethodName]
	missing := g.authority != nil && !d.open && len(info.Header.Get("authorization")) == 0 && conn.certificate() == nil
	if conn.known() && !missing && !d.open {
		return ctx, nil
	}
	c := &caller{gate: g, method: info.FullMethodName}
	if !known {
		c.method = "unknown"
	}
	proved := conn.known() || c.proveAtOnce(ctx, conn)
	switch {
	case d.open:
		return c.tapOpen(ctx, conn, info)
	case missing && proved:
		if limitedInTime(ctx) {
			return shortened(ctx), nil // enter says what is missing
		}
		return ctx, c.withoutCredential(ctx)
	case missing && !lasting(ctx):
		conn.unproved.refuse(conn)
		return ctx, c.withoutCredential(ctx)
	case proved:
		return ctx, nil
	}
	return c.tapUnproved(ctx, conn, info)
}

// lasting calls have a deadline that is far. gRPC keeps the deadline of a call that is
// refused by its headers until it has passed, beyond the end of the connection; that of an
// accepted call ends with the call.
func lasting(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return limited && time.Until(deadline) > refusalLife
}

func limitedInTime(ctx context.Context) bool {
	_, limited := ctx.Deadline()
	return limited
}

// shortened ends a call that is accepted in order to be refused, so that it does not wait
// for a request that never comes.
func shortened(ctx context.Context) context.Context {
	ended, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(refusedCall, cancel)
	context.AfterFunc(ctx, func() { timer.Stop() })
	return ended
}

// tapUnproved finds a place for a call of a connection that is not proved yet, or refuses it.
func (c *caller) tapUnproved(ctx context.Context, conn *connection, info *tap.Info) (context.Context, error) {
	limit := "headers"
	if headerBytes(info.Header) <= unprovedHeaders {
		limit = "streams"
		if bounded, ok := conn.unproved.openStream(ctx, conn, min(firstMessage, conn.unproved.age)); ok {
			return bounded, nil
		}
	}
	return c.refuseUnproved(ctx, conn, limit)
}

func (c *caller) refuseUnproved(ctx context.Context, conn *connection, limit string) (context.Context, error) {
	refusal := c.exhausted(ctx, limit, time.Second)
	if lasting(ctx) {
		conn.unproved.end(conn, errRefused)
		return ctx, nil
	}
	conn.unproved.refuse(conn)
	return ctx, refusal
}

// tapOpen finds a place for a call of a method that is open to everybody, or refuses it.
// Such calls need no credential, so that neither a credential nor its end bounds them: each
// connection has a few, whoever it is of, and they count as calls of its identity.
func (c *caller) tapOpen(ctx context.Context, conn *connection, info *tap.Info) (context.Context, error) {
	limit := "headers"
	if headerBytes(info.Header) <= unprovedHeaders {
		var end func()
		if end, limit = conn.beginOpen(); limit == "" {
			// A watch of health of an unproved connection has no other end than its time.
			if bounded, ok := conn.unproved.openStream(ctx, conn, conn.unproved.age); ok {
				context.AfterFunc(ctx, end)
				return bounded, nil
			}
			end()
			limit = "streams"
		}
	}
	switch {
	case !conn.known():
		return c.refuseUnproved(ctx, conn, limit)
	case limitedInTime(ctx):
		return context.WithValue(shortened(ctx), refusalKey{}, c.exhausted(ctx, limit, time.Second)), nil
	}
	return ctx, c.exhausted(ctx, limit, time.Second)
}

// refusalKey is for the error that a call is refused with which was let in by its headers.
type refusalKey struct{}

// proveAtOnce proves a connection by its credential where that can be checked without
// asking anybody, and reports whether the connection is known then. All others are left to [gate.enter], which may wait and says what is
// wrong with them.
func (c *caller) proveAtOnce(ctx context.Context, conn *connection) bool {
	token, err := bearer(ctx)
	if err != nil || token == "" && conn.certificate() == nil {
		return false
	}
	now, generation := time.Now(), c.gate.authority.Generation()
	if p := conn.proof.Load(); p.fits(token, generation, now) {
		return conn.known()
	}
	id, err := c.identify(overContext, conn, token)
	if err != nil {
		return false
	}
	p := c.gate.newProof(id, token, generation, now)
	if !conn.belongs(p.quota) {
		return false
	}
	conn.proved(p)
	return conn.known()
}

// overContext is for questions to an authority that are not worth waiting for.
var overContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// headerBytes are those of a call beside its credential, counted as HTTP/2 counts them.
func headerBytes(headers metadata.MD) int {
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

// anybody is the proof of who is not asked for one.
var anybody = &proof{granted: true}

// closed counts and tells of a connection that was closed before its caller was known.
func (g *gate) closed(host string, why error) {
	reason := "unproved"
	switch {
	case errors.Is(why, errIdle):
		reason = "idle"
	case errors.Is(why, errCrowded):
		reason = "crowded"
	case errors.Is(why, errRefused):
		reason = "refused"
	}
	g.denied.WithLabelValues("none", reason).Inc()
	if g.loud.Allow() {
		g.logger.Warn("connection closed", "peer", host, "error", why)
	}
}

// watched are credentials whose connections are bounded until they are proved.
func (g *gate) watched(secure credentials.TransportCredentials, o Options) watchedCredentials {
	if secure == nil {
		secure = insecure.NewCredentials()
	}
	return watchedCredentials{secure, newUnproved(o.MaxUnproved, o.UnprovedAge, g.closed)}
}

// count shows how many connections are unproved.
func (g *gate) count(u *unproved, r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	return r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_connections_unproved", Help: "Connections of clients and workers of which no caller is known yet.",
	}, u.connections))
}

// PeerCredentials are options for the server that other nodes connect to: its
// connections are bounded, as those of clients are, until they call. Of the options
// only MaxUnproved, UnprovedAge, Registerer and Logger count.
func PeerCredentials(secure credentials.TransportCredentials, o Options) ([]grpc.ServerOption, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Authority, o.Limits = nil, authz.Limits{}
	g, err := newGate(o)
	if err != nil {
		return nil, err
	}
	return []grpc.ServerOption{
		grpc.Creds(g.watched(secure, o)), grpc.InTapHandle(g.tap), uncompressed,
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaderBytes),
	}, nil
}
