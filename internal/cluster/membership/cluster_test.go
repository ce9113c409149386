package membership

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/test/keytest"
	"github.com/fermata-io/fermata/internal/test/paralleltest"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/stalltest"
)

const patience = redistest.Patience

// TestMain looks for leaks for longer than goleak's default: a goroutine of memberlist may end only a stream
// timeout after Shutdown.
// testsAtOnce is how many parallel tests run at once. They wait for gossip and its timeouts.
const testsAtOnce = 6

func TestMain(m *testing.M) {
	if err := paralleltest.RunAtOnce(testsAtOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	var leak error
	for deadline := time.Now().Add(3 * streamTimeout); time.Now().Before(deadline); {
		leak = goleak.Find()
		if leak == nil {
			break
		}
	}
	if code == 0 && leak != nil {
		fmt.Fprintln(os.Stderr, leak)
		code = 1
	}
	os.Exit(code)
}

func newNode(t *testing.T, name string, change ...func(*Options)) *Cluster {
	t.Helper()
	o := Options{
		Name: name, BindAddr: "127.0.0.1", GRPCAddr: name + ":9000", PeerAddr: name + ":7000", Process: "first-" + name,
		Label: t.Name(), RejoinEvery: 300 * time.Millisecond,
	}
	for _, c := range change {
		c(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop %s: %v", name, err)
		}
	})
	return c
}

