package node_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/cluster/membership"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/gossiptest"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/tlstest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const evilAddress = "evil.example:443"

// TestWorkersHearOfConfirmedAddressesOnly: a holder of the gossip key and of nothing else makes up
// members, one of them at the peer address of a node, and claims in the name of a node that its
// clients go elsewhere. A worker hears of the node, at its own address: in Welcome, in Addresses, and
// when its node drains.
func TestWorkersHearOfConfirmedAddressesOnly(t *testing.T) {
	for name, secure := range map[string]bool{"links prove who speaks": true, "plain text": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			key, keys := gossipKeyFile(t)
			nodes := newActor(t, "node", tlstest.New(t, "ours"))
			change := func(c *node.Config) {
				if secure {
					secured(tlsfiles.Files{}, nodes, prometheus.NewRegistry())(c)
				}
				c.GossipKeyFile = keys
			}
			client := credentials.TransportCredentials(insecure.NewCredentials())
			if secure {
				client = nodes.source.Client()
			}
			a := startWith(t, redis.URL(), "a", change)
			b := startWith(t, redis.URL(), "b", change, a.GossipAddr())
			w := listenAsWorker(t, dialWith(t, a.GRPCAddr(), client))
			w.hears(b.GRPCAddr())

			for i, peerAddr := range []string{"127.0.0.1:1", b.PeerAddr(), a.PeerAddr()} {
				joinWith(t, membership.Options{
					Name: fmt.Sprint("evil", i), Join: []string{a.GossipAddr()}, KeyFile: keys, GRPCAddr: evilAddress,
					PeerAddr: peerAddr,
				}, 3+i)
			}
			claim(t, a, b, key, fmt.Sprintf(`{"g":%q,"p":%q,"i":"AAAAAAAAAAAAAAAAAAAAAA"}`, evilAddress, b.PeerAddr()))
			listenAsWorker(t, dialWith(t, a.GRPCAddr(), client)).never(evilAddress)
			redistest.Eventually(t, redistest.Patience, "b has refuted what was claimed of it", func(context.Context) error {
				if got := listenAsWorker(t, dialWith(t, a.GRPCAddr(), client)).welcome; !slices.Contains(got,
					b.GRPCAddr()) {
					return fmt.Errorf("a new worker is welcomed with %q", got)
				}
				return nil
			})
			if err := a.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			w.drains(b.GRPCAddr())
			w.never(evilAddress)
		})
	}
}

// claim tells a node, in the name of another one, what that one says of itself: for longer than
// addresses wait until they are sent, and than shards wait until they are handed over.
func claim(t *testing.T, to, of *node.Node, key []byte, meta string) {
	t.Helper()
	conn, err := net.Dial("udp", to.GossipAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	storm := time.NewTicker(10 * time.Millisecond)
	defer storm.Stop()
	for i := range uint32(300) {
		<-storm.C
		text := gossiptest.Claim(of.Name(), 1000*(i+1), netip.MustParseAddrPort(of.GossipAddr()), []byte(meta))
		if _, err := conn.Write(gossiptest.Labelled("fermata",
			gossiptest.Sealed(t, key, "fermata", text))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForgedClaimsMoveNothing: a holder of the gossip key claims in the name of each node that it
// stands aside, or that it is another process. The nodes that hold shards go on holding them.
func TestForgedClaimsMoveNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	key, keys := gossipKeyFile(t)
	log := &lines{}
	keyed := func(c *node.Config) { c.GossipKeyFile, c.Logger = keys, log.logger() }
	a := startWith(t, redis.URL(), "a", keyed)
	b := startWith(t, redis.URL(), "b", keyed, a.GossipAddr())
	sharedByTwo(t, a, b)
	before := holders(t, a)
	evil := joinWith(t, membership.Options{Name: "evil", Join: []string{a.GossipAddr()}, KeyFile: keys}, 3)
	changes := log.count("members changed")
	for _, aside := range []bool{true, false} {
		var claims sync.WaitGroup
		for to, of := range map[*node.Node]*node.Node{a: b, b: a} {
			m, _ := evil.View().Member(of.Name())
			if !aside {
				m.Process = "AAAAAAAAAAAAAAAAAAAAAA"
			}
			claims.Go(func() {
				claim(t, to, of, key,
					fmt.Sprintf(`{"p":%q,"i":%q,"a":%v}`, of.PeerAddr(), m.Process, aside))
			})
		}
		claims.Wait()
		if after := holders(t, a); after != before {
			t.Errorf("shards moved:\n%s\n%s", before, after)
		}
	}
	if log.count("members changed") < changes+4 {
		t.Error("nobody has believed the forger: this proves nothing")
	}
	for _, n := range []*node.Node{a, b} {
		isReady(t, n)
	}
}

// joinWith has a member join that has the gossip key, and waits until it sees so many.
func joinWith(t *testing.T, o membership.Options, members int) *membership.Cluster {
	t.Helper()
	o.BindAddr, o.Label, o.Process = "127.0.0.1", "fermata", "AAAAAAAAAAAAAAAAAAAAAA"
	c, err := membership.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	redistest.Eventually(t, redistest.Patience, o.Name+" is a member", func(context.Context) error {
		if n := len(c.View().Members); n < members {
			return fmt.Errorf("it sees %d", n)
		}
		return nil
	})
	return c
}

// listeningWorker is a worker that does no more than note where it is sent.
type listeningWorker struct {
	t       *testing.T
	welcome []string

	mu      sync.Mutex
	heard   []string // of Welcome and Addresses
	drained []string
}

func listenAsWorker(t *testing.T, conn *grpc.ClientConn) *listeningWorker {
	t.Helper()
	stream, err := fermatav1.NewWorkerServiceClient(conn).Work(t.Context())
	if err == nil {
		err = stream.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: &fermatav1.Hello{
			WorkerId: "w" + fmt.Sprint(time.Now().UnixNano()), Namespace: "default", Queues: []string{"default"},
			Slots: 1, SessionEpoch: 1,
		}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	w := &listeningWorker{t: t, welcome: first.GetWelcome().GetAddresses()}
	w.heard = slices.Clone(w.welcome)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			w.mu.Lock()
			w.heard = append(w.heard, m.GetAddresses().GetAddresses()...)
			w.drained = append(w.drained, m.GetDrain().GetAddresses()...)
			w.mu.Unlock()
		}
	}()
	return w
}

func (w *listeningWorker) hears(address string)  { w.wait("hears of", &w.heard, address) }
func (w *listeningWorker) drains(address string) { w.wait("is sent to", &w.drained, address) }

func (w *listeningWorker) wait(what string, list *[]string, address string) {
	w.t.Helper()
	redistest.Eventually(w.t, redistest.Patience, "the worker "+what+" "+address, func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !slices.Contains(*list, address) {
			return fmt.Errorf("%q", *list)
		}
		return nil
	})
}

func (w *listeningWorker) never(address string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.heard, address) || slices.Contains(w.drained, address) {
		w.t.Errorf("the worker has heard of %q and was sent to %q", w.heard, w.drained)
	}
}
