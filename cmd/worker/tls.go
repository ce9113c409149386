package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// tlsFiles are where the parts of TLS are.
type tlsFiles struct{ ca, cert, key, serverName string }

// config is nil for plaintext. The worker's certificate is read for every
// connection, so it can be replaced while the worker runs.
func (f tlsFiles) config() (*tls.Config, error) {
	if f.ca == "" {
		if f.cert != "" || f.key != "" || f.serverName != "" {
			return nil, errors.New("--tls-cert, --tls-key and --tls-server-name need --tls-ca")
		}
		return nil, nil
	}
	pem, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca %s: holds no certificate", f.ca)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: f.serverName}
	if (f.cert == "") != (f.key == "") {
		return nil, errors.New("--tls-cert and --tls-key belong together")
	}
	if f.cert == "" {
		return c, nil
	}
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
		return &pair, nil
	}
	if _, err := load(nil); err != nil {
		return nil, err
	}
	c.GetClientCertificate = load
	return c, nil
}
