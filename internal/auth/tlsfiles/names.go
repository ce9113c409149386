package tlsfiles

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// peerNames are the names that identify a peer's certificate. Without names, a peer's certificate shares a URI
// with the own one, or a DNS name if that has no URI. Names of hosts are not sufficient in general: they are
// public, and a common authority certifies them to more than nodes.
type peerNames []string

// parseNames validates names: DNS names, "*.example.org" for one label before it; and URIs,
// "spiffe://example.org/node/*" for any path below it.
func parseNames(list []string) (peerNames, error) {
	var out peerNames
	for _, name := range list {
		fixed, uri := "", false
		_, fixed, uri = strings.Cut(name, "://")
		if uri {
			fixed = strings.TrimSuffix(fixed, "/*")
		} else {
			name = strings.ToLower(name)
			fixed = strings.TrimPrefix(name, "*.")
		}
		if fixed == "" || fixed[0] == '/' || strings.ContainsAny(fixed, "* \t") || !uri &&
			strings.Contains(fixed, "/") {
			return nil, fmt.Errorf("%q: want a DNS name, *.example.org, a URI, or spiffe://example.org/path/*", name)
		}
		out = append(out, name)
	}
	return out, nil
}

// checkPeer returns nil if the other certificate is that of a peer.
func (n peerNames) checkPeer(own, other *x509.Certificate) error {
	if err := checkURIs(other); err != nil {
		return err
	}
	theirs := certIdentities(other)
	allowed := []string(n)
	if len(allowed) == 0 {
		allowed = sharedIdentities(own)
	}
	for _, name := range allowed {
		if slices.ContainsFunc(theirs, func(id string) bool {
			return id == name || len(n) > 0 &&
				matchesPattern(name, id)
		}) {
			return nil
		}
	}
	return fmt.Errorf("the certificate is not that of a peer: it is for %q, want one of %q", theirs, allowed)
}

// matchesPattern reports whether a name with an asterisk matches an identity.
func matchesPattern(name, id string) bool {
	if suffix, ok := strings.CutPrefix(name, "*"); ok {
		label, ok := strings.CutSuffix(id, suffix)
		return ok && label != "" && !strings.ContainsAny(label, ".*") && !strings.Contains(id, "://")
	}
	prefix, ok := strings.CutSuffix(name, "*")
	return ok && len(id) > len(prefix) && strings.HasPrefix(id, prefix)
}

// certIdentities are the names in a certificate that identify its owner: URIs and DNS names. Addresses and
// localhost are locations that many owners share.
func certIdentities(cert *x509.Certificate) []string {
	var ids []string
	for _, u := range cert.URIs {
		ids = append(ids, u.String())
	}
	for _, name := range cert.DNSNames {
		name = strings.ToLower(name)
		if name != "localhost" {
			ids = append(ids, name)
		}
	}
	return ids
}

// sharedIdentities are the identities by which peers recognise each other unless names are configured.
func sharedIdentities(own *x509.Certificate) []string {
	ids := certIdentities(own)
	return ids[:cmp.Or(len(own.URIs), len(ids))] // URIs come first
}

// checkURIs refuses a certificate with several URIs. SPIFFE allows one, and it is unknown which of them the
// authority meant to certify.
func checkURIs(cert *x509.Certificate) error {
	if n := len(cert.URIs); n > 1 {
		return fmt.Errorf("the certificate has %d URIs, want one at most", n)
	}
	return nil
}

var errNoIdentity = errors.New("the own certificate has neither a URI nor a DNS name other than localhost, by " +
	"which peers could know it")
