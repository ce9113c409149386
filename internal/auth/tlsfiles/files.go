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

// maxFileSize bounds a file, so that a wrong path is noticed early. The authorities of an operating system are
// some 250 KiB.
const maxFileSize = 4 << 20

// Files are paths of PEM files, each of which may be empty.
type Files struct {
	// Cert and Key are this side's certificate, followed by its intermediates, and
	// its key; both or none.
	Cert, Key string
	// Authorities holds the authorities that the other side's certificate must come from. A client without one trusts
	// those of the system.
	Authorities string
	// ServerName is the name that a server's certificate must carry. Default: the
	// host that is dialled.
	ServerName string
}

// fileContents are the contents of the files, or the error of reading them.
type fileContents struct {
	cert, key, ca []byte
	err           error
}

// isEqual reports whether nothing has changed.
func (c fileContents) isEqual(o fileContents) bool {
	return bytes.Equal(c.cert, o.cert) && bytes.Equal(c.key, o.key) && bytes.Equal(c.ca, o.ca) &&
		errorText(c.err) == errorText(o.err)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// readFiles reads all files. called are their names in errors.
func (f Files) readFiles(called Files) fileContents {
	var c fileContents
	var errs [3]error
	c.cert, errs[0] = readFile(called.Cert, f.Cert)
	c.key, errs[1] = readFile(called.Key, f.Key)
	c.ca, errs[2] = readFile(called.Authorities, f.Authorities)
	c.err = errors.Join(errs[:]...)
	return c
}

func readFile(called, path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	data, err := secretfile.Read(path, maxFileSize)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", called, err)
	}
	return data, nil
}

// keyMaterial is the parsed material of the files. It does not change.
type keyMaterial struct {
	pair *tls.Certificate // nil without
	ca   *x509.CertPool   // nil: the system's
	// notAfter is when the first certificate of the own chain expires; zero without one.
	notAfter time.Time
	// lifetime is the whole validity of that certificate.
	lifetime time.Duration
}

func (f Files) parseFiles(called Files, c fileContents) (*keyMaterial, error) {
	if c.err != nil {
		return nil, c.err
	}
	m := &keyMaterial{}
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
				m.notAfter, m.lifetime = cert.NotAfter, cert.NotAfter.Sub(cert.NotBefore)
			}
		}
	}
	if f.Authorities != "" {
		pool, err := parsePool(c.ca)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", called.Authorities, f.Authorities, err)
		}
		m.ca = pool
	}
	return m, nil
}

// parsePool reads authorities. Unlike the pool's own method it returns an error if it cannot read one: a
// truncated file must not change the trusted authorities.
func parsePool(text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	begun, found := bytes.Count(text, []byte("-----BEGIN CERTIFICATE-----")), 0
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
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

// validatePaths finds combinations of paths that are invalid with any contents.
func (f Files) validatePaths(called Files) error {
	if (f.Cert == "") != (f.Key == "") {
		return fmt.Errorf("%s and %s go together", called.Cert, called.Key)
	}
	return nil
}
