package worker_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/lib/precisetimer"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// Times of the sessions below: those of a node with default settings.
const (
	sessionTTL = 8 * time.Second
	margin     = sessionTTL / 6
	every      = sessionTTL / 4
	leaseTTL   = 30 * time.Second
)

// bubble is nodes in a bubble of synctest, and how a worker dials them.
type bubble struct {
	t     *testing.T
	mu    sync.Mutex
	nodes map[string]*bufconn.Listener
}

func inBubble(t *testing.T, test func(b *bubble)) {
	t.Helper()
	precisetimer.UseRuntime()
	synctest.Test(t, func(t *testing.T) { test(&bubble{t: t, nodes: map[string]*bufconn.Listener{}}) })
}

// node serves at an address of the bubble.
func (b *bubble) node(addr string) *node {
	n := &node{t: b.t, addr: addr, streams: make(chan *stream, 64)}
	b.serve(n)
	b.t.Cleanup(n.kill)
	return n
}

// serve has a node listen at its address, at first or again after kill.
func (b *bubble) serve(n *node) {
	l := bufconn.Listen(1 << 20)
	b.mu.Lock()
	b.nodes[n.addr] = l
	b.mu.Unlock()
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second,
		PermitWithoutStream: true}))
	fermatav1.RegisterWorkerServiceServer(server, n)
	n.mu.Lock()
	n.server = server
	n.mu.Unlock()
	go server.Serve(l)
}

func (b *bubble) dial(ctx context.Context, addr string) (net.Conn, error) {
	b.mu.Lock()
	l := b.nodes[addr]
	b.mu.Unlock()
	if l == nil {
		return nil, errors.New("nobody is there")
	}
	return l.DialContext(ctx)
}

// worker runs a worker of the bubble that knows these addresses.
func (b *bubble) worker(g *gates, addresses ...string) *phaseRunning {
	return run(b.t, worker.Options{Addresses: addresses, Slots: 4, Dialer: b.dial}, g.handlers())
}

// greet waits for a stream and welcomes it with a session TTL.
func (n *node) greet() *stream {
	n.t.Helper()
	s := n.greeted()
	s.greet()
	return s
}

func (s *stream) greet() {
	s.t.Helper()
	if !s.hello.GetSupportsHeartbeats() {
		s.t.Error("the worker promises no heartbeats")
	}
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Welcome{Welcome: &fermatav1.Welcome{
		Node: "node", LeaseTtl: durationpb.New(leaseTTL), SessionTtl: durationpb.New(sessionTTL),
	}}})
}

func (s *stream) acknowledge(seq int64, confirmed bool) {
	s.t.Helper()
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_HeartbeatAck{HeartbeatAck: &fermatav1.HeartbeatAck{
		Seq: seq, Confirmed: confirmed,
	}}})
}

// heartbeat waits for the next one, passing over everything else.
func (s *stream) heartbeat() int64 {
	s.t.Helper()
	for {
		if h := s.next().GetHeartbeat(); h != nil {
			return h.GetSeq()
		}
	}
}

// alive acknowledges heartbeats after a delay, until the time is over.
func (s *stream) alive(d time.Duration, delay func() time.Duration) {
	s.t.Helper()
	over := time.After(d)
	var answers sync.WaitGroup
	defer answers.Wait()
	var sending sync.Mutex
	answer := func(m *fermatav1.WorkRequest) {
		if h := m.GetHeartbeat(); h != nil {
			answers.Go(func() {
				time.Sleep(delay())
				sending.Lock()
				defer sending.Unlock()
				s.acknowledge(h.GetSeq(), true)
			})
		}
	}
	for _, m := range s.again { // it may have come before the start of a run
		answer(m)
	}
	s.again = nil
	for {
		select {
		case m, open := <-s.in:
			if !open {
				s.t.Fatal("the worker has ended the stream")
			}
			answer(m)
		case <-over:
			return
		}
	}
}

// alives acknowledges so many heartbeats and returns when the last of them came.
func (s *stream) alives(n int) time.Time {
	s.t.Helper()
	for range n {
		s.acknowledge(s.heartbeat(), true)
	}
	return time.Now()
}

// drained reads the stream to its end.
func (s *stream) drained() {
	s.t.Helper()
	for range s.in {
	}
}

func atOnce() time.Duration { return 0 }

// runs gives the stream a lease and waits for its handler.
func (s *stream) runs(id, handler string) {
	s.t.Helper()
	s.lease(leaseOf(id, handler, func(l *fermatav1.Lease) { l.Timeout = durationpb.New(time.Hour) }))
	for {
		m := s.next()
		if slices.Contains(m.GetStarted().GetLeaseIds(), id) {
			return
		}
		if m.GetHeartbeat() != nil {
			defer func() { s.again = append(s.again, m) }()
		}
	}
}

