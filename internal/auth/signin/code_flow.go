package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// ErrState is a callback that belongs to no sign-in that this browser has begun.
var ErrState = errors.New("the answer belongs to another sign-in")

// CodeFlow signs people in by the authorization code flow with PKCE: for servers to which browsers come back. It keeps
// no state of a sign-in; the caller does, where only the browser that began it can send it.
type CodeFlow struct {
	settings Settings
	now      func() time.Time

	mu    sync.Mutex
	known *issuer
}

// NewCodeFlow checks the settings. The issuer is asked for its endpoints when they are first needed.
func NewCodeFlow(settings Settings, now func() time.Time) (*CodeFlow, error) {
	settings, err := settings.Complete()
	if err != nil {
		return nil, err
	}
	if _, err := settings.clientSecret(); err != nil {
		return nil, err
	}
	return &CodeFlow{settings: settings, now: now}, nil
}

// Name is the host of the issuer.
func (f *CodeFlow) Name() string {
	u, err := url.Parse(f.settings.Issuer)
	if err != nil {
		return f.settings.Issuer
	}
	return u.Host
}

// flowState is what one sign-in needs at its end.
type flowState struct {
	State    string `json:"s"`
	Verifier string `json:"v"`
	Nonce    string `json:"n"`
}

// Begin returns the address at the issuer, the state that the browser brings back from there, and what Finish needs,
// which is secret.
func (f *CodeFlow) Begin(ctx context.Context, redirectURL string) (address, state string, flow []byte, err error) {
	i, err := f.issuer(ctx)
	if err != nil {
		return "", "", nil, err
	}
	begun := flowState{State: rand.Text(), Verifier: oauth2.GenerateVerifier(), Nonce: rand.Text()}
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(begun.Verifier), oidc.Nonce(begun.Nonce)}
	if f.settings.Audience != "" {
		options = append(options, oauth2.SetAuthURLParam("audience", f.settings.Audience))
	}
	config := i.config
	config.RedirectURL = redirectURL
	flow, err = json.Marshal(begun)
	return config.AuthCodeURL(begun.State, options...), begun.State, flow, err
}

// Finish exchanges the code of a callback for tokens, whose claim sub is the subject.
func (f *CodeFlow) Finish(ctx context.Context, flow []byte, query url.Values, redirectURL string) (token, refresh,
	subject string, err error) {
	var state flowState
	if err := json.Unmarshal(flow, &state); err != nil {
		return "", "", "", ErrState
	}
	if subtle.ConstantTimeCompare([]byte(state.State), []byte(query.Get("state"))) != 1 || state.State == "" {
		return "", "", "", ErrState
	}
	switch code := query.Get("error"); code {
	case "":
	case "access_denied":
		return "", "", "", ErrDenied
	default:
		return "", "", "", fmt.Errorf("issuer %s answers %.100q", f.settings.Issuer, code)
	}
	i, err := f.issuer(ctx)
	if err != nil {
		return "", "", "", err
	}
	config := i.config
	config.RedirectURL = redirectURL
	given, err := config.Exchange(i.withClient(ctx), query.Get("code"), oauth2.VerifierOption(state.Verifier))
	if err != nil {
		return "", "", "", fmt.Errorf("issuer %s: %w", f.settings.Issuer, explainError(err))
	}
	if err := i.checkNonce(ctx, given, state.Nonce); err != nil {
		return "", "", "", err
	}
	t, err := i.verifyTokens(ctx, given)
	return t.token, t.refresh, t.subject, err
}

// FailedByIssuer reports whether Finish failed although the code may be right: the issuer could not be reached or
// failed itself, or it accepted the code and gave a token that cannot be used. An issuer that asks for fewer requests,
// and a caller that did not wait for the answer, are no such failures.
func (f *CodeFlow) FailedByIssuer(err error) bool {
	var answer *AnswerError
	if errors.As(err, &answer) {
		return answer.Transient() && answer.Status != http.StatusTooManyRequests
	}
	for _, failure := range []error{ErrUnreachable, ErrCertificate, ErrDiscovery, ErrToken, ErrClock} {
		if errors.Is(err, failure) {
			return true
		}
	}
	return false
}

// checkNonce checks that the ID token, if there is one, was made for this sign-in.
func (i *issuer) checkNonce(ctx context.Context, given *oauth2.Token, nonce string) error {
	raw, _ := given.Extra("id_token").(string)
	if raw == "" {
		return nil
	}
	config := &oidc.Config{ClientID: i.settings.ClientID, Now: i.now}
	verified, err := i.provider.VerifierContext(i.withClient(ctx), config).Verify(i.withClient(ctx), raw)
	if err != nil {
		return fmt.Errorf("the issuer's ID token: %w", explainToken(err))
	}
	if verified.Nonce != nonce {
		return ErrState
	}
	return nil
}

// Refresh exchanges a refresh token. The caller compares the subject of the new token with that of the sign-in.
func (f *CodeFlow) Refresh(ctx context.Context, refresh string) (token, newRefresh, subject string, err error) {
	i, err := f.issuer(ctx)
	if err != nil {
		return "", "", "", err
	}
	t, err := i.refreshTokens(ctx, refresh)
	return t.token, t.refresh, t.subject, err
}

// issuer asks the issuer for its endpoints, until it has answered once.
func (f *CodeFlow) issuer(ctx context.Context) (*issuer, error) {
	f.mu.Lock()
	known := f.known
	f.mu.Unlock()
	if known != nil {
		return known, nil
	}
	i, err := discoverIssuer(ctx, f.settings, f.now)
	if err != nil {
		return nil, err
	}
	if err := CheckURL(i.config.Endpoint.AuthURL); err != nil {
		return nil, fmt.Errorf("issuer %s: authorization_endpoint: %w", f.settings.Issuer, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = i
	return i, nil
}
