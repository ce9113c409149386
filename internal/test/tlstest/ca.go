package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// PEM is its certificate.
	PEM []byte
}

// New makes an authority.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: newSerial(t), Subject: pkix.Name{CommonName: name + " authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// Pool trusts this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Identity has the names in a certificate.
type Identity struct {
	Name string   // common name
	DNS  []string // besides localhost and 127.0.0.1, unless Elsewhere
	URIs []string
	// Elsewhere leaves out localhost and 127.0.0.1.
	Elsewhere bool
	// NotBefore defaults to two days ago, NotAfter to a day from now. It may have passed.
	NotBefore, NotAfter time.Time
	// Usage defaults to that of servers and of clients.
	Usage []x509.ExtKeyUsage
}

// Pair is a certificate and its key in PEM form.
type Pair struct{ Cert, Key []byte }

// Issue makes a certificate.
func (a *Authority) Issue(id Identity) Pair {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: newSerial(a.t), Subject: pkix.Name{CommonName: id.Name},
		NotBefore: id.NotBefore, NotAfter: id.NotAfter, DNSNames: id.DNS,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: id.Usage,
	}
	if len(id.Usage) == 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	if id.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-48 * time.Hour)
	}
	if id.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	if !id.Elsewhere {
		template.DNSNames = append(template.DNSNames, "localhost")
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	for _, text := range id.URIs {
		u, err := url.Parse(text)
		if err != nil {
			a.t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
}

// Client is a configuration that trusts this authority and shows a pair, unless it
// is empty.
func (a *Authority) Client(p Pair) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: a.Pool(), MinVersion: tls.VersionTLS12}
	if len(p.Cert) > 0 {
		pair, err := tls.X509KeyPair(p.Cert, p.Key)
		if err != nil {
			a.t.Fatal(err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return c
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newSerial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