// causes of cancelled handlers that have come by now.
func (g *gates) cancelled() []error {
	synctest.Wait()
	var all []error
	for len(g.causes) > 0 {
		all = append(all, <-g.causes)
	}
	return all
}

// A session that is acknowledged goes on, also where that takes a third of its life.
func TestHeartbeatsKeepASession(t *testing.T) {
	for name, delay := range map[string]func() time.Duration{
		"at once": atOnce,
		"late":    func() time.Duration { return rand.N(sessionTTL / 3) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				n, other := b.node("10.0.0.1:1"), b.node("10.0.0.2:1")
				g := newGates("a")
				b.worker(g, n.addr)
				s := n.greet()
				s.runs("a", "gate")
				s.alive(5*time.Minute, delay)
				if causes := g.cancelled(); len(causes) > 0 || len(other.streams) > 0 {
					t.Errorf("handlers ended with %v; %d other streams", causes, len(other.streams))
				}
				g.open["a"] <- nil
				for s.next().GetResults() == nil {
				}
			})
		})
	}
}

// A node that acknowledges nothing is left while the leases can be trusted.
func TestUnresponsiveNodeIsReplaced(t *testing.T) {
	inBubble(t, func(b *bubble) {
		silent := b.node("10.0.0.1:1")
		g := newGates("a")
		b.worker(g, silent.addr)
		s := silent.greet()
		s.runs("a", "gate")
		first := s.alives(1)
		next := silent.greeted() // there is no other
		if took := time.Since(first); took > every+sessionTTL/3+every/2 ||
			!slices.Equal(next.hello.LiveLeaseIds, []string{"a"}) {
			t.Errorf("it left after %v with %v", took, next.hello.LiveLeaseIds)
		}
		next.greet()
		s.drained()
		next.alive(time.Minute, atOnce)
		if causes := g.cancelled(); len(causes) > 0 {
			t.Errorf("handlers ended with %v", causes)
		}
	})
}

// A worker that is asked to move keeps its session and its leases until another node has welcomed it.
func TestRelocationKeepsTheSession(t *testing.T) {
	inBubble(t, func(b *bubble) {
		slow, fast := b.node("10.0.0.1:1"), b.node("10.0.0.2:1")
		g := newGates("a", "b")
		b.worker(g, slow.addr)
		s := slow.greet()
		s.runs("a", "gate")
		s.relocate(fast.addr)
		next := fast.greeted()
		if live := next.hello.GetLiveLeaseIds(); !slices.Equal(live, []string{"a"}) {
			t.Errorf("it moves with %v", live)
		}
		next.greet()
		s.drained()
		next.runs("b", "gate")
		next.alive(time.Minute, atOnce)
		if causes := g.cancelled(); len(causes) > 0 {
			t.Errorf("handlers ended with %v", causes)
		}
	})
}

// Handlers stop before the node, which counts from when it has received a heartbeat, can end
// the session, also while the stream is open: here each way of a message takes a while.
func TestUnconfirmedLeasesAreLost(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.node("10.0.0.1:1")
		g := newGates("a", "b", "early", "waits", "late")
		w := b.worker(g, n.addr)
		s := n.greet()
		s.runs("a", "gate")
		sent := time.Now()
		s.lease(leaseOf("early", "gate", dueIn(time.Hour)))
		n.greeted()          // which gets no Welcome in time
		again := n.greeted() // nor does the next one
		if !slices.Equal(live(again), []string{"a", "early"}) {
			t.Errorf("live are %v", again.hello.LiveLeaseIds)
		}
		cause := receive(t, g.causes, "the end of the handler")
		if took := time.Since(sent); !errors.Is(cause, worker.ErrLeaseLost) || took > sessionTTL-margin ||
			took < sessionTTL-margin-every {
			t.Errorf("after %v: %v; want the loss after at most %v", took, cause, sessionTTL-margin)
		}
		s.drained()
		if w.Ready() == nil {
			t.Error("it is ready")
		}
		// The node that took them over while they were given up is to know.
		again.greet()
		var back []string
		for len(back) < 2 {
			back = append(back, again.next().GetReturned().GetLeaseIds()...)
		}
		slices.Sort(back)
		if !slices.Equal(back, []string{"a", "early"}) {
			t.Errorf("returned are %v, want all that were named", back)
		}
		again.runs("b", "gate")
		again.alive(time.Minute, atOnce)
		if causes := g.cancelled(); len(causes) > 0 {
			t.Errorf("handlers ended with %v", causes)
		}
	})
}

