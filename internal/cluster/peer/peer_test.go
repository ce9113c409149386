package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a peer with its server and the messages that it received.
type node struct {
	workers []job.WorkerInfo // that it describes; nil: one
	t       *testing.T
	name    string
	addr    string
	peer    *Peer
	server  *grpc.Server
	serve   sync.WaitGroup

	mu    sync.Mutex
	heard []string
	news  chan struct{}
}

func (n *node) record(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = append(n.heard, fmt.Sprintf(format, args...))
	select {
	case n.news <- struct{}{}:
	default:
	}
}

func (n *node) OnDemand(from string, d []job.QueueDemand) {
	if len(d) > 1000 {
		n.record("demand %s of %d queues", from, len(d))
		return
	}
	n.record("demand %s %v", from, d)
}
func (n *node) OnLinkDown(from string)            { n.record("down %s", from) }
func (n *node) OnProcessEnded(peer string)        { n.record("gone %s", peer) }
func (n *node) OnLinkUp(peer string)              { n.record("back %s", peer) }
func (n *node) OnAddress(peer string)             { n.record("address %s", peer) }
func (n *node) OnNudge(shard int, h job.LaneHead) { n.record("nudge %d %s %d", shard, h.Lane, h.DueMS) }
func (n *node) OnPermits(from string, permits []job.Permit) {
	n.record("permits %s %d", from, len(permits))
	for _, p := range permits {
		n.record("permit %s %+v", from, p)
	}
}

func (n *node) OnPermitResults(from string, results []job.PermitResult) {
	n.record("results %s %d", from, len(results))
	for _, r := range results {
		n.record("result %s %+v", from, r)
	}
}
func (n *node) OnHandOver(shards []int)                    { n.record("handover %v", shards) }
func (n *node) OnLeaving(peer string)                      { n.record("leaving %s", peer) }
func (n *node) OnCancel(record job.RecordID, token uint64) { n.record("cancel %s %d", record, token) }

var started = time.Unix(1_700_000_000, 0).UTC()

func (n *node) Describe() job.NodeInfo {
	workers := n.workers
	if workers == nil {
		workers = []job.WorkerInfo{{ID: "w", Node: n.name, Namespace: "ns", Queues: []string{"q"}, Slots: 4, Running: 2,
			Draining: true, ConnectedAt: started, Version: "v2", Labels: map[string]string{"a": "b"}, Identity: "token:w"}}
	}
	return job.NodeInfo{
		Name: n.name, GRPCAddress: n.name + ".example:7070", PeerAddress: n.addr, ShardsHeld: 7, Draining: true, Version: "v1",
		StartedAt: started, Durability: "local",
		Workers: workers, WorkerCount: len(workers), QueueWorkers: job.SumQueueWorkers(workers),
	}
}

// waitFor returns when a message has been received, and fails the test if it never is.
func (n *node) waitFor(want string) {
	n.t.Helper()
	deadline := time.After(redistest.Patience)
	for {
		n.mu.Lock()
		i := slices.Index(n.heard, want)
		if i >= 0 {
			n.heard = slices.Delete(n.heard, i, i+1)
		}
		heard := slices.Clone(n.heard)
		n.mu.Unlock()
		if i >= 0 {
			return
		}
		select {
		case <-n.news:
		case <-deadline:
			n.t.Fatalf("%s never heard %q but %q", n.name, want, heard)
		}
	}
}

// start makes a node that listens on addr.
func start(t *testing.T, name, addr string, r prometheus.Registerer) *node {
	t.Helper()
	return startSecured(t, name, addr, r, insecure.NewCredentials())
}

