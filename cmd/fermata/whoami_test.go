package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/api/workerstream"
	"github.com/fermata-io/fermata/internal/auth/authn"
	"github.com/fermata-io/fermata/internal/core/authz"
)

const whoamiAccess = `
tokens:
  - {name: ci, token-file: DIR/ci.token, expires: 2026-04-01T00:00:00Z}
  - {name: idle, token-file: DIR/idle.token}
rules:
  - {subjects: ["token:ci"], role: worker, namespaces: [team-a, "staging-*"], queues: [mail, "bulk-*"]}
  - {subjects: ["token:ci"], role: viewer, namespaces: ["*"], limits: {rate: 50, calls: 20}}
limits: {connections: 9}
`

// identityNode serves calls about identities only, unless it has jobs, with an access file or without, and
// returns its address.
func identityNode(t *testing.T, o rpc.Options) string {
	t.Helper()
	if o.Jobs == nil {
		o.Jobs = struct{ rpc.Jobs }{}
	}
	o.Cluster, o.Node = struct{ rpc.Cluster }{}, "n1"
	server, _, err := rpc.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return listener.Addr().String()
}

func TestWhoAmI(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ci, _ := authn.NewToken()
	idle, _ := authn.NewToken()
	write("ci.token", ci)
	write("idle.token", idle)
	source, err := authn.Open(t.Context(), authn.Options{
		Path: write("access.yaml", strings.ReplaceAll(whoamiAccess, "DIR", dir)), Now: func() time.Time { return epoch },
	})
	if err != nil {
		t.Fatal(err)
	}
	guarded := identityNode(t, rpc.Options{
		Authority: source, LeaseSigningKey: bytes.Repeat([]byte("k"), workerstream.MinKeyBytes), JobLimit: func(string) int { return 5000 },
		JobBytesLimit: func(string) int { return 64 << 20 },
	})
	c := &cluster{t: t, address: guarded}
	c.clock.Store(epoch.UnixMilli())
	text := c.script("whoami --token-file "+dir+"/ci.token", "whoami -o json --token-file "+dir+"/ci.token", "whoami --token-file "+dir+"/idle.token", "whoami")
	c.address = identityNode(t, rpc.Options{Limits: authz.Limits{Rate: 0.5, Burst: 3}})
	text += c.script("whoami", "whoami -o yaml")
	golden(t, "whoami", strings.ReplaceAll(text, dir, "DIR"))
}
