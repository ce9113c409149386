package bearer

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func fixed(token string) Token {
	return func(context.Context) (string, error) { return token, nil }
}

func TestTokensStayOffOpenNetworks(t *testing.T) {
	for address, local := range map[string]bool{
		"127.0.0.1:7070": true, "localhost:7070": true, "[::1]:7070": true, "unix:///run/fermata": true,
		"dns:///127.0.0.1:7": true,
		"10.0.0.1:7070":      false, "node:7070": false, "localhost.evil.org:7070": false, "dns:///node:7070": false,
		"0.0.0.0:1": false, "": false,
		"passthrough:///localhost:1": true, "unix:run/fermata": true, "[::ffff:127.0.0.1]:1": true,
		// Who answers is somebody else's choice.
		"dns://10.0.0.66/localhost:7070": false, "evil.example/localhost:7070": false,
		"dns://evil.example:53/127.0.0.1:7070": false,
		"xds:///localhost:7070":                false, "xds://x/127.0.0.1:1": false, "passthrough://evil.example/localhost:1": false,
		"http://localhost:7070":         false,
		"localhost:7070/evil.example:1": false, "evil.example:1,localhost:7070": false, "dns:///x/localhost:1": false,
		"dns:///dns:///localhost:1": false,
		"localhost":                 false, "127.0.0.1": false, "localhost:": false, "localhost:http": false, "localhost.:1": false,
		"LOCALHOST.evil:1": false,
		"[::1%eth0]:1":     false, "127.0.0.1:99999": false, "user@localhost:1": false, "//localhost:1": false,
		"/localhost:1": false, "dns:////localhost:1": false,
	} {
		if IsLocal(address) != local {
			t.Errorf("%q: local is %v", address, !local)
		}
		conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithPerRPCCredentials(Credentials(fixed("t"), "127.0.0.1:1", address)))
		if (err == nil) != local {
			t.Errorf("plaintext to %q: %v", address, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

func TestBadTokensAreNotSent(t *testing.T) {
	for _, token := range []string{"", "a b", "a\nb", "ä", "a\x00"} {
		if m, err := Credentials(fixed(token)).GetRequestMetadata(t.Context()); err == nil {
			t.Errorf("%q: sends %v", token, m)
		} else if token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("%q: the error has it", token)
		}
	}
	if m, err := Credentials(fixed("x.y_z")).GetRequestMetadata(t.Context()); err != nil ||
		m["authorization"] != "Bearer x.y_z" {
		t.Errorf("%v %v", m, err)
	}
}

func TestFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	put := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"", "\n", "a b", strings.Repeat("x", maxTokenSize+1)} {
		put(bad)
		if _, err := File(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		put("one\n")
		token, err := File(path)
		if err != nil {
			t.Fatal(err)
		}
		want := func(want string) {
			t.Helper()
			time.Sleep(rereadInterval + time.Millisecond)
			if got, err := token(t.Context()); got != want || err != nil {
				t.Errorf("%q %v, want %q", got, err, want)
			}
		}
		want("one")
		put("two")
		want("two")
		put("")
		want("two")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		want("two")
		put("three")
		want("three")
	})
}
