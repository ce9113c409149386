package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// ClientAuth is how a server authenticates its clients.
type ClientAuth uint8

const (
	// NoClientCert requests no certificate.
	NoClientCert ClientAuth = iota
	// OptionalClientCert verifies a certificate if the client has one.
	OptionalClientCert
	// RequiredClientCert accepts only clients with a certificate.
	RequiredClientCert
)

// ParseClientAuth reads "none", "optional" or "required".
func ParseClientAuth(name string) (ClientAuth, error) {
	switch name {
	case "none":
		return NoClientCert, nil
	case "optional":
		return OptionalClientCert, nil
	case "required":
		return RequiredClientCert, nil
	}
	return 0, fmt.Errorf("%q: want none, optional or required", name)
}

// ClientConfig is for one connection that is about to be opened: it contains the current authority. TLS 1.2 or
// later.
func (s *Source) ClientConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: s.o.ServerName, RootCAs: s.currentMaterial().ca,
		GetClientCertificate: s.clientCertificate,
	}
}

// clientCertificate is sent to a server that requests one. It is sent whatever authorities the server lists, so
// that the server reports a wrong one as such.
func (s *Source) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if pair := s.currentMaterial().pair; pair != nil {
		return pair, nil
	}
	return new(tls.Certificate), nil
}

var errNoCertificate = errors.New("the TLS files hold no certificate of this side")

// serverConfig is for one incoming connection.
func (s *Source) serverConfig(auth ClientAuth) (*tls.Config, error) {
	m := s.currentMaterial()
	if m.pair == nil {
		return nil, errNoCertificate
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*m.pair}, ClientCAs: m.ca,
		SessionTicketsDisabled: true,
	}
	switch auth {
	case OptionalClientCert:
		c.ClientAuth = tls.VerifyClientCertIfGiven
	case RequiredClientCert:
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// peerServerConfig is for one connection from a peer. TLS 1.3.
func (s *Source) peerServerConfig(names peerNames) (*tls.Config, error) {
	m := s.currentMaterial()
	c, err := s.serverConfig(RequiredClientCert)
	if err != nil {
		return nil, err
	}
	c.MinVersion = tls.VersionTLS13
	c.VerifyConnection = func(state tls.ConnectionState) error {
		return names.checkPeer(m.pair.Leaf, state.PeerCertificates[0])
	}
	return c, nil
}

// peerClientConfig is for one connection to a peer. It verifies the certificate itself, because the library
// would require the host's name in it.
func (s *Source) peerClientConfig(names peerNames) (*tls.Config, error) {
	m := s.currentMaterial()
	if m.pair == nil {
		return nil, errNoCertificate
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, GetClientCertificate: s.clientCertificate, InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			chain := state.PeerCertificates
			if len(chain) == 0 {
				return errors.New("the peer has no certificate")
			}
			o := x509.VerifyOptions{Roots: m.ca, Intermediates: x509.NewCertPool(),
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
			for _, cert := range chain[1:] {
				o.Intermediates.AddCert(cert)
			}
			if _, err := chain[0].Verify(o); err != nil {
				return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
			}
			return names.checkPeer(m.pair.Leaf, chain[0])
		},
	}, nil
}
