package fermata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fermata-io/fermata/bench/internal/proc"
	"github.com/fermata-io/fermata/client"
)

// startTimeout is how long a cluster may take until all shards are held.
const startTimeout = 30 * time.Second

// Options of a cluster.
type Options struct {
	Binary   string // what Build made
	Dir      string // for logs, made if missing
	RedisURL string
	Nodes    int
	Shards   int // default: the product's
	// Durability is that of --durability, default memory: the Redis of most
	// measurements writes nothing to disk.
	Durability string
	Flags      []string // further flags of each node
	Profiling  bool     // the binary was built for it
}

// Cluster is a number of scheduler nodes on loopback.
type Cluster struct {
	Nodes  []*Node
	Shards int
	o      Options
}

// Node is one scheduler process.
type Node struct {
	*proc.Process
	GRPC, HTTP, Gossip string // addresses
	binary, log, pprof string
	args, env          []string
}

// Start starts the nodes and returns when they are ready and hold all shards.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Durability == "" {
		o.Durability = "memory"
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	ports, err := proc.FreePorts(5 * o.Nodes)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Shards: o.Shards, o: o}
	for i := range o.Nodes {
		c.Nodes = append(c.Nodes, c.plan(i, ports[5*i:5*i+5]))
	}
	join := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		join[i] = n.Gossip
	}
	for _, n := range c.Nodes {
		if len(c.Nodes) > 1 {
			n.args = append(n.args, "--join", strings.Join(join, ","))
		}
		if err := n.Start(); err != nil {
			c.Stop()
			return nil, err
		}
	}
	if err := c.ready(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// plan makes a node without starting it.
func (c *Cluster) plan(i int, ports []int) *Node {
	at := func(k int) string { return fmt.Sprintf("127.0.0.1:%d", ports[k]) }
	name := fmt.Sprintf("node%d", i+1)
	n := &Node{binary: c.o.Binary, GRPC: at(0), Gossip: at(2), HTTP: at(3), log: filepath.Join(c.o.Dir, name+".log")}
	n.args = append([]string{
		"--name", name, "--grpc-addr", n.GRPC, "--peer-addr", at(1), "--gossip-addr", n.Gossip, "--http-addr", n.HTTP,
		"--redis-url", c.o.RedisURL, "--durability", c.o.Durability,
	}, c.o.Flags...)
	if c.o.Shards > 0 {
		n.args = append(n.args, "--shards", fmt.Sprint(c.o.Shards))
	}
	if c.o.Profiling {
		n.pprof = at(4)
		n.env = []string{"BENCH_PPROF=" + n.pprof}
	}
	return n
}

// Start starts the node, again if it has ended.
func (n *Node) Start() (err error) {
	n.Process, err = proc.Start(proc.Spec{Name: "scheduler", Path: n.binary, Args: n.args, Env: n.env, Log: n.log})
	return err
}

// ready waits until the nodes together hold all shards, whose number it learns from them.
func (c *Cluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		held := 0.0
		for _, n := range c.Nodes {
			if err := n.Failed(); err != nil {
				return err
			}
			if m, err := n.Metrics(ctx); err == nil && n.isReady(ctx) {
				held += m.Sum("fermata_shards_held")
				c.Shards = int(m.Sum("fermata_shards"))
			}
		}
		if int(held) == c.Shards && held > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%v of %d shards are held after %v", held, c.Shards, startTimeout)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (n *Node) isReady(ctx context.Context) bool {
	text, err := get(ctx, "http://"+n.HTTP+"/readyz")
	return err == nil && len(text) > 0
}

// Addresses are those for clients and workers.
func (c *Cluster) Addresses() []string {
	var out []string
	for _, n := range c.Nodes {
		out = append(out, n.GRPC)
	}
	return out
}

// Processes are those of the nodes.
func (c *Cluster) Processes() []*proc.Process {
	var out []*proc.Process
	for _, n := range c.Nodes {
		out = append(out, n.Process)
	}
	return out
}

// Client connects to the cluster.
func (c *Cluster) Client() (*client.Client, error) {
	return client.Dial(c.Addresses(), client.Options{})
}

// StartProfile begins a CPU profile of a node.
func (n *Node) StartProfile(ctx context.Context) error {
	_, err := get(ctx, "http://"+n.pprof+"/cpu/start")
	return err
}

// EndProfile writes what StartProfile began to a file.
func (n *Node) EndProfile(ctx context.Context, file string) error {
	text, err := get(ctx, "http://"+n.pprof+"/cpu/stop")
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// Dump writes another profile ("heap", "allocs", "goroutine") to a file.
func (n *Node) Dump(ctx context.Context, name, file string) error {
	text, err := get(ctx, "http://"+n.pprof+"/debug/pprof/"+name)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// Stop ends all nodes.
func (c *Cluster) Stop() {
	for _, n := range c.Nodes {
		n.Process.Stop()
	}
}

var errStatus = errors.New("unexpected status")

func get(ctx context.Context, url string) ([]byte, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %w: %s", url, errStatus, r.Status)
	}
	return io.ReadAll(r.Body)
}
