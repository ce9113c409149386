package tlsfiles

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
)

// errServerOnly is the error of credentials that are used on the wrong side.
var errServerOnly = errors.New("these credentials are not for this side of a connection")

// Server are the credentials of a gRPC server: TLS 1.2 or later. With anything but
// NoClientCert the files need a CA.
func (s *Source) Server(auth ClientAuth) (credentials.TransportCredentials, error) {
	if auth != NoClientCert && s.o.Authorities == "" {
		return nil, errors.New("clients' certificates cannot be verified without " + s.o.Called.Authorities)
	}
	if s.o.Cert == "" {
		return nil, errNoCertificate
	}
	s.registerRefusals()
	return &transport{source: s, server: func() (*tls.Config, error) { return s.serverConfig(auth) }}, nil
}

// HTTPServer is the configuration of an HTTPS server without client certificates: TLS 1.2 or later. Each handshake uses
// the current files.
func (s *Source) HTTPServer() (*tls.Config, error) {
	if s.o.Cert == "" {
		return nil, errNoCertificate
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			s.ReloadIfDue()
			c, err := s.serverConfig(NoClientCert)
			if err == nil {
				c.NextProtos = []string{"h2", "http/1.1"}
			}
			return c, err
		},
	}, nil
}

// Client are the credentials of gRPC connections to servers: TLS 1.2 or later.
func (s *Source) Client() credentials.TransportCredentials {
	return &transport{source: s, client: func() (*tls.Config, error) { return s.ClientConfig(), nil },
		name: s.o.ServerName}
}

// Peers are the credentials of gRPC servers and connections between peers: mutual TLS 1.3. A peer's certificate
// must come from the CA of the files and contain one of the names: DNS names or URIs, where "*.example.org"
// matches one label and "spiffe://example.org/node/*" any path below. Without names it must share a URI with the
// own certificate, or, if that has no URI, a DNS name other than localhost. The name of the dialled host is not
// checked.
func (s *Source) Peers(list []string) (credentials.TransportCredentials, error) {
	allowed, err := parseNames(list)
	if err != nil {
		return nil, err
	}
	if s.o.Cert == "" || s.o.Authorities == "" {
		return nil, errors.New("peers need all of " + s.o.Called.Cert + ", " + s.o.Called.Key +
			" and " + s.o.Called.Authorities)
	}
	own := s.currentMaterial().pair.Leaf
	if err := checkURIs(own); err != nil {
		return nil, fmt.Errorf("%s: %w", s.o.Called.Cert, err) // every peer would refuse it
	}
	if len(allowed) == 0 && len(certIdentities(own)) == 0 {
		return nil, errNoIdentity
	}
	s.registerRefusals()
	return &transport{
		source: s,
		server: func() (*tls.Config, error) { return s.peerServerConfig(allowed) },
		client: func() (*tls.Config, error) { return s.peerClientConfig(allowed) },
	}, nil
}

// transport makes handshakes like gRPC's own TLS, with a new configuration for each connection.
type transport struct {
	source         *Source
	server, client func() (*tls.Config, error) // nil: not for that side
	name           string                      // of the server, if it is fixed
}

func (t *transport) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	if t.client == nil {
		return nil, nil, errServerOnly
	}
	c, err := t.client()
	if err != nil {
		return nil, nil, err
	}
	if t.name != "" {
		authority = t.name
	}
	return credentials.NewTLS(c).ClientHandshake(ctx, authority, conn)
}

func (t *transport) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if t.server == nil {
		return nil, nil, errServerOnly
	}
	c, err := t.server()
	if err != nil {
		return nil, nil, err
	}
	secured, info, err := credentials.NewTLS(c).ServerHandshake(conn)
	if err != nil {
		t.source.recordRefusal(conn.RemoteAddr().String(), err)
	}
	return secured, info, err
}

func (t *transport) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{ServerName: t.name, MinVersion: tls.VersionTLS12}).Info()
}

func (t *transport) Clone() credentials.TransportCredentials {
	c := *t
	return &c
}

// OverrideServerName is deprecated by gRPC, which still requires it.
func (t *transport) OverrideServerName(name string) error {
	t.name = name
	return nil
}
