package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/api/workerstream"
	"github.com/fermata-io/fermata/internal/auth/authn"
	"github.com/fermata-io/fermata/internal/test/issuertest"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/tlstest"
)

// trialNode answers calls about identities by an access file, which names an issuer and a static token.
type trialNode struct {
	*organization
	dir    string
	access string
	behind atomic.Int64 // the clock of the node against that of this host
}

const trialAccess = `
tokens:
  - {name: ci, token-file: DIR/ci.token}
  - {name: old, token-file: DIR/old.token, expires: 2020-01-01T00:00:00Z}
jwt:
  - {name: org, issuer: "ISSUER", audience: fermata-cli, jwks: "JWKS", jwks-ca: DIR/issuer.pem, refetch: 1s}
rules:
  - {subjects: ["jwt:org:ann", "token:ci"], role: viewer, namespaces: ["*"]}
`

func startTrialNode(t *testing.T) *trialNode {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	n := &trialNode{organization: &organization{t: t, issuer: issuertest.New(t)}, dir: t.TempDir()}
	server := httptest.NewTLSServer(n.issuer)
	t.Cleanup(server.Close)
	n.issuer.URL, n.issuer.Now = server.URL, n.now
	n.write("issuer.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	n.write("ci.token", "ci-token-that-nobody-can-guess-1")
	n.write("old.token", "old-token-that-nobody-can-guess-2")
	n.access = strings.NewReplacer("DIR", n.dir, "ISSUER", server.URL, "JWKS", server.URL+"/keys").Replace(trialAccess)
	source, err := authn.Open(t.Context(), authn.Options{
		Path: n.write("access.yaml", n.access), Poll: 10 * time.Millisecond,
		Now: func() time.Time { return n.now().Add(-time.Duration(n.behind.Load())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); source.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	n.address = identityNode(t, rpc.Options{Authority: source, LeaseSigningKey: bytes.Repeat([]byte("k"), workerstream.MinKeyBytes)})
	n.flags = []string{"--address", n.address, "--request-timeout", "20s"}
	t.Setenv("FERMATA_OIDC_CA", filepath.Join(n.dir, "issuer.pem"))
	return n
}

func (n *trialNode) write(name, text string) string {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return path
}

func (n *trialNode) login(more ...string) []string {
	return append([]string{"login", "--oidc-issuer", n.issuer.URL, "--oidc-client-id", "fermata-cli"}, more...)
}

// signed writes a token of the issuer into a file, and gives the flags that use it.
func (n *trialNode) signed(change func(*issuertest.Issuer) map[string]any) []string {
	n.t.Helper()
	var token string
	n.issuer.Set(func(i *issuertest.Issuer) { token = i.Sign(change(i)) })
	return []string{"whoami", "--token-file", n.write("signed.token", token)}
}

// TestRefusedCredentials: a credential that a node does not accept is refused with the cause and the next step.
func TestRefusedCredentials(t *testing.T) {
	n := startTrialNode(t)
	good := func(*issuertest.Issuer) map[string]any { return map[string]any{"aud": "fermata-cli"} }
	n.wants(0, []string{"jwt:org:ann", "viewer"}, n.signed(good)...)
	at := func(d time.Duration) int64 { return n.now().Add(d).Unix() }
	stranger := issuertest.New(t)
	stranger.URL = n.issuer.URL
	n.wants(7, []string{"give a token", "fermata login", "--token-file"}, "whoami")
	n.wants(7, []string{"neither the token nor its issuer", "ask for a new token"}, "whoami", "--token-file", n.write("gone.token", "fermata_gone"))
	n.wants(7, []string{"has expired", "put a new token into --token-file"}, "whoami", "--token-file", filepath.Join(n.dir, "old.token"))
	for _, c := range []struct {
		claims map[string]any
		texts  []string
	}{
		{map[string]any{"aud": "fermata-cli", "exp": at(-2 * time.Minute)}, []string{"has expired", "sign in again by: fermata login", "compare the clocks"}},
		{map[string]any{"aud": "another"}, []string{"for another audience", "--oidc-client-id"}},
		{map[string]any{"aud": "fermata-cli", "iat": at(2 * time.Minute)}, []string{"not valid yet", "compare the clocks of the issuer and of the nodes"}},
		{map[string]any{"aud": "fermata-cli", "nbf": at(2 * time.Minute)}, []string{"not valid yet", "leeway"}},
		{map[string]any{"aud": "fermata-cli", "iss": "https://another"}, []string{"neither the token nor its issuer", "fermata login --status"}},
		{map[string]any{"aud": "fermata-cli", "sub": ""}, []string{"claims of the token", "name-claim"}},
	} {
		n.wants(7, c.texts, n.signed(func(*issuertest.Issuer) map[string]any { return c.claims })...)
	}
	n.wants(7, []string{"none of the keys", "repeat the command in half a minute"},
		"whoami", "--token-file", n.write("stranger.token", stranger.Sign(map[string]any{"aud": "fermata-cli"})))
	n.wants(7, []string{"neither a JWT nor a known token", "--token-file has to hold one token"}, "whoami", "--token-file", n.write("odd.token", "a.b.c"))
	// The clock of the node is behind the issuer's.
	n.behind.Store(int64(5 * time.Minute))
	n.wants(7, []string{"not valid yet", "compare the clocks"}, n.signed(good)...)
	n.behind.Store(0)
	// An operator takes the token, and then the issuer, out of the access file.
	ci := []string{"whoami", "--token-file", filepath.Join(n.dir, "ci.token")}
	n.wants(0, []string{"token:ci"}, ci...)
	n.wants(0, nil, n.login()...)
	n.write("access.yaml", "tokens: [{name: other, sha256: "+strings.Repeat("ab", 32)+"}]\nrules: [{subjects: [\"*\"], role: viewer, namespaces: [\"*\"]}]\n")
	redistest.Eventually(t, redistest.Patience, "the file is in force", func(context.Context) error {
		if code, _, _ := n.run(ci...); code != 7 {
			return errors.New("the token is accepted")
		}
		return nil
	})
	n.wants(7, []string{"the access file may not have it any more", "ask for a new token"}, ci...)
	n.wants(7, []string{"neither the token nor its issuer", "fermata login --status"}, "whoami")
	n.wants(7, []string{"signed in as ann", "The session is kept", "neither the token nor its issuer"}, n.login()...)
}

// TestKeysOfAnUnreachableIssuer: a node that cannot ask the issuer says so, and that the call may be repeated.
func TestKeysOfAnUnreachableIssuer(t *testing.T) {
	var away atomic.Bool
	away.Store(true)
	n := startTrialNode(t)
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if away.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		n.issuer.ServeHTTP(w, q)
	}))
	t.Cleanup(gate.Close)
	n.write("access.yaml", strings.Replace(n.access, `jwks: "`+n.issuer.URL+`/keys", jwks-ca: `+n.dir+"/issuer.pem", `jwks: "`+gate.URL+`/keys"`, 1))
	n.wants(0, []string{"signed in as ann"}, n.login()...)
	redistest.Eventually(t, redistest.Patience, "the node has no keys", func(context.Context) error {
		if code, out, errs := n.run("whoami"); code != 5 {
			return fmt.Errorf("exit code %d\n%s%s", code, out, errs)
		}
		return nil
	})
	n.wants(5, []string{"cannot get the keys of the token's issuer", "the node answers, but cannot reach the issuer"}, "whoami")
	n.wants(0, []string{"signed in as ann", "warning: no node confirmed who you are", "fermata whoami"}, n.login()...)
	away.Store(false)
	redistest.Eventually(t, redistest.Patience, "the issuer is back", func(context.Context) error {
		if code, out, errs := n.run("whoami"); code != 0 {
			return fmt.Errorf("exit code %d\n%s%s", code, out, errs)
		}
		return nil
	})
}

// TestFailedSignIns: what an issuer refuses, or fails with, is said with the next step, and no body of an answer.
func TestFailedSignIns(t *testing.T) {
	n := startTrialNode(t)
	refusal := func(code string) func(*issuertest.Issuer) {
		return func(i *issuertest.Issuer) { i.Answers = []string{code} }
	}
	describe := func(change func(map[string]any)) func(*issuertest.Issuer) {
		return func(i *issuertest.Issuer) { i.Change = change }
	}
	nothing := func(*issuertest.Issuer) {}
	authority := tlstest.New(t, "another")
	other := tlstest.NewDir(t, authority.Issue(tlstest.Identity{Name: "another"}), authority)
	for _, c := range []struct {
		what   string
		change func(*issuertest.Issuer)
		more   []string
		code   int
		texts  []string
	}{
		{"nobody there", nothing, []string{"--oidc-issuer", "http://127.0.0.1:1"}, 5, []string{"cannot be reached", "is --oidc-issuer right"}},
		{"a server that is no issuer", nothing, []string{"--oidc-issuer", n.issuer.URL + "/else"}, 1, []string{"404", "openid-configuration"}},
		{"another name", describe(func(about map[string]any) { about["issuer"] = "https://another" }), nil, 1, []string{"https://another", "letter by letter"}},
		{"another authority", nothing, []string{"--oidc-ca", other.CA}, 1, []string{"is not trusted", "--oidc-ca"}},
		{"no device flow", describe(func(about map[string]any) { delete(about, "device_authorization_endpoint") }), nil, 1, []string{"device flow is off", "--token-file"}},
		{"an unknown client", refusal("invalid_client"), nil, 1, []string{"invalid_client", "--oidc-client-id", "--oidc-client-secret-file"}},
		{"a client without the flow", refusal("unauthorized_client"), nil, 1, []string{"unauthorized_client", "device flow"}},
		{"a scope", refusal("invalid_scope"), nil, 1, []string{"invalid_scope", "--oidc-scopes"}},
		{"an unknown code", refusal("teapot"), nil, 1, []string{"teapot", "log of the issuer"}},
		{"denied", refusal("access_denied"), nil, 7, []string{"denied", "fermata login"}},
		{"too late", refusal("expired_token"), nil, 7, []string{"expired", "fermata login"}},
		{"another audience", func(i *issuertest.Issuer) { i.Audience = "another" }, nil, 1, []string{"audience", "--oidc-client-id"}},
		{"no ID token", func(i *issuertest.Issuer) { i.NoIDToken = true }, nil, 1, []string{"no ID token", "--oidc-token"}},
		{"the clock of this host is ahead", func(i *issuertest.Issuer) { i.TTL = -time.Minute }, nil, 1, []string{"clocks", "set the clock of this host"}},
		{"text that steers a terminal", describe(func(about map[string]any) { about["issuer"] = "https://a\x1b[31m" + strings.Repeat("x", 5000) }), nil, 1, []string{"letter by letter"}},
	} {
		n.issuer.Set(c.change)
		code, out, errs := n.run(n.login(c.more...)...)
		if code != c.code || out != "" {
			t.Errorf("%s: exit code %d, want %d\n%s%s", c.what, code, c.code, out, errs)
		}
		for _, text := range c.texts {
			if !strings.Contains(errs, text) {
				t.Errorf("%s: no %q:\n%s", c.what, text, errs)
			}
		}
		if strings.Contains(errs, "\x1b") || strings.Contains(errs, "eyJ") || len(errs) > 1500 {
			t.Errorf("%s: %q", c.what, errs)
		}
		n.wants(7, []string{"not signed in"}, "login", "--status")
		n.issuer.Set(func(i *issuertest.Issuer) {
			i.Change, i.Answers, i.Audience, i.NoIDToken, i.TTL = nil, nil, "", false, time.Hour
		})
	}
}
