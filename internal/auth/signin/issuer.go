package signin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

const (
	// requestTimeout bounds one request to the issuer.
	requestTimeout = 15 * time.Second
	maxAnswer      = 1 << 20
)

// issuer is an issuer that has described itself.
type issuer struct {
	settings   Settings
	now        func() time.Time
	client     *http.Client
	provider   *oidc.Provider
	config     oauth2.Config
	revocation string
}

// discoverIssuer asks the issuer for its endpoints.
func discoverIssuer(ctx context.Context, s Settings, now func() time.Time) (*issuer, error) {
	i := &issuer{settings: s, now: now}
	secret, err := s.clientSecret()
	if err != nil {
		return nil, err
	}
	i.client, err = newHTTPClient(s.CAFile)
	if err != nil {
		return nil, err
	}
	i.provider, err = oidc.NewProvider(i.withClient(ctx), s.Issuer)
	if err != nil {
		return nil, fmt.Errorf("issuer %s: %w", s.Issuer, explainDiscovery(err))
	}
	var more struct {
		Revocation string `json:"revocation_endpoint"`
		JWKS       string `json:"jwks_uri"`
	}
	if err := i.provider.Claims(&more); err != nil {
		return nil, fmt.Errorf("issuer %s: %w", s.Issuer, err)
	}
	i.revocation = more.Revocation
	i.config = oauth2.Config{ClientID: s.ClientID, ClientSecret: secret, Scopes: s.Scopes,
		Endpoint: i.provider.Endpoint()}
	i.config.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	for name, endpoint := range map[string]string{
		"device_authorization_endpoint": i.config.Endpoint.DeviceAuthURL, "token_endpoint": i.config.Endpoint.TokenURL,
		"jwks_uri": more.JWKS, "revocation_endpoint": more.Revocation,
	} {
		optional := name == "device_authorization_endpoint" || name == "revocation_endpoint"
		if endpoint == "" && optional {
			continue
		}
		if err := CheckURL(endpoint); err != nil {
			return nil, fmt.Errorf("issuer %s: %s: %w", s.Issuer, name, err)
		}
	}
	return i, nil
}

// withClient is a context whose requests go by the issuer's client and end with it.
func (i *issuer) withClient(ctx context.Context) context.Context {
	client := *i.client
	client.Transport = boundedTransport{ctx, i.client.Transport}
	return oidc.ClientContext(ctx, &client)
}

// newHTTPClient makes a client that follows no redirect: the issuer's endpoints are known,
// and what is posted there is secret.
func newHTTPClient(caFile string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		text, err := secretfile.Read(caFile, maxFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--oidc-ca: %s has no certificate", caFile)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &http.Client{
		Transport: transport, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// boundedTransport ends requests with a context, and bounds answers.
type boundedTransport struct {
	ctx  context.Context
	next http.RoundTripper
}

func (t boundedTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(q.Context())
	stop := context.AfterFunc(t.ctx, cancel)
	r, err := t.next.RoundTrip(q.WithContext(ctx))
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	r.Body = boundedBody{io.LimitReader(r.Body, maxAnswer), r.Body, func() { stop(); cancel() }}
	return r, nil
}

type boundedBody struct {
	io.Reader
	body   io.Closer
	cancel func()
}

func (b boundedBody) Close() error {
	defer b.cancel()
	return b.body.Close()
}

// tokens are what the issuer gave, checked.
type tokens struct {
	token, refresh, subject, name string
	issued, expires               time.Time
}

// verifyTokens verifies what nodes will verify, so that a wrong setting shows here.
func (i *issuer) verifyTokens(ctx context.Context, given *oauth2.Token) (tokens, error) {
	raw, _ := given.Extra("id_token").(string)
	config := &oidc.Config{ClientID: i.settings.ClientID, Now: i.now}
	switch {
	case i.settings.Token == AccessToken:
		raw = given.AccessToken
		config.ClientID, config.SkipClientIDCheck = "", true
		if strings.Count(raw, ".") != 2 {
			return tokens{}, fmt.Errorf("%w: its access token is no JWT, which nodes could verify: use "+
				"--oidc-token id, or set --oidc-audience", ErrToken)
		}
	case raw == "":
		return tokens{}, fmt.Errorf("%w: there is no ID token: use --oidc-token access if its access tokens are JWTs",
			ErrToken)
	}
	verified, err := i.provider.VerifierContext(i.withClient(ctx), config).Verify(i.withClient(ctx), raw)
	if err != nil {
		return tokens{}, fmt.Errorf("the issuer's %s token: %w", i.settings.Token, explainToken(err))
	}
	if a := i.settings.Audience; a != "" && !slices.Contains(verified.Audience, a) {
		return tokens{}, fmt.Errorf("%w: the %s token is for %q, not for --oidc-audience %s", ErrToken,
			i.settings.Token, verified.Audience, a)
	}
	var claims struct {
		Email    string `json:"email"`
		Username string `json:"preferred_username"`
		Party    string `json:"azp"`
	}
	if err := verified.Claims(&claims); err != nil {
		return tokens{}, fmt.Errorf("the issuer's %s token: %w", i.settings.Token, err)
	}
	if p := claims.Party; p != "" && p != i.settings.ClientID && i.settings.Token == IDToken {
		return tokens{}, fmt.Errorf("%w: the ID token was issued to the client %q (azp), not to --oidc-client-id %s",
			ErrToken, p, i.settings.ClientID)
	}
	name := claims.Email
	if name == "" {
		name = claims.Username
	}
	return tokens{token: raw, refresh: given.RefreshToken, subject: verified.Subject, name: name,
		issued: verified.IssuedAt, expires: verified.Expiry}, nil
}

// refreshTokens exchanges a refresh token.
func (i *issuer) refreshTokens(ctx context.Context, refresh string) (tokens, error) {
	given, err := i.config.TokenSource(i.withClient(ctx), &oauth2.Token{RefreshToken: refresh}).Token()
	if err != nil {
		err = explainError(err)
		var answer *AnswerError
		if errors.As(err, &answer) && answer.deadRefreshToken() {
			return tokens{}, fmt.Errorf("%w: %w", ErrEnded, err)
		}
		return tokens{}, fmt.Errorf("issuer %s: %w", i.settings.Issuer, err)
	}
	t, err := i.verifyTokens(ctx, given)
	if err != nil {
		return tokens{}, err
	}
	if t.refresh == "" { // it stays in use
		t.refresh = refresh
	}
	return t, nil
}

// revokeToken withdraws a refresh token by RFC 7009, and with it what was made of it.
func (i *issuer) revokeToken(ctx context.Context, refresh string) error {
	form := url.Values{"token": {refresh}, "token_type_hint": {"refresh_token"}, "client_id": {i.config.ClientID}}
	if i.config.ClientSecret != "" {
		form.Set("client_secret", i.config.ClientSecret)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, i.revocation, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r, err := i.client.Do(q)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("the issuer answers %s", r.Status)
	}
	return nil
}