// startSecured is start with credentials for both directions.
func startSecured(t *testing.T, name, addr string, r prometheus.Registerer, c credentials.TransportCredentials, change ...func(*Options)) *node {
	t.Helper()
	n := &node{t: t, name: name, news: make(chan struct{}, 1)}
	o := Options{Self: name, Handler: n, Registerer: r, Credentials: c}
	for _, f := range change {
		f(&o)
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	n.peer = p
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	n.addr = listener.Addr().String()
	n.server = grpc.NewServer(grpc.Creds(c), MessageLimit())
	p.Register(n.server)
	n.serve.Go(func() { _ = n.server.Serve(listener) })
	t.Cleanup(n.stop)
	return n
}

func (n *node) stop() {
	n.peer.Stop()
	n.server.Stop()
	n.serve.Wait()
}

func members(nodes ...*node) []sharding.Member {
	var list []sharding.Member
	for _, n := range nodes {
		list = append(list, sharding.Member{Name: n.name, GRPCAddr: n.name + ".example:7070", PeerAddr: n.addr})
	}
	return list
}

// hasMembers makes the view of a node contain members that it cannot dial.
func (n *node) hasMembers(names ...string) {
	list := members(n)
	for _, name := range names {
		list = append(list, sharding.Member{Name: name, PeerAddr: "127.0.0.1:1"})
	}
	n.peer.SetView(sharding.NewView(1, n.name, list))
}

// count returns how often a message has been received, apart from those that were waited for.
func (n *node) count(want string) (times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.heard {
		if s == want {
			times++
		}
	}
	return times
}

// cluster starts three nodes that know each other. Each has sent its demand.
func cluster(t *testing.T) (a, b, c *node) {
	t.Helper()
	a, b, c = start(t, "a", "127.0.0.1:0", nil), start(t, "b", "127.0.0.1:0", nil), start(t, "c", "127.0.0.1:0", nil)
	all := []*node{a, b, c}
	for i, n := range all {
		n.peer.OfferSlots(demandOf(i))
		n.peer.SetView(sharding.NewView(1, n.name, members(all...)))
	}
	for i, n := range all {
		for _, other := range all {
			if other != n {
				other.waitFor(fmt.Sprintf("demand %s %v", n.name, demandOf(i)))
			}
		}
	}
	return a, b, c
}

func demandOf(free int) []job.QueueDemand {
	return []job.QueueDemand{{Namespace: "ns", Queue: "q", Free: free}}
}

var lane = job.Lane{Namespace: "ns", Queue: "q", Priority: 5}

func TestAllMessagesAreDelivered(t *testing.T) {
	a, b, c := cluster(t)
	permit := job.Permit{ID: 9, Shard: 3, Lane: lane, N: 20, LockValue: "v", ValidFor: job.PermitValidity,
		Advance: 20 * time.Millisecond}
	if a.peer.SendPermits("b", []job.Permit{permit}) != 1 {
		t.Error("no link to b")
	}
	b.waitFor(fmt.Sprintf("permit a %+v", permit))
	result := job.PermitResult{ID: 9, Leased: 4, DueMS: 77}
	b.peer.SendPermitResults("a", []job.LanePermitResult{{PermitResult: result, Lane: lane}})
	a.waitFor(fmt.Sprintf("result b %+v", result))

	a.peer.SendNudge("c", 5, job.LaneHead{Lane: lane, DueMS: 123})
	c.waitFor("nudge 5 ns/q/5 123")
	a.peer.BroadcastCancel("ns/j", 42)
	b.waitFor("cancel ns/j 42")
	c.waitFor("cancel ns/j 42")
	c.peer.BroadcastHandOver([]int{1, 2})
	a.waitFor("handover [1 2]")
	b.waitFor("handover [1 2]")
	c.peer.BroadcastHandOver(nil)
	b.peer.OfferSlots(nil)
	a.waitFor("demand b []")
	c.peer.BroadcastLeave([]int{3})
	a.waitFor("leaving c")
	a.waitFor("handover [3]")
	b.peer.BroadcastLeave(nil)
	a.waitFor("leaving b")

	if a.peer.SendPermits("nobody", []job.Permit{permit}) != 0 {
		t.Error("sent a permit to nobody")
	}
	a.peer.SendNudge("nobody", 1, job.LaneHead{})
	a.peer.SendPermitResults("nobody", []job.LanePermitResult{{PermitResult: result, Lane: lane}})
}

// Messages that were queued before a node stops are delivered.
func TestQueuedMessagesAreSentBeforeStop(t *testing.T) {
	for i := range 20 { // who is quicker is a matter of luck
		t.Run("", func(t *testing.T) {
			a, b, c := cluster(t)
			for shard := range i {
				c.peer.BroadcastHandOver([]int{shard})
			}
			c.peer.Stop()
			for shard := range i {
				a.waitFor(fmt.Sprintf("handover [%d]", shard))
				b.waitFor(fmt.Sprintf("handover [%d]", shard))
			}
		})
	}
}

func TestReconnectToRestartedNode(t *testing.T) {
	a, b, c := cluster(t)
	b.stop()
	a.waitFor("down b")
	c.waitFor("down b")
	if a.peer.SendPermits("b", []job.Permit{{ID: 1}}) > 0 {
		t.Error("sent a permit over a dead link")
	}
	a.peer.OfferSlots(demandOf(11))

	// The same name and address again: known demand is sent without being asked for.
	again := start(t, "b", b.addr, nil)
	again.hasMembers("a", "c")
	again.waitFor(fmt.Sprintf("demand a %v", demandOf(11)))
	again.waitFor(fmt.Sprintf("demand c %v", demandOf(2)))
	if again.peer.SendPermits("a", []job.Permit{{ID: 1, Lane: lane, N: 1, LockValue: "v", ValidFor: time.Hour}}) != 1 {
		t.Error("no link to a")
	}
	a.waitFor(fmt.Sprintf("permit b %+v", job.Permit{ID: 1, Lane: lane, N: 1, LockValue: "v", ValidFor: job.MaxPermitValidity}))
}

func TestLinksFollowTheView(t *testing.T) {
	a, b, c := cluster(t)
	if alone := start(t, "alone", "127.0.0.1:0", nil); !a.peer.HasPeers() || alone.peer.HasPeers() {
		t.Error("a node has links that needs none, or none where it has peers")
	}
	// A node that has left the view still sends which shards it released, as long as its stream is open.
	a.peer.SetView(sharding.NewView(2, "a", members(a, c)))
	b.peer.BroadcastHandOver([]int{1, 2})
	a.waitFor("handover [1 2]")
	c.waitFor("handover [1 2]")
	// b comes back under another address.
	moved := start(t, "b", "127.0.0.1:0", nil)
	moved.hasMembers("a", "c")
	a.peer.SetView(sharding.NewView(3, "a", members(a, moved, c)))
	moved.waitFor(fmt.Sprintf("demand a %v", demandOf(0)))
	c.peer.SetView(sharding.NewView(3, "c", members(a, moved, c)))
	b.waitFor("down c")
	moved.waitFor(fmt.Sprintf("demand c %v", demandOf(2)))
	a.peer.Stop()
	a.peer.Stop()
	moved.waitFor("down a")
	a.peer.SetView(sharding.NewView(4, "a", members(a, moved, c)))
	if n := len(a.peer.DescribeAll(context.Background())); n != 2 {
		t.Errorf("links after Stop: %d", n)
	}
}

func TestDepartedNodeIsRemovedWhenItsStreamEnds(t *testing.T) {
	a, b, c := cluster(t)
	a.peer.SetView(sharding.NewView(2, "a", members(a, c)))
	if n := len(a.peer.DescribeAll(t.Context())); n != 2 {
		t.Errorf("%d nodes described, want the departed one too while it answers", n)
	}
	b.stop()
	a.waitFor("down b")
	redistest.Eventually(t, redistest.Patience, "the link is not opened again", func() bool {
		a.peer.mu.Lock()
		defer a.peer.mu.Unlock()
		return a.peer.links["b"] == nil
	})
	// It may come back.
	again := start(t, "b", b.addr, nil)
	again.hasMembers("a", "c")
	a.peer.SetView(sharding.NewView(3, "a", members(a, again, c)))
	again.waitFor(fmt.Sprintf("demand a %v", demandOf(0)))
}

// TestAnotherProcessInGossipLosesNoAddress: gossip may be wrong about the process of a node whose link is down.
func TestAnotherProcessInGossipLosesNoAddress(t *testing.T) {
	a, b, _ := cluster(t)
	address := ""
	redistest.Eventually(t, redistest.Patience, "b has sent its address", func(context.Context) error {
		address = a.peer.ClientAddress("b")
		if address == "" {
			return errors.New("none")
		}
		return nil
	})
	b.stop()
	redistest.Eventually(t, redistest.Patience, "the link is down", func(context.Context) error {
		a.peer.mu.Lock()
		defer a.peer.mu.Unlock()
		if a.peer.links["b"].isUp() {
			return errors.New("up")
		}
		return nil
	})
	forged := members(a, b)
	for i := range forged {
		forged[i].Process = "forged"
	}
	a.peer.SetView(sharding.NewView(9, "a", forged))
	if got := a.peer.ClientAddress("b"); got != address {
		t.Errorf("address %q, want %q", got, address)
	}
}

// TestSilentMembersAreNotWaitedFor: a member that gossip shows, and whose port accepts connections and says no more than
// that it speaks HTTP/2, delays no description.
func TestSilentMembersAreNotWaitedFor(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	asked := make(chan struct{}, 100)
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // empty settings
			t.Cleanup(func() { _ = conn.Close() })
			asked <- struct{}{}
		}
	})
	t.Cleanup(func() { _ = listener.Close(); accepting.Wait() })
	a := start(t, "a", "127.0.0.1:0", nil)
	a.peer.SetView(sharding.NewView(1, "a", append(members(a), sharding.Member{Name: "silent", PeerAddr: listener.Addr().String()})))
	<-asked
	fastest := time.Hour
	for range 3 {
		began := time.Now()
		infos := a.peer.DescribeAll(t.Context())
		fastest = min(fastest, time.Since(began))
		if len(infos) != 1 || !infos[0].Unreachable || infos[0].Name != "silent" {
			t.Errorf("%+v", infos)
		}
	}
	if fastest >= describeTimeout {
		t.Errorf("the description took %v at least", fastest)
	}
}

