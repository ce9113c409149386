package shardlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/test/paralleltest"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/stalltest"
)

const (
	testTTL  = 6 * time.Second
	patience = redistest.Patience
	// longTTL leaves a third of it, in which a lock is broken and has not expired yet, to a
	// machine that stands still.
	longTTL = 2 * testTTL
)

// testsAtOnce is how many parallel tests run at once. They wait for locks and heartbeats to
// expire: one after the other, they use a tenth of one processor.
const testsAtOnce = 6

func TestMain(m *testing.M) {
	if err := paralleltest.RunAtOnce(testsAtOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func testKey(shard int) string { return "fermata:{" + strconv.Itoa(shard) + "}:lock" }

func testLifeKey(process string) string { return "fermata:{meta}:life:" + process }

// fleet is a set of nodes on one keyspace, wired as the product wires them: a node that releases a shard
// notifies the next owner. It records everything that they report.
type fleet struct {
	t        *testing.T
	client   redis.UniversalClient // of the nodes
	observer redis.UniversalClient // of the test
	shards   int

	mu     sync.Mutex
	nodes  map[string]*testNode
	holder map[int]string // according to OnAcquire and OnLose
	losses []string       // "node shard reason"
	double []string
}

type testNode struct {
	*Manager
	name  string
	crash func() // ends Run, waits for it
}

func newFleet(t *testing.T, client redis.UniversalClient, shards int) *fleet {
	return &fleet{t: t, client: client, observer: client, shards: shards, nodes: map[string]*testNode{}, holder: map[int]string{}}
}

func (f *fleet) start(name string, change ...func(*Options)) *testNode {
	f.t.Helper()
	o := Options{
		Client: f.client, Key: testKey, HeartbeatKey: testLifeKey, Shards: f.shards, Node: name, PeerAddr: name + ":7000",
		TTL: testTTL, HandoverDelay: 100 * time.Millisecond, Registerer: prometheus.NewRegistry(),
		OnAcquire: func(shard int, value string) { f.acquired(name, shard, value) },
		OnLose:    func(shard int, reason string) { f.lost(name, shard, reason) },
		OnRelease: f.released,
	}
	for _, c := range change {
		c(&o)
	}
	m, err := New(o)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	n := &testNode{Manager: m, name: name, crash: sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("Run of %s: %v", name, err)
		}
	})}
	f.t.Cleanup(n.crash)
	f.mu.Lock()
	f.nodes[name] = n
	f.mu.Unlock()
	return n
}

func (f *fleet) acquired(name string, shard int, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if other, held := f.holder[shard]; held {
		f.double = append(f.double, fmt.Sprintf("%s acquired %d while %s held it", name, shard, other))
	}
	f.holder[shard] = name
	if node, addr, ok := ParseHolder(value); !ok || node != name || addr != name+":7000" {
		f.double = append(f.double, fmt.Sprintf("value %q names %q at %q", value, node, addr))
	}
}

func (f *fleet) lost(name string, shard int, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.holder, shard)
	f.losses = append(f.losses, fmt.Sprintf("%s %d %s", name, shard, reason))
}

func (f *fleet) released(shard int, owner string) {
	f.mu.Lock()
	n := f.nodes[owner]
	f.mu.Unlock()
	if n != nil {
		n.ShardsReleased(shard)
	}
}

func (f *fleet) lossCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.losses)
}

// lossesOf counts the losses for a reason.
func (f *fleet) lossesOf(reason string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.losses {
		var node, why string
		var shard int
		if _, err := fmt.Sscan(l, &node, &shard, &why); err == nil && why == reason {
			n++
		}
	}
	return n
}

func (f *fleet) noDoubleHolding() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.double) > 0 {
		f.t.Fatalf("two holders at once: %v", f.double)
	}
}

func view(self string, names ...string) sharding.View {
	v := sharding.View{Version: 1, Self: self}
	slices.Sort(names)
	for _, n := range names {
		v.Members = append(v.Members, sharding.Member{Name: n, PeerAddr: n + ":7000"})
	}
	return v
}

// see shows all of these nodes the view that has exactly them.
func (f *fleet) see(names ...string) {
	for _, n := range names {
		f.nodes[n].SetView(f.view(n, names...))
	}
}

// view is a view with the processes of those nodes that the fleet has.
func (f *fleet) view(self string, names ...string) sharding.View {
	v := view(self, slices.Clone(names)...)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, m := range v.Members {
		if n := f.nodes[m.Name]; n != nil {
			v.Members[i].Process = n.Process()
		}
	}
	return v
}

// converged waits until each node holds exactly what the ring gives it.
func (f *fleet) converged(names ...string) {
	f.t.Helper()
	owners := sharding.Assign(view("", slices.Clone(names)...), f.shards)
	redistest.Eventually(f.t, patience, "convergence", func() error {
		for _, name := range names {
			for shard, owner := range owners {
				if _, held := f.nodes[name].ValidLock(shard); held != (owner == name) {
					return fmt.Errorf("shard %d of %s: held by %s = %t", shard, owner, name, held)
				}
			}
		}
		return nil
	})
}

// settledScene plays a scene in which processes write heartbeats and nothing changes
// hands, and fails the test with what did. On a machine that stands still for as long as
// a heartbeat may take, they may be given too late: the scene is played again, on a
// server of its own.
func settledScene(t *testing.T, scene func(f *fleet) (wrong []string)) {
	t.Helper()
	for range 5 {
		server := redistest.Start(t)
		machine, begun := stalltest.Start(t), time.Now()
		machine.Ask(stalltest.Beat, func(ctx context.Context) error { return server.Client().Ping(ctx).Err() })
		f := newFleet(t, server.Granted(), 8)
		wrong := scene(f)
		f.mu.Lock()
		nodes := slices.Collect(maps.Values(f.nodes))
		f.mu.Unlock()
		for _, n := range nodes {
			n.crash()
		}
		stood := machine.Longest(begun)
		if len(wrong) == 0 {
			return
		}
		if stood < beatEvery {
			t.Fatalf("%v; the machine stood still for %v at most", wrong, stood)
		}
		t.Logf("%v; the machine stood still for %v", wrong, stood)
	}
	t.Fatal("the machine never let a process write its heartbeats in time")
}

// holds waits until the node holds the shard and returns its lock.
func (f *fleet) holds(n *testNode, shard int) (lock ValidLock) {
	f.t.Helper()
	redistest.Eventually(f.t, patience, n.name+" holds", func() error {
		var ok bool
		if lock, ok = n.ValidLock(shard); !ok {
			return errors.New("not held")
		}
		return nil
	})
	return lock
}

func (f *fleet) value(shard int) string {
	f.t.Helper()
	v, err := f.observer.Get(f.t.Context(), testKey(shard)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		f.t.Fatal(err)
	}
	return v
}

func (n *testNode) taken() (free, broken int) {
	return int(testutil.ToFloat64(n.metrics.free)), int(testutil.ToFloat64(n.metrics.broken))
}
