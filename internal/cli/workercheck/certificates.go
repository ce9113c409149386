package workercheck

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"time"
)

// authority signs the certificates of one case.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func (t *trial) newAuthority(name string) *authority {
	key := t.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.fail(ruleProgram, "cannot make a certificate: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.fail(ruleProgram, "cannot make a certificate: %v", err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (t *trial) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.fail(ruleProgram, "cannot make a key: %v", err)
	}
	return key
}

// issue makes a certificate for loopback addresses, and its key.
func (t *trial) issue(a *authority, name string) (cert, key []byte) {
	private := t.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.fail(ruleProgram, "cannot make a certificate: %v", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.fail(ruleProgram, "cannot make a key: %v", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// serverTLS returns the configuration of a node whose certificate an authority has signed. clients is the authority of
// the certificates that it requires of workers; nil: none.
func (t *trial) serverTLS(a, clients *authority) *tls.Config {
	cert, key := t.issue(a, "node")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.fail(ruleProgram, "cannot make a certificate: %v", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if clients != nil {
		c.ClientCAs = x509.NewCertPool()
		c.ClientCAs.AddCert(clients.cert)
		c.ClientAuth = tls.VerifyClientCertIfGiven
		c.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) > 0 {
				return nil
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			t.addFault(ruleTLS, "the worker shows no certificate: FERMATA_TLS_CERT and FERMATA_TLS_KEY name the files "+
				"of its certificate and key")
			return errors.New("a client certificate is required")
		}
	}
	return c
}
