package signin

import (
	"context"
	"encoding/pem"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"

	"github.com/fermata-io/fermata/internal/test/issuertest"
)

// bed is an issuer on TLS and a store whose clock the test moves.
type bed struct {
	*issuertest.Issuer
	store    *Store
	settings Settings
	mu       sync.Mutex
	ahead    time.Duration
}

func (b *bed) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Add(b.ahead)
}

func (b *bed) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ahead += d
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{Issuer: issuertest.New(t)}
	server := httptest.NewTLSServer(b.Issuer)
	t.Cleanup(server.Close)
	b.URL, b.Now = server.URL, b.now
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	b.store = NewStore(filepath.Join(t.TempDir(), "fermata", "sessions"), b.now)
	b.settings = Settings{Issuer: b.URL, ClientID: "cli", CAFile: ca}
	return b
}

var servers = []string{"node-b:7070", "node-a:7070"}

func (b *bed) login(t *testing.T) *Session {
	t.Helper()
	session, err := b.store.Login(t.Context(), b.settings, servers, func(Prompt) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// TestSessionIsFoundByItsServersAlone: no address that its owner did not name gets the token.
func TestSessionIsFoundByItsServersAlone(t *testing.T) {
	b := newBed(t)
	if _, err := b.store.Find("", "", servers); !errors.Is(err, ErrNone) {
		t.Errorf("before the sign-in: %v", err)
	}
	var shown Prompt
	session, err := b.store.Login(t.Context(), b.settings, servers, func(p Prompt) error { shown = p; return nil })
	if err != nil || session.Subject != "ann" || session.Name != "ann@example.org" || session.Bearer == "" || session.Refresh != "refresh-1" {
		t.Fatalf("%+v, %v", session, err)
	}
	if shown.Code != "ABCD-EFGH" || shown.URL != b.URL+"/go" || !strings.Contains(shown.Complete, "ABCD-EFGH") || shown.Expires.IsZero() {
		t.Errorf("shown: %+v", shown)
	}
	for _, c := range []struct {
		issuer, client string
		servers        []string
		want           error
	}{
		{"", "", []string{"node-a:7070"}, nil}, {"", "", []string{"NODE-B:7070", "node-a:7070"}, nil}, {b.URL, "cli", servers, nil},
		{"", "", []string{"node-c:7070"}, ErrNone}, {"", "", []string{"node-a:7070", "node-c:7070"}, ErrNone}, {"", "", nil, ErrNone},
		{"", "", []string{"node-a:7071"}, ErrNone}, {"https://other", "", servers, ErrNone}, {"", "other", servers, ErrNone},
	} {
		if found, err := b.store.Find(c.issuer, c.client, c.servers); !errors.Is(err, c.want) || (found == nil) != (c.want != nil) {
			t.Errorf("%+v: %v, %v", c, found, err)
		}
	}
	b.settings.ClientID = "second"
	b.login(t)
	if _, err := b.store.Find("", "", servers); !errors.Is(err, ErrSeveral) {
		t.Errorf("of two: %v", err)
	}
	if found, err := b.store.Find("", "second", servers); err != nil || found.ClientID != "second" {
		t.Errorf("the second: %v, %v", found, err)
	}
}

// TestFilesThatOthersMayUseAreRefused, and none of ours is one.
func TestFilesThatOthersMayUseAreRefused(t *testing.T) {
	b := newBed(t)
	path := b.login(t).filePath(b.store.dir)
	mode := func(path string) fs.FileMode {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	entries, err := os.ReadDir(b.store.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if got := mode(filepath.Join(b.store.dir, e.Name())); got != 0o600 {
			t.Errorf("%s has mode %o", e.Name(), got)
		}
	}
	if got := mode(b.store.dir); got != 0o700 || len(entries) != 2 {
		t.Errorf("the directory has mode %o, and %d files", got, len(entries))
	}
	refused := func(what string, undo func() error) {
		t.Helper()
		_, err := b.store.Find("", "", servers)
		if !errors.Is(err, ErrUnsafe) || strings.Contains(err.Error(), "refresh-1") {
			t.Errorf("%s: %v", what, err)
		}
		if err := undo(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.store.Find("", "", servers); err != nil {
			t.Fatalf("after %s: %v", what, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, wide := range []fs.FileMode{0o640, 0o604, 0o620, 0o602, 0o610} {
		must(os.Chmod(path, wide))
		refused(wide.String(), func() error { return os.Chmod(path, 0o600) })
	}
	for _, wide := range []fs.FileMode{0o750, 0o705, 0o720, 0o701} {
		must(os.Chmod(b.store.dir, wide))
		refused(wide.String(), func() error { return os.Chmod(b.store.dir, 0o700) })
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	must(os.Rename(path, elsewhere))
	must(os.Symlink(elsewhere, path))
	refused("a link", func() error { return errors.Join(os.Remove(path), os.Rename(elsewhere, path)) })
	must(os.Link(path, elsewhere))
	refused("a second name", func() error { return os.Remove(elsewhere) })
	must(os.Rename(b.store.dir, elsewhere))
	must(os.Symlink(elsewhere, b.store.dir))
	refused("a linked directory", func() error { return errors.Join(os.Remove(b.store.dir), os.Rename(elsewhere, b.store.dir)) })
	if os.Geteuid() == 0 {
		must(os.Chown(path, 12345, -1))
		refused("another owner", func() error { return os.Chown(path, 0, -1) })
		must(os.Chown(b.store.dir, 12345, -1))
		refused("a directory of another owner", func() error { return os.Chown(b.store.dir, 0, -1) })
	}
	must(os.WriteFile(path, []byte("{}"), 0o600))
	if _, err := b.store.Find("", "", servers); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("what is no session: %v", err)
	}
}

// TestRefreshTokenIsUsedOnce by many processes, each with its own source, at the same time.
func TestRefreshTokenIsUsedOnce(t *testing.T) {
	b := newBed(t)
	b.login(t)
	for round := 1; round <= 3; round++ {
		var sources []*Source
		for range 8 {
			session, err := b.store.Find("", "", servers)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, b.store.Source(session))
		}
		b.pass(b.TTL - 30*time.Second)
		var wg sync.WaitGroup
		got := make([]string, len(sources))
		for i, source := range sources {
			wg.Go(func() {
				var err error
				if got[i], err = source.Token(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, token := range got[1:] {
			if token != got[0] {
				t.Error("they have different tokens")
			}
		}
		if polls := 1; b.Calls("/token") != polls+round || b.Reused() != 0 {
			t.Errorf("round %d: %d exchanges, %d with a used token", round, b.Calls("/token")-polls, b.Reused())
		}
	}
}

// TestSessionThatEnds says so once and for all; one whose issuer is away goes on with what it has.
func TestSessionThatEnds(t *testing.T) {
	b := newBed(t)
	source := b.store.Source(b.login(t))
	first, err := source.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.pass(b.TTL - 30*time.Second)
	b.Set(func(i *issuertest.Issuer) {
		i.Change = func(about map[string]any) { about["issuer"] = "https://another" }
	})
	if again, err := source.Token(t.Context()); err != nil || again != first {
		t.Errorf("with the issuer away: %v", err)
	}
	b.pass(time.Minute)
	if token, err := source.Token(t.Context()); err == nil || errors.Is(err, ErrEnded) {
		t.Errorf("%q after its end: %v", token, err)
	}
	b.Set(func(i *issuertest.Issuer) { i.Change = nil })
	if again, err := source.Token(t.Context()); err != nil || again == first {
		t.Errorf("with the issuer back: %v", err)
	}
	b.End()
	b.pass(b.TTL)
	if token, err := source.Token(t.Context()); !errors.Is(err, ErrEnded) || token != "" || strings.Contains(err.Error(), "refresh-") {
		t.Errorf("%q, %v", token, err)
	}
	if _, err := b.store.Find("", "", servers); !errors.Is(err, ErrNone) {
		t.Errorf("afterwards: %v", err)
	}
	if token, err := source.Token(t.Context()); !errors.Is(err, ErrNone) || token != "" {
		t.Errorf("once more: %q, %v", token, err)
	}
}

// TestRefreshForAnotherUserIsRefused, and so is a token that the issuer has not signed, or not for us.
func TestRefreshForAnotherUserIsRefused(t *testing.T) {
	b := newBed(t)
	source := b.store.Source(b.login(t))
	b.pass(b.TTL)
	b.Set(func(i *issuertest.Issuer) { i.Subject = "eve" })
	if token, err := source.Token(t.Context()); !errors.Is(err, ErrEnded) || token != "" {
		t.Errorf("%q, %v", token, err)
	}
	for what, c := range map[string]struct {
		change func(*bed)
		want   string
	}{
		"another audience":           {func(b *bed) { b.Audience = "somebody" }, "audience"},
		"another client":             {func(b *bed) { b.AuthorizedParty = "other-client" }, "azp"},
		"not the audience asked for": {func(b *bed) { b.settings.Audience = "fermata" }, "--oidc-audience"},
		"expired":                    {func(b *bed) { b.TTL = -time.Minute }, "expired"},
		"no ID token":                {func(b *bed) { b.NoIDToken = true }, "no ID token"},
		"an opaque access token":     {func(b *bed) { b.settings.Token, b.OpaqueAccess = AccessToken, true }, "no JWT"},
		"another issuer's keys": {func(b *bed) {
			b.Change = func(about map[string]any) { about["jwks_uri"] = "http://example.org/keys" }
		}, "jwks_uri"},
		"another issuer's name": {func(b *bed) { b.Change = func(about map[string]any) { about["issuer"] = "https://another" } }, "issuer"},
		"tokens in the clear": {func(b *bed) {
			b.Change = func(about map[string]any) { about["token_endpoint"] = "http://example.org/token" }
		}, "token_endpoint"},
		"no device flow": {func(b *bed) {
			b.Change = func(about map[string]any) { delete(about, "device_authorization_endpoint") }
		}, "device flow"},
		"an issuer in the clear":  {func(b *bed) { b.settings.Issuer = "http://example.org" }, "--oidc-issuer"},
		"a name in the address":   {func(b *bed) { b.settings.Issuer = "https://user:secret@example.org" }, "--oidc-issuer"},
		"no client":               {func(b *bed) { b.settings.ClientID = "" }, "--oidc-client-id"},
		"a certificate of others": {func(b *bed) { b.settings.CAFile = "" }, "certificate"},
		"a redirect":              {func(b *bed) { b.Change = func(about map[string]any) { about["token_endpoint"] = b.URL + "/elsewhere" } }, "404"},
	} {
		b := newBed(t)
		c.change(b)
		_, err := b.store.Login(t.Context(), b.settings, servers, func(Prompt) error { return nil })
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "device-secret") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := b.store.Find("", "", servers); !errors.Is(err, ErrNone) {
			t.Errorf("%s: a session: %v", what, err)
		}
	}
}

// TestAuthorizedParty: an ID token may name this client as the one that it was issued to. An access token may name
// any client: it is for its audience.
func TestAuthorizedParty(t *testing.T) {
	b := newBed(t)
	b.AuthorizedParty = b.settings.ClientID
	b.login(t)
	b = newBed(t)
	b.settings.Token, b.AuthorizedParty = AccessToken, "other-client"
	b.login(t)
}

// TestAccessTokenOfAnAudience is kept where it is asked for.
func TestAccessTokenOfAnAudience(t *testing.T) {
	b := newBed(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("client-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Audience, b.NoIDToken, b.NoRefresh = "fermata", true, true
	b.settings.Token, b.settings.Audience, b.settings.Scopes, b.settings.ClientSecretFile = AccessToken, "fermata", []string{"groups", "openid"}, secret
	session := b.login(t)
	asked := b.Form("/device")
	if asked["audience"][0] != "fermata" || asked["scope"][0] != "openid groups" || asked["client_secret"][0] != "client-secret" {
		t.Errorf("asked for %v", asked)
	}
	source := b.store.Source(session)
	if token, err := source.Token(t.Context()); err != nil || token != session.Bearer {
		t.Errorf("%v", err)
	}
	b.pass(b.TTL)
	if _, err := source.Token(t.Context()); !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), "offline_access") {
		t.Errorf("without a refresh token: %v", err)
	}
}

// TestClockOfThisHostIsBehind: the token is refreshed before it expires by the clocks of the issuer and the nodes.
func TestClockOfThisHostIsBehind(t *testing.T) {
	b := newBed(t)
	b.Now = time.Now
	b.pass(-10 * time.Minute)
	source := b.store.Source(b.login(t))
	for _, c := range []struct {
		pass  time.Duration
		calls int
	}{{55 * time.Minute, 1}, {4*time.Minute + 30*time.Second, 2}} {
		b.pass(c.pass)
		if _, err := source.Token(t.Context()); err != nil || b.Calls("/token") != c.calls {
			t.Errorf("%d exchanges, want %d (%v)", b.Calls("/token"), c.calls, err)
		}
	}
}

// TestLogoutRevokes what was refreshed last, and removes the session if the issuer fails.
func TestLogoutRevokes(t *testing.T) {
	b := newBed(t)
	session := b.login(t)
	b.pass(b.TTL)
	if _, err := b.store.Source(session).Token(t.Context()); err != nil {
		t.Fatal(err)
	}
	stale := *session
	stale.Refresh = "refresh-1"
	if err := b.store.Logout(t.Context(), &stale); err != nil {
		t.Fatal(err)
	}
	if got := b.Revoked(); len(got) != 1 || got[0] != "refresh-2" {
		t.Errorf("revoked: %q", got)
	}
	if _, err := b.store.Find("", "", servers); !errors.Is(err, ErrNone) {
		t.Errorf("afterwards: %v", err)
	}
	session = b.login(t)
	b.Set(func(i *issuertest.Issuer) {
		i.Change = func(about map[string]any) { about["revocation_endpoint"] = i.URL + "/nowhere" }
	})
	if err := b.store.Logout(t.Context(), session); err == nil || !strings.Contains(err.Error(), "has not revoked it") {
		t.Errorf("an issuer that fails: %v", err)
	}
	if _, err := b.store.Find("", "", servers); !errors.Is(err, ErrNone) {
		t.Errorf("the session is still there: %v", err)
	}
	session = b.login(t)
	b.Set(func(i *issuertest.Issuer) {
		i.Change = func(about map[string]any) { delete(about, "revocation_endpoint") }
	})
	if err := b.store.Logout(t.Context(), session); !errors.Is(err, ErrNotRevoked) {
		t.Errorf("an issuer without revocation: %v", err)
	}
	if _, err := b.store.Find("", "", servers); !errors.Is(err, ErrNone) {
		t.Errorf("the session is still there: %v", err)
	}
}

// handled answers requests without a network.
type handled struct{ http.Handler }

func (h handled) RoundTrip(q *http.Request) (*http.Response, error) {
	r := httptest.NewRecorder()
	h.ServeHTTP(r, q)
	return r.Result(), nil
}

// TestPolling: it is as slow as the issuer asks for, outlives its failures, and ends with the
// code, with a denial, or with the caller.
func TestPolling(t *testing.T) {
	for what, c := range map[string]struct {
		answers []string
		life    time.Duration
		cancel  time.Duration
		want    error
		took    time.Duration
		polls   int
	}{
		"at once":             {took: 2 * time.Second, polls: 1},
		"pending":             {answers: []string{"authorization_pending", "authorization_pending"}, took: 6 * time.Second, polls: 3},
		"slow down":           {answers: []string{"slow_down", "slow_down"}, took: 21 * time.Second, polls: 3},
		"failures":            {answers: []string{"500", "authorization_pending", "500"}, took: 22 * time.Second, polls: 4},
		"denied":              {answers: []string{"access_denied"}, want: ErrDenied, took: 2 * time.Second, polls: 1},
		"expired, by issuer":  {answers: []string{"expired_token"}, want: ErrCodeExpired, took: 2 * time.Second, polls: 1},
		"expired, by time":    {answers: []string{"authorization_pending", "authorization_pending", "authorization_pending"}, life: 5 * time.Second, want: ErrCodeExpired, took: 5 * time.Second, polls: 2},
		"given up by Ctrl-C":  {cancel: 1500 * time.Millisecond, want: context.Canceled, took: 1500 * time.Millisecond},
		"given up in between": {answers: []string{"slow_down"}, cancel: 4 * time.Second, want: context.Canceled, took: 4 * time.Second, polls: 1},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := issuertest.New(t)
				server.URL, server.Interval, server.Answers = "https://issuer", 2, c.answers
				if c.life > 0 {
					server.CodeTTL = c.life
				}
				i := &issuer{settings: Settings{Issuer: server.URL}, client: &http.Client{Transport: handled{server}}}
				i.config = oauth2.Config{ClientID: "cli", Endpoint: oauth2.Endpoint{
					DeviceAuthURL: server.URL + "/device", TokenURL: server.URL + "/token", AuthStyle: oauth2.AuthStyleInParams,
				}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				begun := time.Now()
				token, err := i.askUser(ctx, func(Prompt) error { return nil })
				if !errors.Is(err, c.want) || (token == nil) != (c.want != nil) {
					t.Errorf("%v, %v", token, err)
				}
				if took := time.Since(begun); took != c.took || server.Calls("/token") != c.polls {
					t.Errorf("%v and %d polls, want %v and %d", took, server.Calls("/token"), c.took, c.polls)
				}
			})
		})
	}
}
