package observability

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/fermata-io/fermata/internal/test/keytest"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/tlstest"
	"github.com/fermata-io/fermata/proto/externalscaler"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// bed is a cluster of processes, and what watches it.
type bed struct {
	t          *testing.T
	nodes      []*member
	workers    []*member
	gateway    *member
	jobs       fermatav1.JobServiceClient
	scaler     externalscaler.ExternalScalerClient
	prometheus *prometheus   // which the test waits with
	all        []*prometheus // in every mode
}

// member is a process, and where it listens: a worker or gateway only for scrapes.
type member struct {
	*process
	grpc, gossip, http string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dir := t.TempDir()
	scheduler, worker := buildCommand(t, dir, "scheduler", versionFlag("v1.0.0")), buildCommand(t, dir, "worker")
	redis := redistest.Start(t, redistest.WithAOF("no"))
	if err := redis.Client().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil { // which is unsafe
		t.Fatal(err)
	}
	authority := tlstest.New(t, "observed")
	files := tlstest.NewDir(t, authority.Issue(tlstest.Identity{Name: "node", DNS: []string{"node.example"}, NotAfter: time.Now().AddDate(0, 3, 0)}), authority)
	gossipKey := filepath.Join(dir, "gossip-key")
	if err := os.WriteFile(gossipKey, []byte(base64.StdEncoding.EncodeToString([]byte("32 bytes that nobody else knows."))), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t}
	hooks := writeWebhooksFile(t)
	for i := range 3 {
		args := []string{
			"--name", fmt.Sprintf("n%d", i), "--redis-url", redis.URL(), "--shards", "16", "--min-interval", "1s",
			"--tls-cert", files.Cert, "--tls-key", files.Key,
			"--peer-tls-cert", files.Cert, "--peer-tls-key", files.Key, "--peer-tls-ca", files.CA, "--gossip-key-file", gossipKey,
			"--allow-unsafe-redis", "--lock-ttl", "2s", "--lease-ttl", "3s", "--log-format", "json",
			"--events-keep", "10000", "--webhooks-file", hooks,
			"--grpc-addr", "127.0.0.1:0", "--peer-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0",
		}
		if i > 0 {
			args = append(args, "--join", b.nodes[0].gossip)
		}
		n := &member{process: startProcess(t, fmt.Sprintf("n%d", i), scheduler, args...)}
		up := n.awaitLog("node is up")
		n.grpc, n.gossip, n.http = up["grpc"], up["gossip"], up["http"]
		b.nodes = append(b.nodes, n)
	}
	// The workers' nodes are not the one that will be killed.
	for i := range 2 {
		args := []string{
			"--tls-ca", files.CA, "--scheduler", b.nodes[1+i].grpc + "," + b.nodes[2-i].grpc, "--slots", "6",
			"--queues", "default,slow,tardy", "--exec-allow", "/bin/true,/bin/false,/bin/sleep", "--metrics-addr", "127.0.0.1:0", "--log-format", "json",
		}
		if os.Geteuid() == 0 {
			args = append(args, "--exec-allow-root")
		}
		w := &member{process: startProcess(t, fmt.Sprintf("w%d", i), worker, args...)}
		w.http = w.awaitLog("serving metrics")["address"]
		b.workers = append(b.workers, w)
	}
	b.startGateway(buildCommand(t, dir, "gateway"), files.CA)
	conn, err := grpc.NewClient(b.nodes[1].grpc, grpc.WithTransportCredentials(credentials.NewTLS(authority.Client(tlstest.Pair{}))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	b.jobs, b.scaler = fermatav1.NewJobServiceClient(conn), externalscaler.NewExternalScalerClient(conn)
	for _, m := range modes {
		b.all = append(b.all, startPrometheus(t, m, b.scrapeTargets()))
	}
	b.prometheus = b.all[0]
	return b
}

// startGateway starts a gateway that has served a request.
func (b *bed) startGateway(path, authority string) {
	b.t.Helper()
	g := &member{process: startProcess(b.t, "g0", path, "--tls-ca", authority, "--scheduler", b.nodes[1].grpc,
		"--rest-addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0", "--log-format", "json")}
	g.http = g.awaitLog("serving metrics")["address"]
	b.gateway = g
	response, err := http.Get(g.awaitLog("serving the API")["url"] + "/openapi.json")
	if err != nil {
		b.t.Fatal(err)
	}
	_ = response.Body.Close()
}

// writeWebhooksFile is a file with one whose endpoint takes everything.
func writeWebhooksFile(t *testing.T) string {
	t.Helper()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(endpoint.Close)
	dir := t.TempDir()
	key, file := filepath.Join(dir, "key"), filepath.Join(dir, "webhooks.yaml")
	text := fmt.Sprintf("webhooks: [{name: observed, url: '%s', insecure: true, allow-networks: [127.0.0.0/8], key-file: %s}]\n", endpoint.URL, key)
	for path, text := range map[string]string{key: base64.StdEncoding.EncodeToString(keytest.Key("webhook")), file: text} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// scrapeTargets are what is scraped.
func (b *bed) scrapeTargets() []target {
	var all []target
	for _, n := range b.nodes {
		all = append(all, target{"fermata", n.name, n.http})
	}
	for _, w := range b.workers {
		all = append(all, target{"fermata-worker", w.name, w.http})
	}
	return append(all, target{"fermata-gateway", b.gateway.name, b.gateway.http})
}

// logLine looks for a line of a log.
func logLine(p *process, message string, found *map[string]string) func(context.Context) error {
	return func(context.Context) error {
		text, err := os.ReadFile(p.log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if f := logFields(line); f["msg"] == message {
				*found = f
				return nil
			}
		}
		select {
		case <-p.done:
			p.t.Fatalf("%s has ended: %v\n%s", p.name, p.cmd.ProcessState, text)
		default:
		}
		return fmt.Errorf("not yet")
	}
}
