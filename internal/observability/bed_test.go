package observability

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/fermata-io/fermata/internal/redistest"
	"github.com/fermata-io/fermata/internal/tlstest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// bed is a cluster of processes with a worker, and what watches it.
type bed struct {
	t          *testing.T
	nodes      []*node
	worker     *process
	workerHTTP string
	jobs       fermatav1.JobServiceClient
	prometheus *prometheus
}

// node is one scheduler process.
type node struct {
	*process
	grpc, gossip, http string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dir := t.TempDir()
	scheduler, worker := build(t, dir, "scheduler"), build(t, dir, "worker")
	redis := redistest.Start(t, redistest.WithAOF("no"))
	if err := redis.Client().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil { // which is unsafe
		t.Fatal(err)
	}
	authority := tlstest.New(t, "observed")
	files := tlstest.NewDir(t, authority.Issue(tlstest.Identity{Name: "node", DNS: []string{"node.example"}}), authority)
	b := &bed{t: t}
	for i := range 3 {
		args := []string{
			"--name", fmt.Sprintf("n%d", i), "--redis-url", redis.URL(), "--shards", "16", "--min-interval", "1s",
			"--tls-cert", files.Cert, "--tls-key", files.Key,
			"--peer-tls-cert", files.Cert, "--peer-tls-key", files.Key, "--peer-tls-ca", files.CA, "--allow-unsafe-redis", "--lock-ttl", "2s", "--lease-ttl", "3s", "--log-format", "json",
			"--grpc-addr", "127.0.0.1:0", "--peer-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0",
		}
		if i > 0 {
			args = append(args, "--join", b.nodes[0].gossip)
		}
		n := &node{process: spawn(t, fmt.Sprintf("n%d", i), scheduler, args...)}
		up := n.logged("node is up")
		n.grpc, n.gossip, n.http = up["grpc"], up["gossip"], up["http"]
		b.nodes = append(b.nodes, n)
	}
	// The worker's node is not the one that will be killed first in line.
	var root []string
	if os.Geteuid() == 0 {
		root = []string{"--exec-allow-root"}
	}
	b.worker = spawn(t, "worker", worker, append(root, "--tls-ca", files.CA, "--scheduler", b.nodes[1].grpc+","+b.nodes[2].grpc, "--slots", "6",
		"--queues", "default,slow", "--exec-allow", "/bin/true,/bin/false,/bin/sleep", "--metrics-addr", "127.0.0.1:0", "--log-format", "json")...)
	b.workerHTTP = b.worker.logged("serving metrics")["address"]
	conn, err := grpc.NewClient(b.nodes[1].grpc, grpc.WithTransportCredentials(credentials.NewTLS(authority.Client(tlstest.Pair{}))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	b.jobs = fermatav1.NewJobServiceClient(conn)
	b.prometheus = startPrometheus(t, b.targets())
	return b
}

// targets are what is scraped, by scrape job.
func (b *bed) targets() map[string][]string {
	var nodes []string
	for _, n := range b.nodes {
		nodes = append(nodes, n.http)
	}
	return map[string][]string{"fermata": nodes, "fermata-worker": {b.workerHTTP}}
}

// logLine looks for a line of a log.
func logLine(p *process, message string, found *map[string]string) func(context.Context) error {
	return func(context.Context) error {
		text, err := os.ReadFile(p.log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if f := fields(line); f["msg"] == message {
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
