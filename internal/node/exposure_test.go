package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/tlstest"
)

func TestNoListenerIsOpenByAccident(t *testing.T) {
	ours := tlstest.New(t, "ours")
	dir := tlstest.NewDir(t, ours.Issue(tlstest.Identity{DNS: []string{"node.example"}}), ours)
	access := filepath.Join(t.TempDir(), "access.yaml")
	rules := "rules:\n  - {subjects: [\"*\"], role: admin, namespaces: [\"*\"]}\n"
	if err := os.WriteFile(access, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	files := tlsfiles.Files{Cert: dir.Cert, Key: dir.Key, Authorities: dir.CA}
	for name, c := range map[string]struct {
		change func(*node.Config)
		want   []string // flags that are named; none: accepted
	}{
		"nothing set": {func(*node.Config) {}, nil},
		"loopback": {func(c *node.Config) {
			c.GRPCAddr, c.PeerAddr, c.GossipAddr = "localhost:1", "[::1]:1",
				"127.0.0.9:1"
		}, nil},
		"any address": {func(c *node.Config) { c.GRPCAddr = ":7070" },
			[]string{"--grpc-addr :7070", "--tls-cert"}},
		"any IPv4 address": {func(c *node.Config) { c.PeerAddr = "0.0.0.0:7071" },
			[]string{"--peer-addr 0.0.0.0:7071", "--peer-tls-ca"}},
		"any IPv6 address": {func(c *node.Config) { c.GossipAddr = "[::]:7946" },
			[]string{"--gossip-addr [::]:7946", "--gossip-key-file"}},
		"a private address": {func(c *node.Config) { c.GRPCAddr = "10.0.0.1:7070" }, []string{"--grpc-addr"}},
		"a name":            {func(c *node.Config) { c.GRPCAddr = "node.example:7070" }, []string{"--grpc-addr"}},
		"a name like it":    {func(c *node.Config) { c.GRPCAddr = "localhost.example:7070" }, []string{"--grpc-addr"}},
		"with TLS":          {func(c *node.Config) { c.GRPCAddr, c.TLS = ":7070", files }, nil},
		"TLS for anybody": {func(c *node.Config) {
			c.GRPCAddr, c.TLS = ":7070", tlsfiles.Files{Cert: dir.Cert, Key: dir.Key}
		}, []string{"--grpc-addr", "--access-file"}},
		"TLS for whoever likes": {func(c *node.Config) {
			c.GRPCAddr, c.TLS, c.ClientAuth = ":7070", files, "optional"
		}, []string{"--grpc-addr", "--access-file"}},
		"TLS and roles": {func(c *node.Config) {
			c.GRPCAddr, c.TLS, c.AccessFile = ":7070", tlsfiles.Files{Cert: dir.Cert, Key: dir.Key}, access
		}, nil},
		"roles without TLS": {func(c *node.Config) { c.GRPCAddr, c.AccessFile = ":7070", access },
			[]string{"--grpc-addr", "--tls-cert"}},
		"with TLS for others": {func(c *node.Config) { c.GRPCAddr, c.PeerTLS = ":7070", files },
			[]string{"--grpc-addr"}},
		"peers with TLS": {func(c *node.Config) { c.PeerAddr, c.PeerTLS = ":7071", files }, nil},
		"metrics":        {func(c *node.Config) { c.HTTPAddr = ":7072" }, nil},
		"accepted": {func(c *node.Config) {
			c.GRPCAddr, c.PeerAddr, c.GossipAddr, c.Insecure = ":7070", ":7071", "0.0.0.0:7946", true
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := node.Config{Name: "n", Redis: conn.ClientOptions{URL: "redis://127.0.0.1:6379"}}
			c.change(&cfg)
			_, err := node.New(cfg)
			if (err == nil) != (c.want == nil) {
				t.Fatalf("%v", err)
			}
			for _, text := range append(c.want, "--insecure") {
				if err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("%v does not say %s", err, text)
				}
			}
		})
	}
}

func TestInsecureCallsAreReported(t *testing.T) {
	log := &lines{}
	cfg := node.Config{
		Name: "n", GRPCAddr: "0.0.0.0:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0",
		Insecure: true,
		Redis:    conn.ClientOptions{URL: redistest.Start(t).URL()}, AllowUnsafeRedis: true, Logger: log.logger(),
	}
	n, err := node.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if log.count("INSECURE") != 1 || log.count("listener=grpc-addr address=0.0.0.0:0") != 1 {
		t.Errorf("not said, or said of too many: %s", log.text.String())
	}
}
