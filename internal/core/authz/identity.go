package authz

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Identity is an authenticated caller.
type Identity struct {
	// Subject is the name that rules use: the kind of the credential and the name in it.
	// It is never empty for an authenticated caller.
	//
	//	token:NAME         a static token
	//	uri:URI            a URI of a certificate, such as a SPIFFE id
	//	dns:NAME           a DNS name of a certificate
	//	cn:NAME            the common name of a certificate
	//	jwt:ISSUER:NAME    the name claim of a JWT
	Subject string
	// Groups are the groups of the caller, as subjects: group:ISSUER:NAME.
	Groups []string
	// Expires is when the proof ends; zero: it does not by itself.
	Expires time.Time
}

// Kinds of subjects: the part before the first colon.
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

// CheckName refuses names that do not display as what they are: with characters that move the cursor, break
// lines, change the direction of text or are invisible, and with replacement characters, which may stand for
// different invalid bytes.
func CheckName(name string) error {
	if !utf8.ValidString(name) {
		return fmt.Errorf("the name %q is not UTF-8", name)
	}
	for _, r := range name {
		switch {
		case unicode.IsControl(r):
			return fmt.Errorf("the name %q has the control character %U", name, r)
		case unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp):
			return fmt.Errorf("the name %q has the invisible character %U", name, r)
		case r == unicode.ReplacementChar:
			return fmt.Errorf("the name %q has the replacement character %U, which stands for invalid bytes", name, r)
		}
	}
	return nil
}

// Matches reports whether a pattern matches the subject or a group of this identity.
func (i Identity) Matches(pattern string) bool {
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

// Match reports whether a pattern matches a name: exactly or, if the pattern ends in *, by the prefix before it.
func Match(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
