package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/test/issuertest"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/tlstest"
)

// organization is an issuer, and a node that believes it.
type organization struct {
	t       *testing.T
	issuer  *issuertest.Issuer
	address string
	flags   []string // by which the node and the issuer are reached
	ahead   atomic.Int64
}

func (o *organization) now() time.Time { return time.Now().Add(time.Duration(o.ahead.Load())) }

func startOrganization(t *testing.T) *organization {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	o := &organization{t: t, issuer: issuertest.New(t)}
	server := httptest.NewTLSServer(o.issuer)
	t.Cleanup(server.Close)
	o.issuer.URL, o.issuer.Now = server.URL, o.now
	files := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(files, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	issuerCA := write("issuer.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	access := write("access.yaml", fmt.Sprintf(`jwt:
  - {name: org, issuer: %q, audience: fermata-cli, jwks: %q, jwks-ca: %q}
rules:
  - {subjects: ["jwt:org:ann"], role: editor, namespaces: [default]}
`, server.URL, server.URL+"/keys", issuerCA))
	authority := tlstest.New(t, "nodes")
	dir := tlstest.NewDir(t, authority.Issue(tlstest.Identity{Name: "node"}), authority)
	n, err := node.New(node.Config{
		Name: "a", GRPCAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0",
		AllowUnsafeRedis: true, AccessFile: access, TLS: tlsfiles.Files{Cert: dir.Cert, Key: dir.Key}, Shards: 4,
		Redis: conn.ClientOptions{URL: redistest.Start(t).URL(), ReadTimeout: 10 * time.Second},
	})
	if err == nil {
		err = n.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	o.address = n.GRPCAddr()
	o.flags = []string{"--address", o.address, "--tls-ca", dir.CA, "--request-timeout", "1m"}
	t.Setenv("FERMATA_OIDC_CA", issuerCA)
	return o
}

func (o *organization) run(args ...string) (code int, out, errs string) {
	o.t.Helper()
	return o.runAt(o.t.Context(), append(args, o.flags...)...)
}

func (o *organization) runAt(ctx context.Context, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = runCommand(ctx, args, standardStreams{strings.NewReader(""), &stdout, &stderr}, o.now)
	return code, stdout.String(), stderr.String()
}

// wants runs a command line that ends with a code and prints, in both streams, all of the texts.
func (o *organization) wants(code int, texts []string, args ...string) {
	o.t.Helper()
	got, out, errs := o.run(args...)
	if got != code {
		o.t.Errorf("%v: exit code %d, want %d\n%s%s", args, got, code, out, errs)
	}
	for _, text := range texts {
		if !strings.Contains(out+errs, text) {
			o.t.Errorf("%v prints no %q:\n%s%s", args, text, out, errs)
		}
	}
	for _, secret := range []string{"eyJ", "refresh-", "device-secret"} {
		if strings.Contains(out+errs, secret) {
			o.t.Errorf("%v prints a secret:\n%s%s", args, out, errs)
		}
	}
}

// TestSignInWholePath: device flow, a real node that verifies by the issuer's keys, refresh, the
// end of the session, and its removal.
func TestSignInWholePath(t *testing.T) {
	o := startOrganization(t)
	signIn := []string{"login", "--oidc-issuer", o.issuer.URL, "--oidc-client-id", "fermata-cli"}
	o.wants(7, []string{"hint: sign in by: fermata login"}, "jobs", "list")
	o.wants(7, []string{"not signed in", "hint: run: fermata login"}, "jobs", "list", "--oidc-issuer", o.issuer.URL)
	o.wants(7, []string{"not signed in"}, "login", "--status")
	o.wants(0, []string{"not signed in"}, "logout")
	o.wants(0, []string{"enter the code: ABCD-EFGH", o.issuer.URL + "/go?code=ABCD-EFGH", "signed in as ann@example.org (ann)",
		"The session lasts until the issuer ends it", "jwt:org:ann", "by a JWT", "EXPIRES", "editor"}, signIn...)
	code, document, errs := o.run(append(signIn, "-o", "json")...)
	var caller struct{ Identity string }
	if err := json.Unmarshal([]byte(document), &caller); err != nil || code != 0 || caller.Identity != "jwt:org:ann" || !strings.Contains(errs, "signed in as ann") {
		t.Errorf("as a document: exit code %d, %v\n%s%s", code, err, document, errs)
	}
	o.wants(0, []string{"ann@example.org", o.issuer.URL, o.address, "Refreshed: yes"}, "login", "--status")
	o.wants(0, nil, "jobs", "create", "nightly", "--handler", "h", "--every", "1h")
	o.wants(0, []string{"nightly"}, "jobs", "list")
	o.wants(1, []string{"ermission"}, "jobs", "list", "--namespace", "other")

	exchanged := o.issuer.Calls("/token")
	o.ahead.Store(int64(o.issuer.TTL - 30*time.Second))
	// A shell that completes a line takes the token as it is: a refresh may last longer than the shell waits.
	line := append(append([]string{"__completeNoDesc"}, o.flags...), "jobs", "get", "n")
	if _, out, errs := o.runAt(t.Context(), line...); !strings.HasPrefix(out, "nightly\n") || o.issuer.Calls("/token") != exchanged {
		t.Errorf("completion: %s%s, %d exchanges", out, errs, o.issuer.Calls("/token")-exchanged)
	}
	o.wants(0, []string{"nightly"}, "jobs", "list")
	o.wants(0, []string{"nightly"}, "jobs", "list")
	if got := o.issuer.Calls("/token") - exchanged; got != 1 {
		t.Errorf("%d exchanges of a token that is about to expire", got)
	}
	// No other server gets the token.
	if code, out, errs := o.runAt(t.Context(), "jobs", "list", "--address", "127.0.0.1:1", "--request-timeout", "100ms"); code != 5 {
		t.Errorf("another server: exit code %d\n%s%s", code, out, errs)
	}
	o.issuer.End()
	o.ahead.Add(int64(o.issuer.TTL))
	o.wants(7, []string{"the session has ended", "hint: run: fermata login"}, "jobs", "list")
	o.wants(7, []string{"fermata login"}, "jobs", "list")
	o.issuer.Set(func(i *issuertest.Issuer) { i.NoRefresh, i.TTL = true, 24*time.Hour })
	o.wants(0, []string{"signed in as", "--oidc-scopes offline_access"}, signIn...)
	o.wants(0, []string{"nightly"}, "jobs", "list")
	o.ahead.Add(int64(48 * time.Hour))
	o.wants(7, []string{"the session has ended", "offline_access"}, "jobs", "list")
	o.wants(7, []string{"Refreshed: no"}, "login", "--status")
	o.issuer.Set(func(i *issuertest.Issuer) { i.NoRefresh = false })
	o.wants(0, nil, signIn...)
	o.wants(0, []string{"signed out"}, "logout")
	o.wants(7, nil, "jobs", "list")
	if len(o.issuer.Revoked()) != 1 {
		t.Errorf("revoked: %q", o.issuer.Revoked())
	}
}

// TestIncompleteSignIn ends by Ctrl-C, by a denial and with the code, and leaves nothing.
func TestIncompleteSignIn(t *testing.T) {
	o := startOrganization(t)
	signIn := []string{"login", "--oidc-issuer", o.issuer.URL, "--oidc-client-id", "fermata-cli"}
	o.issuer.Set(func(i *issuertest.Issuer) { i.Answers = []string{"access_denied"} })
	o.wants(7, []string{"the sign-in was denied", "fermata login"}, signIn...)
	o.issuer.Set(func(i *issuertest.Issuer) { i.Answers = []string{"expired_token"} })
	o.wants(7, []string{"the code has expired"}, signIn...)
	o.issuer.Set(func(i *issuertest.Issuer) { i.Interval = 3600 })
	ctx, cancel := context.WithCancel(t.Context())
	var stdout bytes.Buffer
	code := runCommand(ctx, append(signIn, o.flags...), standardStreams{strings.NewReader(""), &stdout, hearing(func(text string) {
		if strings.Contains(text, "ABCD-EFGH") {
			cancel()
		}
	})}, o.now)
	if code != 1 || stdout.Len() > 0 {
		t.Errorf("interrupted: exit code %d, %q", code, stdout.String())
	}
	o.wants(7, []string{"not signed in"}, "login", "--status")
	for _, args := range [][]string{
		{"login"}, {"login", "--oidc-issuer", o.issuer.URL}, {"login", "--oidc-issuer", "http://example.org", "--oidc-client-id", "c"},
		{"login", "--oidc-issuer", o.issuer.URL, "--oidc-client-id", "c", "--oidc-token", "both"},
		{"login", "--oidc-issuer", o.issuer.URL, "--oidc-client-id", "c", "--token-file", "f"}, {"login", "too", "many"},
	} {
		o.wants(2, nil, args...)
	}
	// Sessions are sent over TLS, or to loopback.
	o.issuer.Set(func(i *issuertest.Issuer) { i.Interval = 1 })
	for _, flags := range [][]string{{"--address", "10.255.255.1:7070"}, {"--address", "127.0.0.1:1", "--request-timeout", "1s"}} {
		code, out, errs := o.runAt(t.Context(), append(signIn, flags...)...)
		if code != 0 || !strings.Contains(out, "signed in as ann") || !strings.Contains(errs, "warning: no node confirmed who you are") || !strings.Contains(errs, "fermata whoami") {
			t.Fatalf("no node can be asked: exit code %d\n%s%s", code, out, errs)
		}
	}
	if code, _, errs := o.runAt(t.Context(), "jobs", "list", "--address", "10.255.255.1:7070", "--request-timeout", "5s"); code != 2 || !strings.Contains(errs, "transport") {
		t.Errorf("plain text to a host: exit code %d\n%s", code, errs)
	}
}
