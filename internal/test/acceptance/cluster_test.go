package acceptance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/fsck"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	lockTTL  = 2 * time.Second
	leaseTTL = 3 * time.Second
	shards   = 16
	// takeOver is the documented time until a frozen node's work goes on.
	takeOver = lockTTL + 2*time.Second
)

// cluster is a set of scheduler processes on one Redis, with their workers.
type cluster struct {
	t        testing.TB
	redisURL string
	virtual  bool // the nodes' clock is the test's
	raced    bool // nodes are built with the race detector
	flags    []string
	nodes    []*schedulerNode                 // those that should be members
	evidence []evidence                       // of all workers that ever ran
	recorded []historycheck.Event             // what was read of it
	pulse    *stallWatch                      // of the machine
	plain    bool                             // nodes have default settings, as far as that can be
	looking  *looking                         // nil until the first look
	secured  credentials.TransportCredentials // of the tests' own calls; nil: plain text
	// spawned, if set, is called for each process before it can have connected anywhere.
	spawned func(id string, pid int)
}

// newCluster is an empty cluster; flags are added to those of each node. What it
// has stored is audited when all its processes are gone.
func newCluster(t testing.TB, redisURL string, flags ...string) *cluster {
	c := &cluster{t: t, redisURL: redisURL, flags: flags, pulse: startStallWatch(t)}
	t.Cleanup(func() {
		if !t.Failed() {
			c.auditStore()
		}
	})
	return c
}

// newRacedCluster is newCluster whose nodes have the race detector where the test has it. It is for a few tests that
// keep a whole load in flight while nodes and workers fail: such nodes need four times the processor. What other
// tests make nodes do goes the same ways, and tests within one process (internal/node) have the detector too.
func newRacedCluster(t testing.TB, redisURL string, flags ...string) *cluster {
	c := newCluster(t, redisURL, flags...)
	c.raced = raceDetector
	return c
}

// schedulerPath returns the path of the command that the nodes run.
func (c *cluster) schedulerPath() string {
	c.t.Helper()
	if c.raced {
		return commandPath(c.t, "scheduler-race")
	}
	return commandPath(c.t, "scheduler")
}

// auditStore compares all that is stored.
func (c *cluster) auditStore() {
	c.t.Helper()
	client, err := conn.NewClient(conn.ClientOptions{URL: c.redisURL})
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	options := redisstore.Options{Client: client, Shards: c.shardCount(), AllowUnsafe: true}
	if c.virtual {
		options.Virtual = func() unixtime.Milli { return 0 } // an audit goes by no clock
	}
	store, err := redisstore.Open(ctx, options)
	if err != nil {
		c.t.Fatalf("audit: %v", err)
	}
	records := int64(0)
	for shard := range c.shardCount() {
		report, err := fsck.New(store).CheckShard(ctx, shard, false)
		if err != nil {
			c.t.Fatalf("audit of shard %d: %v", shard, err)
		}
		for _, f := range report.Findings {
			c.t.Errorf("audit of shard %d: %s of %s: %+v", shard, f.Fault, f.Record, f)
		}
		for _, n := range report.Records {
			records += n
		}
	}
	c.t.Logf("audit: %d records, nothing out of place", records)
}

// shardCount is how many the keyspace has.
func (c *cluster) shardCount() int {
	if c.plain {
		return redisstore.DefaultShards
	}
	return shards
}

// readLocks are the values of all shard locks that are held.
func (c *cluster) readLocks() (map[int]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if c.looking == nil {
		client, err := conn.NewClient(conn.ClientOptions{URL: c.redisURL})
		if err != nil {
			return nil, err
		}
		c.t.Cleanup(func() { _ = client.Close() })
		store, err := redisstore.Open(ctx, redisstore.Options{Client: client, Shards: c.shardCount(), AllowUnsafe: true})
		if err != nil {
			return nil, err
		}
		c.looking = &looking{client, store}
	}
	held := map[int]string{}
	for shard := range c.shardCount() {
		value, err := c.looking.client.Get(ctx, c.looking.store.LockKey(shard)).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		held[shard] = value
	}
	return held, nil
}

// looking is how the test itself looks at Redis.
type looking struct {
	client redis.UniversalClient
	store  *redisstore.Store
}

// newRedis is a standalone server for one test. Its append-only file is never
// flushed: no test here crashes it, and the disk is not what they test.
func newRedis(t testing.TB) *redistest.Server {
	t.Helper()
	return redistest.Start(t, redistest.WithAOF("no"))
}

// schedulerNode is one scheduler process.
type schedulerNode struct {
	*process
	id                       string
	grpc, peer, gossip, http string
	secured                  credentials.TransportCredentials
	conn                     *grpc.ClientConn
	jobs                     fermatav1.JobServiceClient
	cluster                  fermatav1.ClusterServiceClient
	workers                  fermatav1.WorkerServiceClient
}

// startNode runs a node and waits until it is up. It joins the nodes there are. Its
// own flags come after those of all nodes.
func (c *cluster) startNode(id string, flags ...string) *schedulerNode {
	c.t.Helper()
	return c.startAs(id, "", nil, flags...)
}

