package dex_test

import (
	"context"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"golang.org/x/crypto/bcrypt"
)

const (
	clientID = "fermata-cli"
	// consoleClientID is the client of the web console. Its tokens name the other client too, which nodes want.
	consoleClientID = "fermata-console"
	// consolePath is that below which the gateway serves.
	consolePath = "/ops/fermata"
	email       = "ann@example.org"
	password    = "correct horse battery staple"
)

// provider is Dex on TLS, with one user and two public clients.
type provider struct {
	t       *testing.T
	store   storage.Storage
	handler atomic.Pointer[http.Handler]
	server  *httptest.Server
	ca      string
	life    time.Duration // of an ID token
	console string        // address of the web console
}

func startProvider(t *testing.T, life time.Duration) *provider {
	t.Helper()
	p := &provider{t: t, life: life, console: freeAddress(t)}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		t.Fatal(err)
	}
	s := memory.New(slog.New(slog.DiscardHandler))
	s = storage.WithStaticClients(s, []storage.Client{
		{ID: clientID, Name: "Fermata", Public: true, TrustedPeers: []string{consoleClientID}},
		{ID: consoleClientID, Name: "Fermata console", Public: true,
			RedirectURIs: []string{"http://" + p.console + consolePath + "/console/callback"}},
	})
	s = storage.WithStaticPasswords(s, []storage.Password{{Email: email, Username: "ann", UserID: "08a8684b", Hash: hash}}, slog.New(slog.DiscardHandler))
	p.store = storage.WithStaticConnectors(s, []storage.Connector{{ID: server.LocalConnector, Name: "Email", Type: server.LocalConnector}})
	p.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { (*p.handler.Load()).ServeHTTP(w, q) }))
	t.Cleanup(p.server.Close)
	p.ca = filepath.Join(t.TempDir(), "dex.pem")
	if err := os.WriteFile(p.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	p.renewKeys()
	return p
}

// renewKeys starts Dex anew on the same storage, which replaces its signing key at once.
func (p *provider) renewKeys() {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p.t.Cleanup(cancel)
	quiet := slog.New(slog.DiscardHandler)
	// The second argument turns rotation off. Without the last one no refresh token may come a second time.
	policy, err := server.NewRefreshTokenPolicy(quiet, false, "", "", "")
	if err != nil {
		p.t.Fatal(err)
	}
	dex, err := server.NewServer(ctx, server.Config{
		Issuer: p.server.URL, Storage: p.store, SkipApprovalScreen: true, Logger: quiet, RefreshTokenPolicy: policy,
		IDTokensValidFor: p.life, RotateKeysAfter: time.Millisecond,
		AllowedGrantTypes: []string{"urn:ietf:params:oauth:grant-type:device_code", "refresh_token", "authorization_code"},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	var h http.Handler = dex
	p.handler.Store(&h)
}

// endSessions has the issuer accept no refresh token any more.
func (p *provider) endSessions() {
	p.t.Helper()
	all, err := p.store.ListRefreshTokens()
	for _, token := range all {
		if err == nil {
			err = p.store.DeleteRefresh(token.ID)
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// goAway has the issuer answer nothing but failures, until renewKeys.
func (p *provider) goAway() {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	p.handler.Store(&h)
}