// What a node has taken over is trusted for as long as the session before left it, until the
// node has confirmed it.
func TestConfirmedLeasesAreTrusted(t *testing.T) {
	for name, confirmed := range map[string]bool{"confirmed": true, "not confirmed": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				n := b.node("10.0.0.1:1")
				g := newGates("a")
				b.worker(g, n.addr)
				s := n.greet()
				s.runs("a", "gate")
				sent := s.alives(1)
				time.Sleep(time.Second)
				s.end <- nil
				next := n.greet()
				go func() {
					for m := range next.in {
						if h := m.GetHeartbeat(); h != nil {
							_ = next.grpc.Send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_HeartbeatAck{
								HeartbeatAck: &fermatav1.HeartbeatAck{Seq: h.GetSeq(), Confirmed: confirmed},
							}})
						}
					}
				}()
				time.Sleep(time.Until(sent.Add(sessionTTL - margin + time.Millisecond)))
				if lost := len(g.cancelled()) > 0; lost == confirmed {
					t.Errorf("lost: %v", lost)
				}
			})
		})
	}
}

// A node that sends the worker away leaves the leases their own life.
func TestDrainExtendsTrust(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.node("10.0.0.1:1")
		g := newGates("a")
		b.worker(g, n.addr)
		s := n.greet()
		s.runs("a", "gate")
		sent := s.alives(1)
		s.drain()
		synctest.Wait()
		n.kill()
		const trusted = leaseTTL - leaseTTL/3 - 2*time.Second
		time.Sleep(time.Until(sent.Add(trusted - every)))
		if causes := g.cancelled(); len(causes) > 0 {
			t.Errorf("the handler ended too early, with %v", causes)
		}
		time.Sleep(every)
		if causes := g.cancelled(); len(causes) != 1 {
			t.Errorf("the handlers ended with %v, want one loss", causes)
		}
	})
}

// A node of the build before takes no heartbeats, and gets none. A stream that is quiet proves
// nothing there.
func TestNoHeartbeatsToANodeWithoutThem(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.node("10.0.0.1:1")
		g := newGates("a")
		b.worker(g, n.addr)
		s := n.accept(leaseTTL)
		s.runs("a", "gate")
		time.Sleep(10 * time.Minute)
		if causes := g.cancelled(); len(causes) > 0 || len(s.in) > 0 || len(n.streams) > 0 {
			t.Errorf("handlers ended with %v, %d messages came, %d streams", causes, len(s.in), len(n.streams))
		}
	})
}

// welcomeTo answers a Hello with the addresses of other nodes.
func (s *stream) welcomeTo(addresses ...string) {
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Welcome{Welcome: &fermatav1.Welcome{
		Node: "node", LeaseTtl: durationpb.New(leaseTTL), SessionTtl: durationpb.New(sessionTTL), Addresses: addresses,
	}}})
}

// A node that refuses a Hello leaves everything as it was: the leases are still those of the
// session before, which lets them end with itself.
func TestRefusedHelloDoesNotExtendTrust(t *testing.T) {
	inBubble(t, func(b *bubble) {
		slow, refuses := b.node("10.0.0.1:1"), b.node("10.0.0.2:1")
		g := newGates("a")
		b.worker(g, slow.addr)
		s := slow.greeted()
		s.welcomeTo(refuses.addr)
		s.runs("a", "gate")
		h := s.heartbeat() // which is acknowledged late, so that the worker asks the other node
		sent := time.Now()
		refuses.greeted().end <- status.Error(codes.Unavailable, "draining")
		s.acknowledge(h, true)
		cause := receive(t, g.causes, "the end of the handler")
		if took := time.Since(sent); !errors.Is(cause, worker.ErrLeaseLost) || took > sessionTTL-margin {
			t.Errorf("after %v: %v; want the loss after at most %v", took, cause, sessionTTL-margin)
		}
	})
}

// Behind a load balancer the address of a silent node may already lead to another one, and
// advertised addresses nowhere: they are not waited for first.
func TestUnresponsiveNodeBehindALoadBalancerIsReplaced(t *testing.T) {
	inBubble(t, func(b *bubble) {
		silent, next := b.node("10.0.0.1:1"), b.node("10.0.0.2:1")
		const balancer = "10.0.0.3:1"
		var leads atomic.Value
		leads.Store(silent.addr)
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			if address == balancer {
				return b.dial(ctx, leads.Load().(string))
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		g := newGates("a")
		run(b.t, worker.Options{Addresses: []string{balancer}, Slots: 4, Dialer: dial}, g.handlers())
		s := silent.greeted()
		s.welcomeTo("10.1.0.1:1", "10.1.0.2:1", "10.1.0.3:1", "10.1.0.4:1")
		s.runs("a", "gate")
		acked := s.alives(3)
		leads.Store(next.addr)
		n := next.greeted()
		if took := time.Since(acked); took > sessionTTL-margin || !slices.Equal(n.hello.LiveLeaseIds, []string{"a"}) {
			t.Errorf("it came after %v with %v, while it trusts its leases for %v", took, n.hello.LiveLeaseIds,
				sessionTTL-margin)
		}
		n.greet()
	})
}
