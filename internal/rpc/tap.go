package rpc

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/tap"

	"github.com/fermata-io/fermata/internal/access"
)

// tap refuses calls without any credential when their headers have come: what would
// follow is not read. It must not wait; whether a credential is good is for [gate.enter]
// to say.
func (g *gate) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if g.authority == nil {
		// Nobody is asked who it is: whoever calls is known as well as can be.
		if conn := connectionOf(ctx); conn != nil && conn.proof.Load() == nil {
			conn.proved(anybody)
		}
		return ctx, nil
	}
	if demands[info.FullMethodName].open || len(info.Header.Get("authorization")) > 0 {
		return ctx, nil
	}
	if conn := connectionOf(ctx); conn != nil && conn.certificate() != nil {
		return ctx, nil
	}
	c := &caller{gate: g, method: info.FullMethodName}
	if _, known := demands[info.FullMethodName]; !known {
		c.method = "unknown"
	}
	return ctx, c.unauthenticated(ctx, "missing", errors.New("there is neither a token nor a verified certificate"))
}

// anybody is the proof of who is not asked for one.
var anybody = &proof{}

// closed counts and tells of a connection that was closed before its caller was known.
func (g *gate) closed(host string, why error) {
	reason := "unproved"
	switch {
	case errors.Is(why, errIdle):
		reason = "idle"
	case errors.Is(why, errCrowded):
		reason = "crowded"
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
	o.Authority, o.Limits = nil, access.Limits{}
	g, err := newGate(o)
	if err != nil {
		return nil, err
	}
	return []grpc.ServerOption{grpc.Creds(g.watched(secure, o)), grpc.InTapHandle(g.tap), uncompressed}, nil
}
