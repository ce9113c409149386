package guard

import (
	"context"
	"crypto/subtle"
	"crypto/x509"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/fermata-io/fermata/internal/core/authz"
)

// PeerAuthority is an [Authority] that knows whether nodes have a role.
type PeerAuthority interface {
	Authority
	GrantsRole(authz.Role) bool
}

// PeerKeyHeader is the header in which nodes send the key of [PeerKeyInterceptors].
const PeerKeyHeader = "fermata-peer-key"

// PeerKeyInterceptors are options for the server that other nodes connect to without TLS: callers have to send the
// key, which only processes have that read the cluster's keyspace.
func PeerKeyInterceptors(key string, o Options) ([]grpc.ServerOption, error) {
	if key == "" || o.Logger == nil {
		return nil, errors.New("guard: PeerKeyInterceptors needs a key and a Logger")
	}
	g, err := New(o)
	if err != nil {
		return nil, err
	}
	return peerServerOptions(func(ctx context.Context, method string) error {
		c := &Caller{gate: g, method: method}
		sent := metadata.ValueFromIncomingContext(ctx, PeerKeyHeader)
		switch {
		case len(sent) == 0:
			return c.refuseCredential(ctx, "missing", errors.New("there is no "+PeerKeyHeader))
		case len(sent) > 1 || subtle.ConstantTimeCompare([]byte(sent[0]), []byte(key)) != 1:
			return c.refuseCredential(ctx, "invalid", errors.New("the "+PeerKeyHeader+" is not that of this cluster"))
		}
		return nil
	}), nil
}

// PeerInterceptors are options for the server that other nodes connect to, over TLS that
// verifies their certificates. While the authority gives anybody the role node, only
// those may call; while it does not, that a certificate was verified is enough.
func PeerInterceptors(authority PeerAuthority, o Options) ([]grpc.ServerOption, error) {
	o.Authority = authority
	if o.Logger == nil {
		return nil, errors.New("rpc: PeerGuard needs a Logger")
	}
	g, err := New(o)
	if err != nil {
		return nil, err
	}
	return peerServerOptions(func(ctx context.Context, method string) error {
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
	}), nil
}

// peerServerOptions have enter decide about each call.
func peerServerOptions(enter func(ctx context.Context, method string) error) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, info *grpc.UnaryServerInfo,
			next grpc.UnaryHandler) (any, error) {
			if err := enter(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, q)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream,
			info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := enter(stream.Context(), info.FullMethod); err != nil {
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
