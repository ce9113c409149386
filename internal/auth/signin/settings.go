package signin

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// Kinds of tokens that may be sent to nodes.
const (
	IDToken     = "id"
	AccessToken = "access"
)

// Settings are the issuer and the client of a sign-in.
type Settings struct {
	// Issuer is its URL: https, or http on loopback.
	Issuer   string `json:"issuer"`
	ClientID string `json:"client_id"`
	// ClientSecretFile holds the client's secret; empty: the client has none.
	ClientSecretFile string `json:"client_secret_file,omitempty"`
	// Scopes are requested, beside "openid".
	Scopes []string `json:"scopes,omitempty"`
	// Audience is requested, and has to be in the token. Empty: the audience of an ID token is the client.
	Audience string `json:"audience,omitempty"`
	// CAFile holds the authorities of the issuer's certificate; empty: those of the system.
	CAFile string `json:"ca_file,omitempty"`
	// Token is the kind of token that is sent to nodes: IDToken, the default, or AccessToken, which has to be a JWT.
	Token string `json:"token_kind"`
}

// Complete checks settings and sets their defaults. Paths become absolute, as a session
// is used from other directories.
func (s Settings) Complete() (Settings, error) {
	if s.Token == "" {
		s.Token = IDToken
	}
	switch {
	case s.Issuer == "" || s.ClientID == "":
		return s, errors.New("the issuer and the client id must be known: set --oidc-issuer and --oidc-client-id")
	case s.Token != IDToken && s.Token != AccessToken:
		return s, fmt.Errorf("--oidc-token %q: want %s or %s", s.Token, IDToken, AccessToken)
	}
	if err := CheckURL(s.Issuer); err != nil {
		return s, fmt.Errorf("--oidc-issuer: %w", err)
	}
	s.Scopes = slices.DeleteFunc(slices.Clone(s.Scopes),
		func(scope string) bool { return scope == "" || scope == "openid" })
	s.Scopes = append([]string{"openid"}, s.Scopes...)
	for _, path := range []*string{&s.ClientSecretFile, &s.CAFile} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return s, err
		}
		*path = absolute
	}
	return s, nil
}

// clientSecret reads the client's secret, if it has one.
func (s Settings) clientSecret() (string, error) {
	if s.ClientSecretFile == "" {
		return "", nil
	}
	text, err := secretfile.Read(s.ClientSecretFile, maxFile)
	if err != nil {
		return "", fmt.Errorf("client secret: %w", err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("client secret: %s is empty", s.ClientSecretFile)
	}
	return secret, nil
}

// CheckURL refuses addresses to which a secret would be sent unencrypted.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return fmt.Errorf("%.200q is not the URL of a server", text)
	case u.Scheme == "https", u.Scheme == "http" && isLoopback(u.Hostname()):
		return nil
	}
	return fmt.Errorf("%.200q: want https, or http on loopback", text)
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
