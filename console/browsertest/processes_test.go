package browsertest

import (
	"bufio"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/cli/httpapi"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/worker"
)

// nodeProcess is a scheduler process. It is killed when the test ends.
type nodeProcess struct {
	t            testing.TB
	cmd          *exec.Cmd
	name         string
	grpc, gossip string
	ended        chan struct{}
	lastLine     string // of its log, when it has ended
}

// buildScheduler compiles the scheduler once for all tests.
var buildScheduler = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "fermata-console")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "scheduler")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/scheduler")
	cmd.Dir = "../.." // the module of the scheduler
	cmd.Stderr = os.Stderr
	return path, cmd.Run()
})

// startNode starts a node on a Redis and waits until it is up.
func startNode(t testing.TB, name, redisURL string, join ...*nodeProcess) *nodeProcess {
	t.Helper()
	path, err := buildScheduler()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--name", name, "--redis-url", redisURL, "--shards", "12", "--min-interval", "10ms", "--events-keep", "10000",
		"--grpc-addr", "127.0.0.1:0", "--peer-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0",
		"--lock-ttl", "2s", "--lease-ttl", "3s", "--log-format", "json",
	}
	for _, n := range join {
		args = append(args, "--join", n.gossip)
	}
	n := &nodeProcess{t: t, name: name, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	output, err := n.cmd.StderrPipe()
	if err == nil {
		n.cmd.Stdout = n.cmd.Stderr
		err = n.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
	up := make(chan map[string]any, 1)
	go n.follow(bufio.NewScanner(output), up)
	select {
	case line := <-up:
		n.grpc, _ = line["grpc"].(string)
		n.gossip, _ = line["gossip"].(string)
	case <-n.ended:
		t.Fatalf("node %s has ended: %s", name, n.lastLine)
	case <-time.After(patience):
	}
	if n.grpc == "" || n.gossip == "" {
		t.Fatalf("node %s does not start", name)
	}
	return n
}

// follow reads the log to its end, and hands over the line that says that the node is up.
func (n *nodeProcess) follow(lines *bufio.Scanner, up chan<- map[string]any) {
	defer close(n.ended)
	for lines.Scan() {
		n.lastLine = lines.Text()
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) == nil && line["msg"] == "node is up" {
			up <- line
		}
	}
	_ = n.cmd.Wait() // a killed process reports its signal
}

// kill crashes the node.
func (n *nodeProcess) kill() {
	_ = n.cmd.Process.Signal(syscall.SIGKILL)
	<-n.ended
}

// processCluster is three node processes on a real Redis, with a gateway that knows all of them, and a worker.
type processCluster struct {
	*cluster
	nodes []*nodeProcess
}

// startProcesses starts a cluster of processes.
func startProcesses(t *testing.T) *processCluster {
	t.Helper()
	redis := redistest.Start(t, redistest.WithAOF("no"))
	c := &processCluster{cluster: &cluster{t: t}}
	var addresses []string
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		n := startNode(t, name, redis.URL(), c.nodes...)
		c.nodes, addresses = append(c.nodes, n), append(addresses, n.grpc)
	}
	s, err := httpapi.Start(httpapi.Options{
		Address: "127.0.0.1:0", Flag: "rest-addr", Logger: slog.New(slog.DiscardHandler),
		Gateway: gateway.Options{Console: testConsole(), Dial: httpapi.Dialer(addresses, client.Options{})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = s.Stop(ctx) // the browser may hold connections
	})
	c.url, c.addresses = s.URL(), addresses
	c.client, err = client.Dial(addresses, client.Options{Namespace: namespaceOf(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.client.Close() })
	c.startWorkerAt(worker.Options{Addresses: addresses, Slots: 8})
	return c
}
