package guard

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/fermata-io/fermata/internal/core/authz"
)

// PeerAuthority is an [Authority] that knows whether nodes have a role.
type PeerAuthority interface {
	Authority
	GrantsRole(authz.Role) bool
}

// PeerCheck decides about each call of another node.
type PeerCheck func(ctx context.Context, method string) error

// PeerCertificateCheck is for the server that other nodes connect to over TLS, which verifies their certificates. If
// the authority gives the role node to an identity, callers need that role. Otherwise a verified certificate is enough.
func PeerCertificateCheck(authority PeerAuthority, o Options) (PeerCheck, error) {
	o.Authority = authority
	if o.Logger == nil {
		return nil, errors.New("guard: PeerCertificateCheck needs a Logger")
	}
	g, err := New(o)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, method string) error {
		c := &Caller{gate: g, method: method}
		certificate := verifiedPeerCertificate(ctx)
		switch {
		case certificate == nil:
			return c.refuseCredential(ctx, "missing", errors.New("there is no verified certificate"))
		case !authority.GrantsRole(authz.Node):
			return nil
		}
		id, err := authority.Certificate(certificate)
		if err != nil {
			return c.refuseCredential(ctx, "invalid", err)
		}
		c.Identity = id
		return c.Authorize(ctx, authz.Relay, authz.AllNamespaces, "")
	}, nil
}

// PeerServerOptions are options for the server that other nodes connect to. Each call has to pass check, if that is not
// nil, and the connections are bounded, as those of clients are, until one has. Of the options only MaxUnauthenticated,
// UnauthenticatedAge, Registerer and Logger count.
func PeerServerOptions(secure credentials.TransportCredentials, check PeerCheck,
	o Options) ([]grpc.ServerOption, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Authority, o.Limits = nil, authz.Limits{}
	g, err := New(o)
	if err != nil {
		return nil, err
	}
	if check == nil {
		check = func(context.Context, string) error { return nil }
	}
	return append(check.interceptors(), grpc.Creds(g.countingCredentials(secure)), grpc.InTapHandle(g.tapPeers(check)),
		refuseCompressed, grpc.MaxConcurrentStreams(MaxStreamsPerConnection), grpc.MaxHeaderListSize(MaxHeaderBytes)), nil
}

// tapPeers checks the headers of calls. A connection keeps the bounds of unauthenticated connections until a call
// passes the check.
func (g *Gate) tapPeers(check PeerCheck) tap.ServerInHandle {
	return func(ctx context.Context, info *tap.Info) (context.Context, error) {
		defer dropUnusedHeaders(info.Header)
		conn := connectionFrom(ctx)
		if conn == nil {
			return ctx, errors.New("guard: the server's credentials do not watch connections")
		}
		conn.reads.tapped++
		if exceedsHeaders(info.Header) {
			return g.refuseHeaders(ctx, conn, info.FullMethodName)
		}
		if conn.isAuthenticated() {
			return ctx, nil // the interceptors check the call
		}
		refusal := check(ctx, info.FullMethodName)
		if refusal == nil {
			conn.markAuthenticated(anonymousProof)
			return ctx, nil
		}
		if hasDistantDeadline(ctx) {
			c := &Caller{gate: g, method: info.FullMethodName}
			return c.admitUnauthenticated(ctx, conn)
		}
		conn.unauthenticated.countRefusal(conn)
		return ctx, refusal
	}
}

// interceptors apply the check to each call.
func (check PeerCheck) interceptors() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, info *grpc.UnaryServerInfo,
			next grpc.UnaryHandler) (any, error) {
			if err := check(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, q)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream,
			info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := check(stream.Context(), info.FullMethod); err != nil {
				return err
			}
			return next(srv, stream)
		}),
	}
}

// verifiedPeerCertificate is the certificate of the caller that TLS has verified, else nil.
func verifiedPeerCertificate(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	return verifiedCertificateOf(p.AuthInfo)
}
