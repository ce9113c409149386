package access

import (
	"strings"
	"time"
)

// Identity is who calls.
type Identity struct {
	// Subject is the name by which rules mean it: how it was proved, and what
	// that said. Never empty for somebody who was authenticated.
	//
	//	token:NAME         a static token
	//	uri:URI            a URI of a certificate, such as a SPIFFE id
	//	dns:NAME           a DNS name of a certificate
	//	cn:NAME            the common name of a certificate
	//	jwt:ISSUER:NAME    the name claim of a JWT
	Subject string
	// Groups are subjects that it has beside, group:ISSUER:NAME.
	Groups []string
	// Expires is when the proof ends; zero: it does not by itself.
	Expires time.Time
}

// Kinds of subjects: what stands before the first colon.
const (
	KindToken      = "token"
	KindURI        = "uri"
	KindDNS        = "dns"
	KindCommonName = "cn"
	KindJWT        = "jwt"
	KindGroup      = "group"
)

// Kinds lists the kinds of subjects that a rule may name.
func Kinds() []string {
	return []string{KindToken, KindURI, KindDNS, KindCommonName, KindJWT, KindGroup}
}

// Subject makes a subject of a kind and its names.
func Subject(kind string, names ...string) string {
	return kind + ":" + strings.Join(names, ":")
}

// Is tells whether a pattern means this identity.
func (i Identity) Is(pattern string) bool {
	if i.Subject == "" {
		return false
	}
	if Match(pattern, i.Subject) {
		return true
	}
	for _, g := range i.Groups {
		if Match(pattern, g) {
			return true
		}
	}
	return false
}

// Match tells whether a name fits a pattern: exactly, or, if the pattern ends in
// *, by what stands before that.
func Match(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
