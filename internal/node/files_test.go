package node_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/keytest"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestInvalidFilesShow breaks each file that a running node reads again. A token that is
// taken out of an access file with a fault is still good, which has to show at once.
func TestInvalidFilesShow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := base64.StdEncoding.EncodeToString(keytest.Key("key"))
	token, entry, err := node.NewToken("ci", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	good := entry + "rules:\n  - {subjects: [\"token:*\"], role: admin, namespaces: [\"*\"]}\n"
	hooks := "webhooks: [{name: ops, url: 'https://x/', key-file: " + write("hook", key) + "}]"
	audit, auditPublic, err := node.NewAuditKey("k1")
	if err != nil {
		t.Fatal(err)
	}
	registry, log := prometheus.NewRegistry(), &lines{}
	startWith(t, redistest.Start(t).URL(), "a", func(c *node.Config) {
		c.Registerer, c.Gatherer, c.Logger = registry, registry, log.logger()
		c.AccessFile, c.WebhooksFile, c.EventsKeep = write("access", good), write("webhooks", hooks), 1000
		c.PayloadKeyFile, c.GossipKeyFile = write("payload_keys", "k1 "+key), write("gossip_keys", key)
		c.AuditKeyFile = write("audit_keys", audit)
	})
	shows := func(want float64) {
		t.Helper()
		var b strings.Builder
		b.WriteString("# HELP fermata_files_invalid 1 while a file on disk is invalid, and the node keeps the last " +
			"valid version.\n# TYPE fermata_files_invalid gauge\n")
		for _, file := range []string{"access", "audit_keys", "gossip_keys", "payload_keys", "webhooks"} {
			fmt.Fprintf(&b, "fermata_files_invalid{file=%q} %v\n", file, want)
		}
		redistest.Eventually(t, 20*time.Second, fmt.Sprintf("gauges at %v", want), func(context.Context) error {
			return testutil.GatherAndCompare(registry, strings.NewReader(b.String()), "fermata_files_invalid")
		})
	}
	shows(0)
	write("access", strings.Replace(good, "rules:", "ruless:", 1))
	write("webhooks", strings.Replace(hooks, "url", "uri", 1))
	write("payload_keys", "k1 "+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	write("gossip_keys", "x"+key)
	write("audit_keys", auditPublic)
	shows(1)
	logs := func(words ...string) {
		t.Helper()
		for _, word := range words {
			redistest.Eventually(t, 10*time.Second, word, func(context.Context) error {
				if n := log.count(word); n != 1 {
					return fmt.Errorf("%d lines", n)
				}
				return nil
			})
		}
	}
	logs("access file is invalid", "webhooks file is invalid", "payload key file is invalid",
		"gossip key file is invalid", "audit key file is invalid")
	if log.count(key)+log.count(token) > 0 {
		t.Error("a secret was logged")
	}
	write("access", good)
	write("webhooks", hooks)
	write("payload_keys", "k1 "+key)
	write("gossip_keys", key)
	write("audit_keys", audit)
	shows(0)
	logs("access file is valid again", "webhooks file is valid again", "payload key file is valid again",
		"gossip key file is valid again", "audit key file is valid again")
}

// TestFilesThatOthersMayWriteStopTheStart: whoever writes such a file decides who may do
// what, or has the keys.
func TestFilesThatOthersMayWriteStopTheStart(t *testing.T) {
	key := base64.StdEncoding.EncodeToString(keytest.Key("key"))
	_, entry, err := node.NewToken("ci", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	redis := redistest.Start(t).URL()
	for name, c := range map[string]struct {
		text string
		use  func(*node.Config, string)
	}{
		"access": {entry + "rules:\n  - {subjects: [\"token:*\"], role: admin, namespaces: [\"*\"]}\n",
			func(c *node.Config, path string) { c.AccessFile = path }},
		"webhooks": {"webhooks: []", func(c *node.Config, path string) { c.WebhooksFile, c.EventsKeep = path, 1000 }},
		"payload":  {"k1 " + key, func(c *node.Config, path string) { c.PayloadKeyFile = path }},
		"gossip":   {key, func(c *node.Config, path string) { c.GossipKeyFile = path }},
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.Chmod(path, 0o666)); err != nil {
			t.Fatal(err)
		}
		if err := startFails(t, redis, func(cfg *node.Config) { c.use(cfg, path) }); err == nil ||
			!strings.Contains(err.Error(), "any user may write it") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// startFails returns why a node does not start, by its configuration or later.
func startFails(t *testing.T, redis string, change func(*node.Config)) error {
	t.Helper()
	cfg := node.Config{Name: "a", AllowUnsafeRedis: true}
	cfg.Redis.URL = redis
	cfg.GRPCAddr, cfg.PeerAddr, cfg.GossipAddr, cfg.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	change(&cfg)
	n, err := node.New(cfg)
	if err != nil {
		return err
	}
	if err := n.Start(t.Context()); err != nil {
		return err
	}
	return n.Stop(t.Context())
}
