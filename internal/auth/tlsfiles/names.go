package tlsfiles

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// names say whose certificate is that of a peer. Without any, it is one that shares
// a URI with the own certificate, or a DNS name where that has no URI: names of hosts are
// public, and an authority for all gives them to more than nodes.
type names []string

// parseNames checks names: DNS names, "*.example.org" for one label before it; and
// URIs, "spiffe://example.org/node/*" for any path below it.
func parseNames(list []string) (names, error) {
	var out names
	for _, name := range list {
		fixed, uri := "", false
		if _, fixed, uri = strings.Cut(name, "://"); uri {
			fixed = strings.TrimSuffix(fixed, "/*")
		} else {
			name = strings.ToLower(name)
			fixed = strings.TrimPrefix(name, "*.")
		}
		if fixed == "" || fixed[0] == '/' || strings.ContainsAny(fixed, "* \t") || !uri && strings.Contains(fixed, "/") {
			return nil, fmt.Errorf("%q: want a DNS name, *.example.org, a URI, or spiffe://example.org/path/*", name)
		}
		out = append(out, name)
	}
	return out, nil
}

// admit is nil if the other certificate is that of a peer.
func (n names) admit(own, other *x509.Certificate) error {
	if err := checkURIs(other); err != nil {
		return err
	}
	theirs := identities(other)
	allowed := []string(n)
	if len(allowed) == 0 {
		allowed = peerIdentities(own)
	}
	for _, name := range allowed {
		if slices.ContainsFunc(theirs, func(id string) bool { return id == name || len(n) > 0 && matches(name, id) }) {
			return nil
		}
	}
	return fmt.Errorf("the certificate is not that of a peer: it is for %q, want one of %q", theirs, allowed)
}

// matches tells whether a name with an asterisk stands for an identity.
func matches(name, id string) bool {
	if suffix, ok := strings.CutPrefix(name, "*"); ok {
		label, ok := strings.CutSuffix(id, suffix)
		return ok && label != "" && !strings.ContainsAny(label, ".*") && !strings.Contains(id, "://")
	}
	prefix, ok := strings.CutSuffix(name, "*")
	return ok && len(id) > len(prefix) && strings.HasPrefix(id, prefix)
}

// identities are the names in a certificate that say who somebody is: URIs and DNS
// names. Addresses and localhost say where, and are the same for many.
func identities(cert *x509.Certificate) []string {
	var ids []string
	for _, u := range cert.URIs {
		ids = append(ids, u.String())
	}
	for _, name := range cert.DNSNames {
		if name = strings.ToLower(name); name != "localhost" {
			ids = append(ids, name)
		}
	}
	return ids
}

// peerIdentities are those of its identities by which peers know each other unless names are given.
func peerIdentities(own *x509.Certificate) []string {
	ids := identities(own)
	return ids[:cmp.Or(len(own.URIs), len(ids))] // URIs come first
}

// checkURIs refuses a certificate with several URIs. SPIFFE has one in each, and which of
// them an authority meant to vouch for cannot be known.
func checkURIs(cert *x509.Certificate) error {
	if n := len(cert.URIs); n > 1 {
		return fmt.Errorf("the certificate has %d URIs, want one at most", n)
	}
	return nil
}

var errNoIdentity = errors.New("the own certificate has neither a URI nor a DNS name other than localhost, by which peers could know it")
