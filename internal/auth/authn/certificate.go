package authn

import (
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/authz"
)

// validatePatterns validates the patterns of the file.
func validatePatterns(patterns []string) error {
	for i, p := range patterns {
		kind, name, _ := strings.Cut(p, ":")
		good := kind == authz.KindURI || kind == authz.KindDNS || kind == authz.KindCommonName
		if !good || name == "" || strings.Contains(strings.TrimSuffix(name, "*"), "*") {
			return fmt.Errorf("certificates[%d]: %q is not uri:, dns: or cn: and a name, which may end in *", i, p)
		}
		if err := authz.CheckName(p); err != nil {
			return fmt.Errorf("certificates[%d]: %w", i, err)
		}
	}
	return nil
}

// identifyCertificate returns the identity of a certificate that TLS has verified: the first of its names that
// matches the first pattern. URIs come before DNS names, and these before the common name. A certificate with
// several URIs has no identity: SPIFFE allows one, and it is unknown which of them the authority meant to
// certify.
func identifyCertificate(patterns []string, c *x509.Certificate, now time.Time) (authz.Identity, error) {
	if now.After(c.NotAfter) {
		return authz.Identity{}, newRefusal(authz.CauseExpired, "the certificate has expired")
	}
	if len(c.URIs) > 1 {
		return authz.Identity{}, newRefusal(authz.CauseCertificate, "the certificate has %d URIs, want one at most",
			len(c.URIs))
	}
	names := certificateNames(c)
	for _, p := range patterns {
		for _, name := range names {
			if authz.Match(p, name) {
				if err := authz.CheckName(name); err != nil {
					return authz.Identity{}, newRefusal(authz.CauseCertificate, "%v", err)
				}
				return authz.Identity{Subject: name, Expires: c.NotAfter}, nil
			}
		}
	}
	return authz.Identity{}, newRefusal(authz.CauseCertificate,
		"the certificate has none of the names in the access file")
}

func certificateNames(c *x509.Certificate) []string {
	var names []string
	for _, u := range c.URIs {
		names = append(names, authz.Subject(authz.KindURI, u.String()))
	}
	for _, n := range c.DNSNames {
		names = append(names, authz.Subject(authz.KindDNS, n))
	}
	if n := c.Subject.CommonName; n != "" {
		names = append(names, authz.Subject(authz.KindCommonName, n))
	}
	return names
}