func TestDescribeAll(t *testing.T) {
	a, b, c := cluster(t)
	// Who does not answer within two seconds counts as out of reach: not for ever.
	described := func(as string, is func([]job.NodeInfo) bool) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, as, func() error {
			if infos := a.peer.DescribeAllWorkers(t.Context()); len(infos) != 2 || !is(infos) {
				return fmt.Errorf("described as %+v", infos)
			}
			return nil
		})
	}
	want := fmt.Sprint(b.Describe())
	described(want+" and c", func(infos []job.NodeInfo) bool {
		return fmt.Sprint(infos[0]) == want && infos[1].Name == "c" && !infos[1].Unreachable
	})
	c.stop()
	described(want+" and c, out of reach", func(infos []job.NodeInfo) bool {
		i := infos[1]
		return i.Name == "c" && i.Unreachable && i.PeerAddress == c.addr && i.GRPCAddress == "c.example:7070" && !infos[0].Unreachable
	})
}

// A second link of the same node takes the place of the first, which ends. Its end does not void the second one's
// demand.
func TestASecondLinkReplacesTheFirst(t *testing.T) {
	n := start(t, "n", "127.0.0.1:0", nil)
	n.hasMembers("x")
	first, second := dial(t, n), dial(t, n)
	for i, s := range []grpc.BidiStreamingClient[fermatav1.LinkRequest, fermatav1.LinkResponse]{first, second} {
		send(t, s, helloOf("x"))
		send(t, s, demandToPB(demandOf(i)))
		n.waitFor(fmt.Sprintf("demand x %v", demandOf(i)))
	}
	if _, err := first.Recv(); status.Code(err) != codes.Aborted {
		t.Fatalf("the first link: %v, want it to end", err)
	}
	send(t, second, cancelToPB("ns/j", 1))
	n.waitFor("cancel ns/j 1")
	n.mu.Lock()
	if slices.Contains(n.heard, "down x") {
		t.Error("the end of the first link took the second one's demand")
	}
	n.mu.Unlock()
	if err := second.CloseSend(); err != nil {
		t.Fatal(err)
	}
	n.waitFor("down x")
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	n := start(t, "n", "127.0.0.1:0", r)
	for _, name := range []string{"", "n"} {
		s := dial(t, n)
		send(t, s, helloOf(name))
		if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("hello of %q: %v", name, err)
		}
	}
	s := dial(t, n)
	send(t, s, helloOf("x"))
	send(t, s, nudgeToPB(nudgeKey{shard: -1, lane: lane}, 1))
	send(t, s, &fermatav1.LinkRequest{Message: &fermatav1.LinkRequest_Nudge{Nudge: &fermatav1.Nudge{Lane: "nonsense"}}})
	send(t, s, &fermatav1.LinkRequest{}) // of a later version
	send(t, s, cancelToPB("ns/j", 1))
	n.waitFor("cancel ns/j 1")
	if got := testutil.ToFloat64(n.peer.metrics.refused); got != 2 {
		t.Errorf("%v refused, want 2", got)
	}
	for name, p := range map[string]*fermatav1.Permit{
		"empty":    {},
		"no lane":  {Count: 1, LockValue: "v", ValidFor: permitToPB(job.Permit{ValidFor: 1}).GetValidFor()},
		"no lock":  permitToPB(job.Permit{Lane: lane, N: 1, ValidFor: 1}),
		"no count": permitToPB(job.Permit{Lane: lane, LockValue: "v", ValidFor: 1}),
		"no time":  permitToPB(job.Permit{Lane: lane, LockValue: "v", N: 1}),
	} {
		if _, ok := permitFromPB(p); ok {
			t.Errorf("permit with %s was taken", name)
		}
	}
}

