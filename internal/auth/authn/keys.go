package authn

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// Bounds of fetching keys.
const (
	fetchTimeout        = 5 * time.Second
	refreshInterval     = 10 * time.Minute
	defaultRefetchPause = 30 * time.Second
	minRSABits          = 2048
)

// keySource is the location of an issuer's keys.
type keySource struct {
	location     string // https URL, or path of a file
	ca, token    string // files; for a URL only
	refetchPause time.Duration
}

// validate returns the error of a location.
func (k keySource) validate() error {
	if k.location == "" {
		return errors.New("jwks: is empty")
	}
	if !strings.Contains(k.location, "://") {
		if k.ca != "" || k.token != "" {
			return errors.New("jwks-ca and jwks-token-file are for a URL")
		}
		return nil
	}
	u, err := url.Parse(k.location)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return errors.New("jwks: want a file or https://host/path, without user and password")
	case u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname()):
		return nil
	}
	return errors.New("jwks: keys that come unprotected could be anybody's: want https, or http from loopback")
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// keySet is the key set of one issuer, as last fetched.
type keySet struct {
	from   keySource
	logger *slog.Logger
	now    func() time.Time

	fetchMu sync.Mutex // held during a fetch

	mu          sync.Mutex
	keys        []jose.JSONWebKey
	fetchedOnce bool      // keys were fetched at least once
	lastFetch   time.Time // start of the last fetch
	fetchFailed bool      // the last fetch failed, and this was logged
}

// findKeys returns the keys that may verify a signature. An unknown key is fetched from the issuer, but not more
// often than refetchPause, and not after ctx has ended. complete is false if the last fetch failed: the issuer
// may have keys that are unknown here.
func (s *keySet) findKeys(ctx context.Context, kid string) (keys []jose.JSONWebKey, complete bool) {
	keys, complete = s.cachedKeys(kid)
	if len(keys) > 0 || ctx.Err() != nil {
		return keys, complete
	}
	s.refreshKeys(ctx, s.from.refetchPause)
	return s.cachedKeys(kid)
}

// cachedKeys returns the keys with an id. Without an id there must be exactly one key.
func (s *keySet) cachedKeys(kid string) (found []jose.JSONWebKey, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	complete = s.fetchedOnce && !s.fetchFailed
	if kid == "" {
		if len(s.keys) == 1 {
			return s.keys, complete
		}
		return nil, complete
	}
	for _, k := range s.keys {
		if k.KeyID == kid {
			found = append(found, k)
		}
	}
	return found, complete
}

// refreshIfDue fetches the keys when they are old, or some time after a failed fetch.
func (s *keySet) refreshIfDue(ctx context.Context) {
	pause := refreshInterval
	s.mu.Lock()
	if s.fetchFailed || !s.fetchedOnce {
		pause = min(pause, s.from.refetchPause)
	}
	s.mu.Unlock()
	s.refreshKeys(ctx, pause)
}

// refreshKeys fetches keys unless a fetch started within pause. Concurrent callers share one fetch.
func (s *keySet) refreshKeys(ctx context.Context, pause time.Duration) {
	s.fetchMu.Lock()
	defer s.fetchMu.Unlock()
	s.mu.Lock()
	now := s.now()
	early := !s.lastFetch.IsZero() && now.Sub(s.lastFetch) < pause
	if !early {
		s.lastFetch = now
	}
	s.mu.Unlock()
	if early {
		return
	}
	// A caller that gives up must not fail the fetch of the others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	keys, err := s.fetchKeys(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		if s.fetchFailed {
			s.logger.Info("keys of token issuer fetched again", "jwks", s.from.location, "keys", len(keys))
		}
		s.keys, s.fetchedOnce, s.fetchFailed = keys, true, false
	case !s.fetchFailed:
		s.fetchFailed = true
		s.logger.Warn("failed to fetch keys of token issuer, tokens with unknown keys are refused",
			"jwks", s.from.location, "known", len(s.keys), "retry", s.from.refetchPause, "error", err)
	}
}

func (s *keySet) fetchKeys(ctx context.Context) ([]jose.JSONWebKey, error) {
	var text []byte
	var err error
	if strings.Contains(s.from.location, "://") {
		text, err = s.from.downloadKeys(ctx)
	} else {
		text, err = secretfile.Read(s.from.location, maxFileSize)
	}
	if err != nil {
		return nil, err
	}
	return parseKeys(text)
}

func (k keySource) downloadKeys(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.location, nil)
	if err != nil {
		return nil, err
	}
	if k.token != "" {
		token, err := secretfile.Read(k.token, maxFileSize)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	if k.ca != "" {
		pem, err := secretfile.Read(k.ca, maxFileSize)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", k.ca)
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	// A redirect could lead to a location that is not configured.
	client := &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", k.location, response.Status)
	}
	return readBounded(response.Body, k.location)
}

func readBounded(r io.Reader, what string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFileSize+1))
	if err == nil && len(text) > maxFileSize {
		err = fmt.Errorf("%s is larger than %d bytes", what, maxFileSize)
	}
	return text, err
}

// parseKeys returns the keys that can verify signatures; keys for other uses are ignored.
func parseKeys(text []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if err := k.UnmarshalJSON(raw); err == nil && isPublicKey(k) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("key set: holds no public key for signatures")
	}
	return keys, nil
}

// isPublicKey excludes symmetric keys: one that is published is no secret.
func isPublicKey(k jose.JSONWebKey) bool {
	if k.Use != "" && k.Use != "sig" || !k.Valid() {
		return false
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}
