package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// maxFile bounds a file, so that a wrong path is noticed early. The authorities of a
// whole operating system are some 250 KiB.
const maxFile = 4 << 20

// Files are paths of PEM files, each of which may be empty.
type Files struct {
	// Cert and Key are this side's certificate, followed by its intermediates, and
	// its key; both or none.
	Cert, Key string
	// CA holds the authorities that the other side's certificate must come from. A
	// client without one trusts those of the system.
	CA string
	// ServerName is the name that a server's certificate must carry. Default: the
	// host that is dialled.
	ServerName string
}

// content is what the files hold, or why they cannot be read.
type content struct {
	cert, key, ca []byte
	err           error
}

// same tells whether nothing has changed.
func (c content) same(o content) bool {
	return bytes.Equal(c.cert, o.cert) && bytes.Equal(c.key, o.key) && bytes.Equal(c.ca, o.ca) && text(c.err) == text(o.err)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// read reads all files. called are their names in errors.
func (f Files) read(called Files) content {
	var c content
	var errs [3]error
	c.cert, errs[0] = readFile(called.Cert, f.Cert)
	c.key, errs[1] = readFile(called.Key, f.Key)
	c.ca, errs[2] = readFile(called.CA, f.CA)
	c.err = errors.Join(errs[:]...)
	return c
}

func readFile(called, path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	data, err := secretfile.Read(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", called, err)
	}
	return data, nil
}

// material is what the files hold, ready for use. It does not change.
type material struct {
	pair *tls.Certificate // nil without
	ca   *x509.CertPool   // nil: the system's
	// notAfter is when the first certificate of the own chain ends; zero without one.
	notAfter time.Time
	// life is how long that certificate is good in all.
	life time.Duration
}

func (f Files) parse(called Files, c content) (*material, error) {
	if c.err != nil {
		return nil, c.err
	}
	m := &material{}
	if f.Cert != "" {
		pair, err := tls.X509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, fmt.Errorf("%s %s, %s %s: %w", called.Cert, f.Cert, called.Key, f.Key, err)
		}
		m.pair = &pair
		for _, der := range pair.Certificate {
			cert, err := x509.ParseCertificate(der)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", called.Cert, f.Cert, err)
			}
			if m.notAfter.IsZero() || cert.NotAfter.Before(m.notAfter) {
				m.notAfter, m.life = cert.NotAfter, cert.NotAfter.Sub(cert.NotBefore)
			}
		}
	}
	if f.CA != "" {
		pool, err := parsePool(c.ca)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", called.CA, f.CA, err)
		}
		m.ca = pool
	}
	return m, nil
}

// parsePool reads authorities. Unlike the pool's own method it does not pass over
// those that it cannot read: a file that is cut off must not change who is trusted.
func parsePool(text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	begun, found := bytes.Count(text, []byte("-----BEGIN CERTIFICATE-----")), 0
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(cert)
		found++
	}
	switch {
	case begun == 0:
		return nil, errors.New("holds no certificate in PEM form")
	case found < begun:
		return nil, fmt.Errorf("only %d of %d certificates can be read", found, begun)
	}
	return pool, nil
}

// check finds what no content of the files could make right.
func (f Files) check(called Files) error {
	if (f.Cert == "") != (f.Key == "") {
		return fmt.Errorf("%s and %s go together", called.Cert, called.Key)
	}
	return nil
}