func dial(t *testing.T, n *node) grpc.BidiStreamingClient[fermatav1.LinkRequest, fermatav1.LinkResponse] {
	t.Helper()
	conn, err := grpc.NewClient(n.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s, err := fermatav1.NewPeerServiceClient(conn).Link(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func send(t *testing.T, s grpc.BidiStreamingClient[fermatav1.LinkRequest, fermatav1.LinkResponse], m *fermatav1.LinkRequest) {
	t.Helper()
	if err := s.Send(m); err != nil {
		t.Fatal(err)
	}
}

func TestQueueKeepsLatestDemandAndEarliestNudge(t *testing.T) {
	q := newSendQueue(offer{}.withDemand(demandOf(1)))
	now := time.Now()
	if m, _, wait := q.nextMessage(now); m != nil || wait != 0 {
		t.Fatalf("took %v before the link was open", m)
	}
	q.resetForNewStream()
	q.stateDemand(demandOf(2))
	q.stateDemand(demandOf(3))
	if m, _, _ := q.nextMessage(now); m.GetDemand().GetQueues()[0].GetFreeSlots() != 3 {
		t.Errorf("took %v, want the latest demand", m)
	}
	// Demand is not stated more often than its pause allows.
	q.stateDemand(demandOf(4))
	if m, _, wait := q.nextMessage(now.Add(demandPause / 4)); m != nil || wait != demandPause*3/4 {
		t.Errorf("took %v, wait %v", m, wait)
	}
	for _, due := range []int64{50, 30, 40} {
		if !q.addNudge(1, job.LaneHead{Lane: lane, DueMS: unixtime.Milli(due)}) {
			t.Error("dropped a nudge")
		}
	}
	if m, kind, _ := q.nextMessage(now); kind != "nudge" || m.GetNudge().GetDueMs() != 30 {
		t.Errorf("took %v, want the earliest nudge", m)
	}
	for i := range queueLimit {
		if !q.addMessage(cancelToPB("ns/j", uint64(i))) || !q.addNudge(i, job.LaneHead{Lane: lane}) {
			t.Fatal("dropped too early")
		}
	}
	if q.addMessage(cancelToPB("ns/j", 1)) || q.addNudge(queueLimit, job.LaneHead{Lane: lane}) {
		t.Error("queue is not bounded")
	}
	if !q.addNudge(0, job.LaneHead{Lane: lane, DueMS: -1}) {
		t.Error("a nudge that fits was dropped")
	}
	q.resetForNewStream()
	if m, kind, _ := q.nextMessage(now); kind != "demand" || m.GetDemand().GetQueues()[0].GetFreeSlots() != 4 {
		t.Errorf("took %v after the link was opened again", m)
	}
	if m, _, _ := q.nextMessage(now); m != nil {
		t.Errorf("%v was meant for the link before", m)
	}
}

func TestDropsAreCounted(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	n := start(t, "n", "127.0.0.1:0", r)
	n.peer.SendNudge("gone", 1, job.LaneHead{})
	n.peer.SendPermits("gone", []job.Permit{{}})
	n.peer.SendPermitResults("gone", []job.LanePermitResult{{Lane: lane}})
	for _, kind := range []string{"nudge", "permit", "permit_result"} {
		if got := testutil.ToFloat64(n.peer.metrics.dropped.WithLabelValues(kind)); got != 1 {
			t.Errorf("%s: %v dropped, want 1", kind, got)
		}
	}
	if _, err := New(Options{Self: "m", Handler: n, Registerer: r}); err == nil {
		t.Error("registered twice")
	}
	if _, err := New(Options{Self: "m"}); err == nil {
		t.Error("made without a handler")
	}
}

// stateDemand has a demand sent.
func (q *sendQueue) stateDemand(demand []job.QueueDemand) {
	q.setOffer(q.latestOffer.withDemand(demand), nil)
	q.scheduleOffer()
}
