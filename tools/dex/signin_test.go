package dex_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

const patience = 2 * time.Minute

// built makes a binary of the main module.
func built(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	out, err := exec.Command("go", "build", "-C", "../..", "-o", path, "./cmd/"+name).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// eventually tries until there is no error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-ticker.C:
		}
	}
}

// start runs a server until the test ends.
func start(t *testing.T, path string, args ...string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(path), log.String())
		}
	})
}

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// bed is a node that believes a provider, and a user's command line.
type bed struct {
	*provider
	scheduler, fermata, redis, access, node, home string
}

const accessText = `jwt:
  - {name: dex, issuer: %[1]q, audience: fermata-cli, jwks: "%[1]s/keys", jwks-ca: %[2]q, name-claim: email, refetch: 1s}
rules:
  - {subjects: ["jwt:dex:ann@example.org"], role: editor, namespaces: [default]}
`

func newBed(t *testing.T, life time.Duration) *bed {
	t.Helper()
	b := &bed{provider: startProvider(t, life), scheduler: built(t, "scheduler"), fermata: built(t, "fermata"), home: t.TempDir()}
	redisAt := freeAddress(t)
	_, port, _ := net.SplitHostPort(redisAt)
	start(t, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--maxmemory-policy", "noeviction", "--dir", t.TempDir())
	b.redis = "redis://" + redisAt
	b.access = filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(b.access, fmt.Appendf(nil, accessText, b.server.URL, b.ca), 0o600); err != nil {
		t.Fatal(err)
	}
	b.node = b.startNode("a")
	return b
}

// startNode starts a node and returns the address for clients, once it is ready.
func (b *bed) startNode(name string) string {
	b.t.Helper()
	grpc, ready := freeAddress(b.t), freeAddress(b.t)
	start(b.t, b.scheduler, "--name", name, "--redis-url", b.redis, "--access-file", b.access, "--grpc-addr", grpc, "--http-addr", ready,
		"--peer-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0", "--shards", "4", "--durability", "memory")
	eventually(b.t, "the node is ready", func() error {
		answer, err := http.Get("http://" + ready + "/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	return grpc
}

func (b *bed) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.fermata, args...)
	cmd.Env = append(os.Environ(), "HOME="+b.home, "XDG_CONFIG_HOME="+b.home, "FERMATA_ADDRESS="+b.node, "FERMATA_REQUEST_TIMEOUT=30s",
		"FERMATA_OIDC_CA="+b.ca, "FERMATA_OIDC_ISSUER="+b.server.URL, "FERMATA_OIDC_CLIENT_ID="+clientID, "FERMATA_OIDC_SCOPES=email,offline_access")
	return cmd
}

// run runs the command line to its end.
func (b *bed) run(args ...string) (code int, text string) {
	b.t.Helper()
	cmd := b.command(b.t.Context(), args...)
	out, _ := cmd.CombinedOutput()
	return cmd.ProcessState.ExitCode(), string(out)
}

func (b *bed) wants(code int, text string, args ...string) {
	b.t.Helper()
	if got, out := b.run(args...); got != code || !strings.Contains(out, text) {
		b.t.Errorf("%v: exit code %d, want %d and %q\n%s", args, got, code, text, out)
	}
}

var completeAddress = regexp.MustCompile(`or open (\S+)`)

// login runs fermata login, and has the user approve it; it returns what was printed.
func (b *bed) login(user func(address string)) (code int, text string) {
	b.t.Helper()
	cmd := b.command(b.t.Context(), "login")
	var out bytes.Buffer
	cmd.Stdout = &out
	errs, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	var said strings.Builder
	lines := bufio.NewScanner(errs)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if m := completeAddress.FindStringSubmatch(lines.Text()); m != nil {
			user(m[1])
		}
	}
	_ = cmd.Wait() // the exit code says it
	return cmd.ProcessState.ExitCode(), out.String() + said.String()
}

// signIn signs ann in.
func (b *bed) signIn() {
	b.t.Helper()
	code, text := b.login(func(address string) {
		if page := b.browser().approve(address, password); !strings.Contains(page, "Login Successful") {
			b.t.Errorf("the last page of Dex:\n%s", page)
		}
	})
	for _, want := range []string{"signed in as " + email, "The session lasts until the issuer ends it", "jwt:dex:" + email, "by a JWT", "editor"} {
		if code != 0 || !strings.Contains(text, want) {
			b.t.Fatalf("fermata login: exit code %d, no %q\n%s", code, want, text)
		}
	}
}

type session struct {
	Bearer  string    `json:"bearer"`
	Refresh string    `json:"refresh_token"`
	Expires time.Time `json:"expires"`
}

// session is the file of the session.
func (b *bed) session() (path string, s session) {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.home, "fermata", "sessions", "*.json"))
	if err != nil || len(files) != 1 {
		b.t.Fatalf("sessions: %q, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return files[0], s
}

// TestSignIn goes the whole way: the device flow, a node that verifies by JWKS, calls, refresh by commands at the same
// time, new signing keys, an issuer that is away, a refresh token that comes twice, and the end.
func TestSignIn(t *testing.T) {
	b := newBed(t, 20*time.Second)
	b.wants(7, "run: fermata login", "jobs", "list")
	code, text := b.login(func(address string) {
		if page := b.browser().approve(address, "a wrong password"); !strings.Contains(page, "login-error") {
			t.Errorf("Dex lets in anybody:\n%s", page)
		}
		if page := b.browser().approve(address, password); !strings.Contains(page, "Login Successful") {
			t.Errorf("the last page of Dex:\n%s", page)
		}
	})
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, text)
	}
	b.signIn()
	b.wants(0, "nightly", "jobs", "create", "nightly", "--handler", "h", "--every", "1h")
	b.wants(0, "nightly", "jobs", "list")
	b.wants(1, "fermata whoami", "jobs", "list", "--namespace", "other")

	// Near its end the token is refreshed, once for all commands.
	_, first := b.session()
	eventually(t, "the token is refreshed", func() error {
		var together sync.WaitGroup
		for range 4 {
			together.Go(func() { b.wants(0, "nightly", "jobs", "list") })
		}
		together.Wait()
		if _, now := b.session(); now.Refresh == first.Refresh || now.Bearer == first.Bearer {
			return fmt.Errorf("it expires at %v", now.Expires)
		}
		return nil
	})
	// Dex signs by another key: the node asks for it.
	b.renewKeys()
	b.signIn()
	b.wants(0, "nightly", "jobs", "list")
	// While Dex is away the session goes on with the token that it has, and nodes with the keys that they have.
	b.goAway()
	b.wants(0, "nightly", "jobs", "list")
	here := b.node
	b.node = b.startNode("b")
	b.wants(7, "not signed in", "jobs", "list") // the session is for the other address
	b.node = here
	eventually(t, "the token has expired", func() error {
		if code, text := b.run("jobs", "list"); code != 5 || !strings.Contains(text, "when its issuer can be reached") && !strings.Contains(text, "try again later") && !strings.Contains(text, "openid-configuration") {
			return fmt.Errorf("exit code %d\n%s", code, text)
		}
		return nil
	})
	b.renewKeys()
	b.wants(0, "nightly", "jobs", "list")
	// A refresh token that comes a second time ends the session.
	path, stale := b.session()
	copied, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "another refresh", func() error {
		b.wants(0, "nightly", "jobs", "list")
		if _, now := b.session(); now.Refresh == stale.Refresh {
			return fmt.Errorf("it expires at %v", now.Expires)
		}
		return nil
	})
	if err := os.WriteFile(path, copied, 0o600); err != nil {
		t.Fatal(err)
	}
	b.wants(7, "run: fermata login", "jobs", "list")
	b.wants(0, "not signed in", "logout")
	b.signIn()
	b.wants(0, "signed out", "logout")
	b.signIn()
	b.wants(0, "no revocation endpoint", "logout")
	b.wants(7, "run: fermata login", "jobs", "list")
}
