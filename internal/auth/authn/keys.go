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

// Bounds of asking for keys.
const (
	fetchTimeout   = 5 * time.Second
	refreshEvery   = 10 * time.Minute
	defaultRefetch = 30 * time.Second
	minRSABits     = 2048
)

// keySource is where the keys of an issuer are.
type keySource struct {
	location  string // https URL, or path of a file
	ca, token string // files; of a URL only
	refetch   time.Duration
}

// check says what is wrong with a place to get keys from.
func (k keySource) check() error {
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
	case u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return errors.New("jwks: keys that come unprotected could be anybody's: want https, or http from loopback")
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// keySet is the keys of one issuer, as last fetched.
type keySet struct {
	from   keySource
	logger *slog.Logger
	now    func() time.Time

	fetching sync.Mutex // held by whoever fetches

	mu     sync.Mutex
	keys   []jose.JSONWebKey
	known  bool      // keys were fetched once
	tried  time.Time // the last fetch began
	failed bool      // the last fetch failed, which was logged
}

// find returns the keys that a signature may be of. One that is not known is
// looked for at the issuer, but not more often than refetch, and not when ctx is over.
// complete is false if the issuer could not be asked last: it may have keys that are not known here.
func (s *keySet) find(ctx context.Context, kid string) (keys []jose.JSONWebKey, complete bool) {
	if keys, complete = s.cached(kid); len(keys) > 0 || ctx.Err() != nil {
		return keys, complete
	}
	s.refresh(ctx, s.from.refetch)
	return s.cached(kid)
}

// cached returns the keys of an id. Without an id there must be one key only.
func (s *keySet) cached(kid string) (found []jose.JSONWebKey, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	complete = s.known && !s.failed
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

// keep fetches the keys when they are old, or the last fetch failed a while ago.
func (s *keySet) keep(ctx context.Context) {
	pause := refreshEvery
	s.mu.Lock()
	if s.failed || !s.known {
		pause = min(pause, s.from.refetch)
	}
	s.mu.Unlock()
	s.refresh(ctx, pause)
}

// refresh fetches keys unless that was tried within pause. Callers at once share
// one fetch.
func (s *keySet) refresh(ctx context.Context, pause time.Duration) {
	s.fetching.Lock()
	defer s.fetching.Unlock()
	s.mu.Lock()
	now := s.now()
	early := !s.tried.IsZero() && now.Sub(s.tried) < pause
	if !early {
		s.tried = now
	}
	s.mu.Unlock()
	if early {
		return
	}
	// A caller that leaves must not cost the others the keys.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	keys, err := s.fetch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		if s.failed {
			s.logger.Info("fetched the keys of a token issuer again", "jwks", s.from.location, "keys", len(keys))
		}
		s.keys, s.known, s.failed = keys, true, false
	case !s.failed:
		s.failed = true
		s.logger.Warn("failed to fetch the keys of a token issuer: tokens of other keys than the known ones are refused meanwhile",
			"jwks", s.from.location, "known", len(s.keys), "retry", s.from.refetch, "error", err)
	}
}

func (s *keySet) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	var text []byte
	var err error
	if strings.Contains(s.from.location, "://") {
		text, err = s.from.download(ctx)
	} else {
		text, err = secretfile.Read(s.from.location, maxFile)
	}
	if err != nil {
		return nil, err
	}
	return parseKeys(text)
}

func (k keySource) download(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.location, nil)
	if err != nil {
		return nil, err
	}
	if k.token != "" {
		token, err := secretfile.Read(k.token, maxFile)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	if k.ca != "" {
		pem, err := secretfile.Read(k.ca, maxFile)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", k.ca)
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	// A redirect could lead to a place that nobody has configured.
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
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
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", what, maxFile)
	}
	return text, err
}

// parseKeys keeps the keys that signatures can be checked with; others, which are
// for other uses, are passed over.
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
		if err := k.UnmarshalJSON(raw); err == nil && usable(k) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("key set: holds no public key for signatures")
	}
	return keys, nil
}

// usable leaves out what is not a public key: a symmetric one in a public place is
// known to everybody.
func usable(k jose.JSONWebKey) bool {
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
