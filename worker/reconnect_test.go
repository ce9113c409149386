package worker_test

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/stalltest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// comeBack is how long a worker that has lost its stream takes to find another one, where
// there is one.
const comeBack = 2 * time.Second

const maxCuts = 3

// silent are addresses that never answer: a packet filter drops what is sent there.
type silent struct {
	reach func(ctx context.Context, addr string) (net.Conn, error) // dials all others; nil: by TCP
	mu    sync.Mutex
	addrs []string
	tries atomic.Int32
}

func (s *silent) add(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addrs = append(s.addrs, addr)
}

func (s *silent) dial(ctx context.Context, addr string) (net.Conn, error) {
	s.mu.Lock()
	drops := slices.Contains(s.addrs, addr)
	s.mu.Unlock()
	if drops {
		s.tries.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.reach != nil {
		return s.reach(ctx, addr)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

// listener accepts connections and does with them what serve does.
func listener(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { defer c.Close(); serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	return l.Addr().String()
}

// drain reads until the other side has closed the connection.
func drain(c net.Conn) {
	for b := make([]byte, 1024); ; {
		if _, err := c.Read(b); err != nil {
			return
		}
	}
}

func refusing(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return l.Addr().String()
}

// A load balancer cuts streams, and what nodes advertise leads nowhere: the worker is back
// at once, whatever the addresses do to it.
func TestUnreachableAdvertisedAddresses(t *testing.T) {
	for name, nowhere := range map[string]func(*testing.T, *silent) string{
		"drops": func(_ *testing.T, s *silent) string {
			s.add("192.0.2.1:7070")
			return "192.0.2.1:7070"
		},
		"refuses":               func(t *testing.T, _ *silent) string { return refusing(t) },
		"accepts and is silent": func(t *testing.T, _ *silent) string { return listener(t, drain) },
		"accepts and closes":    func(t *testing.T, _ *silent) string { return listener(t, func(net.Conn) {}) },
		"never welcomes":        func(t *testing.T, _ *silent) string { return newNode(t).addr },
		"speaks TLS": func(t *testing.T, _ *silent) string {
			return listener(t, func(c net.Conn) { _ = tls.Server(c, &tls.Config{}).Handshake() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, s := newNode(t), &silent{}
			balancer := faultproxy.New(t, n.addr)
			var advertised []string
			for range 3 {
				advertised = append(advertised, nowhere(t, s))
			}
			g := newGates("long")
			run(t, worker.Options{Addresses: []string{balancer.Addr()}, Dialer: s.dial}, g.handlers())
			machine := stalltest.Start(t)
			stream := n.accept(ttl, advertised...)
			stream.lease(leaseOf("long", "gate"))
			stream.started("long")
			for range maxCuts {
				cut := time.Now()
				balancer.CloseAll()
				stream = n.accept(ttl, advertised...)
				if took := time.Since(cut); took > comeBack+machine.Since(cut) {
					t.Errorf("back after %v, want at most %v", took, comeBack)
				}
				if !slices.Equal(live(stream), []string{"long"}) {
					t.Errorf("a Hello names %v, want the run that goes on", live(stream))
				}
			}
			if balancer.Counters().Closed < maxCuts {
				t.Error("the balancer has not cut streams")
			}
			g.open["long"] <- nil
			stream.result("long")
			stream.ack(accepted, "long")
		})
	}
}

// A host that has died answers nothing. The worker does not wait for it.
func TestDeadHostDoesNotDelayReconnect(t *testing.T) {
	inBubble(t, func(b *bubble) {
		first, next, s := b.node("10.0.0.1:1"), b.node("10.0.0.2:1"), &silent{reach: b.dial}
		w := run(b.t, worker.Options{Addresses: []string{first.addr}, Dialer: s.dial}, newGates().handlers())
		first.accept(ttl, next.addr)
		synctest.Wait()
		if err := w.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		died := time.Now()
		s.add(first.addr)
		first.kill()
		next.accept(ttl)
		if took := time.Since(died); took > comeBack {
			t.Errorf("at the other node after %v, want at most %v", took, comeBack)
		}
		if s.tries.Load() == 0 {
			t.Error("the host that has died was not tried: this proves nothing")
		}
	})
}

// A node that takes a Hello and does not answer holds up the worker for as long as an
// address may, and the next Hello has a later epoch.
func TestNodeWithoutWelcomeIsReplaced(t *testing.T) {
	inBubble(t, func(b *bubble) {
		stuck, good := b.node("10.0.0.1:1"), b.node("10.0.0.2:1")
		b.worker(newGates(), stuck.addr)
		first := stuck.accept(ttl, good.addr)
		begun := time.Now()
		first.end <- status.Error(codes.Unavailable, "bye")
		stream := good.greeted()
		if took := time.Since(begun); took > 2*comeBack {
			t.Errorf("at the other node after %v", took)
		}
		if stream.hello.SessionEpoch < 2 {
			t.Errorf("epoch is %d", stream.hello.SessionEpoch)
		}
		stream.welcome(ttl)
	})
}

// A Hello takes leases over, so that a worker that dials several nodes at once says Hello
// to one at a time.
func TestOneHelloAtATime(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := []*node{b.node("10.0.0.1:1"), b.node("10.0.0.2:1"), b.node("10.0.0.3:1")}
		var addresses []string
		for _, n := range nodes {
			addresses = append(addresses, n.addr)
		}
		var dials atomic.Int32
		slow := func(ctx context.Context, addr string) (net.Conn, error) {
			dials.Add(1)
			select { // so that the dials overlap
			case <-time.After(600 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return b.dial(ctx, addr)
		}
		run(b.t, worker.Options{Addresses: addresses, Dialer: slow}, newGates().handlers())
		var s *stream
		select {
		case s = <-nodes[0].streams:
		case s = <-nodes[1].streams:
		case s = <-nodes[2].streams:
		case <-time.After(patience):
			t.Fatal("no Hello")
		}
		time.Sleep(800 * time.Millisecond) // the other connections are ready by now
		for _, n := range nodes {
			select {
			case other := <-n.streams:
				t.Errorf("a second Hello, of epoch %d, while the first waits", other.hello.SessionEpoch)
			default:
			}
		}
		s.welcome(ttl)
		if n := dials.Load(); n < 2 {
			t.Errorf("%d dials, want several at once", n)
		}
	})
}

// A node that has joined since the worker connected is where it goes when its own has gone.
func TestAddressesOfNewNodesAreLearned(t *testing.T) {
	a, gone, joined := newNode(t), newNode(t), newNode(t)
	gone.kill()
	w := run(t, worker.Options{Addresses: []string{a.addr}}, newGates().handlers())
	s := a.accept(ttl, gone.addr)
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Addresses{
		Addresses: &fermatav1.Addresses{Addresses: []string{gone.addr, joined.addr}},
	}})
	s.cancel(leaseLost, "marker")
	s.returned("marker") // so it has read the addresses
	a.kill()
	joined.accept(ttl)
	redistest.Eventually(t, patience, "ready", func() bool { return w.Ready() == nil })
}