// startAs is start with another binary, if one is named, and environment.
func (c *cluster) startAs(id, binary string, env []string, flags ...string) *schedulerNode {
	c.t.Helper()
	if binary == "" {
		binary = c.schedulerPath()
	}
	args := []string{
		"--name", id, "--redis-url", c.redisURL,
		"--grpc-addr", "127.0.0.1:0", "--peer-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0",
		"--min-interval", "1s", "--drain-timeout", "20s", "--log-format", "json",
	}
	if !c.plain {
		args = append(args, "--shards", fmt.Sprint(shards), "--lock-ttl", lockTTL.String(), "--lease-ttl", leaseTTL.String())
	}
	for _, n := range c.nodes {
		args = append(args, "--join", n.gossip)
	}
	p := startProcess(c.t, "node-"+id, env, binary, slices.Concat(args, c.flags, flags)...)
	if c.spawned != nil {
		c.spawned(id, p.cmd.Process.Pid)
	}
	return c.awaitNodeUp(id, p)
}

// awaitNodeUp waits until a node process is up and connects to it.
func (c *cluster) awaitNodeUp(id string, p *process) *schedulerNode {
	c.t.Helper()
	n := &schedulerNode{process: p, id: id, secured: c.secured}
	up := p.awaitLog(patience, "node is up")
	for field, addr := range map[string]*string{"grpc": &n.grpc, "peer": &n.peer, "gossip": &n.gossip, "http": &n.http} {
		text, ok := up[field].(string)
		if !ok {
			c.t.Fatalf("%s does not log its %s address: %v", p.name, field, up)
		}
		*addr = text
	}
	n.connectTo(n.grpc)
	c.nodes = append(c.nodes, n)
	return n
}

// connectTo makes the node's clients use an address of it.
func (n *schedulerNode) connectTo(addr string) {
	if n.secured != nil {
		n.conn = dialSecured(n.t, addr, n.secured)
	} else {
		n.conn = dialPlain(n.t, addr)
	}
	n.jobs, n.cluster = fermatav1.NewJobServiceClient(n.conn), fermatav1.NewClusterServiceClient(n.conn)
	n.workers = fermatav1.NewWorkerServiceClient(n.conn)
}

func dialPlain(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	return dialSecured(t, addr, insecure.NewCredentials())
}

func dialSecured(t testing.TB, addr string, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// forgetNode takes a node off the list of expected members.
func (c *cluster) forgetNode(n *schedulerNode) {
	c.nodes = slices.DeleteFunc(c.nodes, func(o *schedulerNode) bool { return o == n })
}

// killNode crashes a node.
func (c *cluster) killNode(n *schedulerNode) {
	n.killProcess()
	c.forgetNode(n)
}

// stopNode ends a node in good order.
func (c *cluster) stopNode(n *schedulerNode) {
	c.t.Helper()
	n.terminate(25 * time.Second)
	c.forgetNode(n)
}

// awaitSettled waits until all nodes are ready, know each other and no other node, and
// every shard is held, by all of them.
func (c *cluster) awaitSettled() {
	c.t.Helper()
	for _, n := range c.nodes {
		redistest.Eventually(c.t, patience, n.name+" sees a settled cluster", func() error { return c.checkSettled(n) })
	}
}

// awaitLostNodes waits until all nodes list these as lost, and no others.
func (c *cluster) awaitLostNodes(want ...string) {
	c.t.Helper()
	for _, n := range c.nodes {
		redistest.Eventually(c.t, patience, n.name+" lists the lost nodes", func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			list, err := n.cluster.ListNodes(ctx, &fermatav1.ListNodesRequest{})
			if err != nil {
				return err
			}
			var have []string
			for _, m := range list.GetLostNodes() {
				have = append(have, m.GetName())
			}
			if !slices.Equal(want, have) {
				return fmt.Errorf("lost nodes are %v, want %v", have, want)
			}
			return nil
		})
	}
}

func (c *cluster) checkSettled(n *schedulerNode) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := checkReady(ctx, n.http); err != nil {
		return err
	}
	var want, have []string
	for _, m := range c.nodes {
		want = append(want, m.id)
	}
	nodes, err := n.cluster.ListNodes(ctx, &fermatav1.ListNodesRequest{})
	if err != nil {
		return err
	}
	for _, m := range nodes.GetNodes() {
		if !m.GetUnreachable() {
			have = append(have, m.GetName())
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		return fmt.Errorf("members are %v, want %v", have, want)
	}
	list, err := n.cluster.ListShards(ctx, &fermatav1.ListShardsRequest{})
	if err != nil {
		return err
	}
	held := map[string]int{}
	for _, s := range list.GetShards() {
		held[s.GetHolder()]++
	}
	for _, id := range want {
		if held[id] == 0 {
			return fmt.Errorf("%s holds no shard: %v", id, held)
		}
	}
	if len(held) != len(want) {
		return fmt.Errorf("shards are held by %v, want all by %v", held, want)
	}
	return nil
}

func checkReady(ctx context.Context, addr string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz answers %s", res.Status)
	}
	return nil
}