func startNode(t *testing.T, name string, change ...func(*Options)) *Cluster {
	t.Helper()
	c := newNode(t, name, change...)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func joining(addrs ...string) func(*Options) { return func(o *Options) { o.Join = addrs } }

// memberNames are the names of the members; withdrawn ones have a minus.
func memberNames(v sharding.View) string {
	var list []string
	for _, m := range v.Members {
		name := m.Name
		if m.Withdrawn {
			name += "-"
		}
		list = append(list, name)
	}
	return strings.Join(list, " ")
}

// awaitMembers waits until the node's view has exactly these names.
func awaitMembers(t *testing.T, c *Cluster, want string) time.Duration {
	t.Helper()
	start := time.Now()
	redistest.Eventually(t, patience, c.o.Name+" sees "+want, func() error {
		if got := memberNames(c.View()); got != want {
			return fmt.Errorf("it sees %q", got)
		}
		return nil
	})
	return time.Since(start)
}

// startThreeNodes starts a cluster of a, b and c.
func startThreeNodes(t *testing.T, change ...func(*Options)) (a, b, c *Cluster) {
	t.Helper()
	a = startNode(t, "a", change...)
	b = startNode(t, "b", append(change, joining(a.LocalAddr()))...)
	c = startNode(t, "c", append(change, joining(b.LocalAddr()))...)
	for _, n := range []*Cluster{a, b, c} {
		awaitMembers(t, n, "a b c")
	}
	return a, b, c
}

func TestAlone(t *testing.T) {
	t.Parallel()
	c := newNode(t, "a")
	want := sharding.View{Version: 1, Self: "a",
		Members: []sharding.Member{{Name: "a", GRPCAddr: "a:9000", PeerAddr: "a:7000", Process: "first-a", UnreachablePrimaries: -1}}}
	check := func(when string) {
		t.Helper()
		v := c.View()
		if v.Version != want.Version || v.Self != want.Self || !slices.Equal(v.Members, want.Members) {
			t.Errorf("%s: %+v", when, v)
		}
	}
	check("before Start")
	if c.LocalAddr() != "" {
		t.Errorf("address %q before Start", c.LocalAddr())
	}
	got := make(chan sharding.View, 1)
	c.Subscribe(func(v sharding.View) { got <- v })
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := <-got; v.Version != 1 {
		t.Errorf("first view %+v", v)
	}
	check("after Start")
	if _, port, err := net.SplitHostPort(c.LocalAddr()); err != nil || port == "0" {
		t.Errorf("address %q", c.LocalAddr())
	}
	if err := c.Start(t.Context()); err == nil {
		t.Error("started twice")
	}
	if err := errors.Join(c.Leave(time.Second), c.Leave(time.Second), c.Stop(), c.Stop(),
		c.Leave(time.Second)); err != nil {
		t.Error(err)
	}
	if err := c.Start(t.Context()); err == nil {
		t.Error("started after Stop")
	}
}

func TestThreeNodesConverge(t *testing.T) {
	t.Parallel()
	a, b, c := startThreeNodes(t)
	for _, n := range []*Cluster{a, b, c} {
		v := n.View()
		for _, m := range v.Members {
			if m.GRPCAddr != m.Name+":9000" || m.PeerAddr != m.Name+":7000" || m.Process != "first-"+m.Name {
				t.Errorf("%s knows %+v", v.Self, m)
			}
		}
		for _, info := range n.Members() {
			peer := map[string]*Cluster{"a": a, "b": b, "c": c}[info.Name]
			if info.Addr != peer.LocalAddr() || info.State != StateAlive {
				t.Errorf("%s knows %+v", v.Self, info)
			}
		}
	}
}

func TestCrashIsDetectedAndNameComesBack(t *testing.T) {
	t.Parallel()
	a, b, c := startThreeNodes(t)
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	took := max(awaitMembers(t, a, "a b"), awaitMembers(t, b, "a b"))
	t.Logf("crash detected in %v", took)
	if i := slices.IndexFunc(a.Members(), func(m MemberState) bool {
		return m.Name == "c" &&
			m.State == StateDeparted
	}); i < 0 {
		t.Errorf("a forgot c at once: %+v", a.Members())
	}
	// The same name at another port: a rescheduled pod.
	again := startNode(t, "c", joining(a.LocalAddr()), func(o *Options) { o.GRPCAddr = "new:9000" })
	for _, n := range []*Cluster{a, b, again} {
		awaitMembers(t, n, "a b c")
	}
	if m := a.View().Members[2]; m.GRPCAddr != "new:9000" {
		t.Errorf("a knows the old process: %+v", m)
	}
}

// A process that restarts at its old address before its crash is detected differs from the one before, whose
// locks it does not hold.
func TestUnnoticedRestartChangesProcess(t *testing.T) {
	t.Parallel()
	apart := func(o *Options) { o.BindAddr = "127.83.11.7" } // so that the port stays free
	a, b, c := startThreeNodes(t, apart)
	_, port, err := net.SplitHostPort(c.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	startNode(t, "c", apart, joining(a.LocalAddr()), func(o *Options) {
		o.BindPort, _ = strconv.Atoi(port)
		o.Process = "second-c"
	})
	for _, n := range []*Cluster{a, b} {
		redistest.Eventually(t, patience, n.o.Name+" sees the new process", func() error {
			if m, ok := n.View().Member("c"); !ok || m.Process != "second-c" {
				return fmt.Errorf("it sees %+v", n.View().Members)
			}
			return nil
		})
	}
}

func TestLeaveIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	logs := &logBuffer{}
	a, b, c := startThreeNodes(t, func(o *Options) { o.Logger = logs.logger() })
	start := time.Now()
	if err := c.Leave(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	awaitMembers(t, a, "a b")
	awaitMembers(t, b, "a b")
	t.Logf("leave seen in %v", time.Since(start))
	if n := logs.count("Marking c as failed"); n > 0 {
		t.Errorf("%d nodes took it for a crash", n)
	}
	awaitMembers(t, c, "a b") // the node that left keeps joining
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
}

func TestSubscribersSeeVersionsInOrder(t *testing.T) {
	t.Parallel()
	a := startNode(t, "a")
	var mu sync.Mutex
	var versions []uint64
	var last sharding.View
	blocked := make(chan struct{})
	a.Subscribe(func(v sharding.View) {
		<-blocked // a slow subscriber
		mu.Lock()
		defer mu.Unlock()
		versions, last = append(versions, v.Version), v
	})
	b := startNode(t, "b", joining(a.LocalAddr()))
	startNode(t, "c", joining(a.LocalAddr()))
	awaitMembers(t, b, "a b c") // gossip goes on
	close(blocked)
	redistest.Eventually(t, patience, "the last view", func() error {
		mu.Lock()
		defer mu.Unlock()
		if memberNames(last) != "a b c" {
			return fmt.Errorf("%+v", last)
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if !slices.IsSorted(versions) || len(slices.Compact(slices.Clone(versions))) != len(versions) {
		t.Errorf("versions %v", versions)
	}
	if last.Version != a.View().Version {
		t.Errorf("last view has version %d, View %d", last.Version, a.View().Version)
	}
}

func TestEncryptedClusterConverges(t *testing.T) {
	t.Parallel()
	startThreeNodes(t, func(o *Options) { o.KeyFile = keyFile(t, keytest.Key("gossip")) })
}

// TestStrangersStayOut also starts a node of the cluster, so that "did not join" is observed after a successful
// join.
func TestStrangersStayOut(t *testing.T) {
	t.Parallel()
	key := keyFile(t, keytest.Key("gossip")[:16])
	strangers := map[string]func(*Options){
		"another key":   func(o *Options) { o.KeyFile = keyFile(t, keytest.Key("another")[:16]) },
		"no key":        func(o *Options) { o.KeyFile = "" },
		"another label": func(o *Options) { o.Label = "other" },
		"no label":      func(o *Options) { o.Label = "" },
	}
	for name, change := range strangers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secure := func(o *Options) { o.KeyFile = key }
			a := startNode(t, "a", secure)
			x := startNode(t, "x", secure, joining(a.LocalAddr()), change)
			if n, err := x.startGossip().Join([]string{a.LocalAddr()}); n != 0 || err == nil {
				t.Errorf("the stranger joined %d nodes, %v", n, err)
			}
			b := startNode(t, "b", secure, joining(a.LocalAddr()))
			awaitMembers(t, a, "a b")
			awaitMembers(t, b, "a b")
			awaitMembers(t, x, "x")
		})
	}
}

func TestJoinsWhenTheSeedAppearsLater(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	b := startNode(t, "b", joining("localhost:"+strconv.Itoa(port))) // a DNS name without a node
	awaitMembers(t, b, "b")
	a := startNode(t, "a", func(o *Options) { o.BindPort = port })
	awaitMembers(t, a, "a b")
	awaitMembers(t, b, "a b")
}

// TestReturnedNodeRejoinsAtOnce: not at the next round, which is an hour later.
func TestReturnedNodeRejoinsAtOnce(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	a := startNode(t, "a", joining(fmt.Sprintf("127.0.0.1:%d", port)), func(o *Options) { o.RejoinEvery = time.Hour })
	startNode(t, "b", func(o *Options) { o.BindPort = port })
	if err := a.PublishRedisState(RedisState{Aside: true, Blind: -1}); err != nil {
		t.Fatal(err)
	}
	if err := a.PublishRedisState(RedisState{Blind: -1}); err != nil {
		t.Fatal(err)
	}
	awaitMembers(t, a, "a b")
}

// TestPartitionHeals needs no seeds on the side that was cut off: the others keep its address.
func TestPartitionHeals(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	fixed := func(o *Options) { o.BindPort = port }
	a := startNode(t, "a", fixed)
	b := startNode(t, "b", joining(a.LocalAddr()))
	awaitMembers(t, a, "a b")
	awaitMembers(t, b, "a b")
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	awaitMembers(t, b, "b")
	back := startNode(t, "a", fixed) // no seeds
	awaitMembers(t, b, "a b")
	awaitMembers(t, back, "a b")
}

func TestRemembersDepartedWithoutSeeds(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	a := startNode(t, "a")
	b := startNode(t, "b", joining(a.LocalAddr()), func(o *Options) { o.BindPort = port })
	awaitMembers(t, a, "a b")
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	awaitMembers(t, a, "a")
	startNode(t, "b", func(o *Options) { o.BindPort = port }) // neither has a seed
	awaitMembers(t, a, "a b")
}

func TestSecondNodeOfOneNameIsNoMember(t *testing.T) {
	t.Parallel()
	a := startNode(t, "a")
	startNode(t, "b", joining(a.LocalAddr()))
	awaitMembers(t, a, "a b")
	addr := a.Members()[1].Addr
	startNode(t, "b", joining(a.LocalAddr()))
	if got := a.Members()[1].Addr; got != addr {
		t.Errorf("b is at %s now, was at %s", got, addr)
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newNode(t, "a", joining("192.0.2.1:7946")) // an address that does not answer
	machine, start := stalltest.Start(t), time.Now()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d >= joinTimeout+machine.Since(start) {
		t.Errorf("Start took %v", d)
	}
}

func TestStartFailsIfItCannotListen(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := newNode(t, "a", func(o *Options) { o.BindPort = l.Addr().(*net.TCPAddr).Port })
	if err := c.Start(t.Context()); err == nil {
		t.Error("started on a port that is taken")
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	a := startNode(t, "a", func(o *Options) { o.Registerer = reg })
	startNode(t, "b", joining(a.LocalAddr()))
	awaitMembers(t, a, "a b")
	want := `
# HELP fermata_members Live nodes of the cluster as this node sees it, itself included.
# TYPE fermata_members gauge
fermata_members 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "fermata_members"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg, "fermata_gossip_health_score"); err != nil || n != 1 {
		t.Errorf("%d series of the health score, %v", n, err)
	}
}

// freePort is free for TCP and UDP, and below the kernel's ephemeral ports, so that no other process gets it
// meanwhile.
func freePort(t *testing.T) int {
	t.Helper()
	for range 50 {
		port := 3000 + rand.IntN(6000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		u, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
		_ = l.Close()
		if err == nil {
			_ = u.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

func TestWithdrawalIsPublished(t *testing.T) {
	t.Parallel()
	a, b, c := startThreeNodes(t)
	for _, step := range []struct {
		aside bool
		blind int
		want  string
	}{{true, 1, "a b- c"}, {false, 0, "a b c"}, {false, -1, "a b c"}} {
		if err := b.PublishRedisState(RedisState{Aside: step.aside, Blind: step.blind}); err != nil {
			t.Fatal(err)
		}
		for _, n := range []*Cluster{a, b, c} {
			awaitMembers(t, n, step.want)
			redistest.Eventually(t, patience, "a knows how much b sees",
				func() bool { m, _ := n.View().Member("b"); return m.UnreachablePrimaries == step.blind })
			if m, ok := n.View().Member("b"); !ok || m.GRPCAddr != "b:9000" {
				t.Errorf("%s lost the addresses: %+v", n.o.Name, m)
			}
		}
	}
}

// A repeated call repairs an update that memberlist has dropped.
func TestRepeatedPublicationRepairsALostOne(t *testing.T) {
	t.Parallel()
	a, b, _ := startThreeNodes(t)
	withdrawn := RedisState{Aside: true, Blind: 1}
	m := b.o.nodeMeta()
	m.Aside, m.Blind = true, 2
	b.nodes.setMetadata(m) // as after an update that met a refutation
	if b.nodes.hasAnnounced() {
		t.Fatal("memberlist has metadata that it did not receive")
	}
	if err := b.PublishRedisState(withdrawn); err != nil || !b.nodes.hasAnnounced() {
		t.Fatalf("%v, memberlist has it: %t", err, b.nodes.hasAnnounced())
	}
	awaitMembers(t, a, "a b- c")
}
