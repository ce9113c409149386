package membership

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/gossiptest"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

func acquireFor(p *streamSlots, now time.Time, address string, n int) (streams []*stream) {
	for range n {
		s := &stream{from: netip.MustParseAddr(address)}
		if _, ok := p.acquire(s, now); !ok {
			return streams
		}
		streams = append(streams, s)
	}
	return streams
}

// TestSlotsAreSharedByAddress: a stream from another address gets the slot of the oldest stream of the address
// with most pending ones; addresses with as many lose streams after minAuthTime. An authenticated stream keeps
// its slot.
func TestSlotsAreSharedByAddress(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	p := &streamSlots{byAddress: map[netip.Addr]*addressUsage{}}
	proved := acquireFor(p, now, "10.0.0.1", 1)[0]
	p.markComplete(proved)
	crowds := map[int][]*stream{}
	for i := range 7 {
		crowds[i] = acquireFor(p, now.Add(time.Duration(i)), fmt.Sprintf("10.1.0.%d", i), maxStreamsOfAddress)
	}
	rest := acquireFor(p, now, "10.1.0.9", maxStreams) // 15: one address, one place taken
	if len(rest) != maxStreams-7*maxStreamsOfAddress-1 || p.streams != maxStreams {
		t.Fatalf("%d of the rest, %d in all", len(rest), p.streams)
	}
	if s := acquireFor(p, now, "10.1.0.0", 1); len(s) != 0 {
		t.Error("an address has more than its places")
	}
	honest := &stream{from: netip.MustParseAddr("10.0.0.2")}
	evicted, ok := p.acquire(honest, now)
	if !ok || evicted != crowds[0][0] || evicted.hasSlot || p.streams != maxStreams {
		t.Fatalf("%v, %+v; %d streams", ok, evicted, p.streams)
	}
	for range 8 { // as many again: never the honest one
		if evicted, ok := p.acquire(&stream{from: netip.MustParseAddr("10.2.0.1")}, now); !ok || evicted == honest ||
			evicted == proved {
			t.Fatalf("%v, %+v", ok, evicted)
		}
	}
	p.release(crowds[1][0])
	p.release(crowds[1][0]) // again
	for _, list := range crowds {
		for _, s := range list {
			p.release(s)
		}
	}
	// As many addresses as slots: a new stream waits until another one has had its minimum time.
	for i := 0; p.streams < maxStreams; i++ {
		acquireFor(p, now, fmt.Sprintf("10.3.%d.%d", i/200, i%200), 1)
	}
	for {
		most := p.oldestOfBusiest(func(u *addressUsage) int { return u.pending.Len() })
		if p.byAddress[most.from].pending.Len() < 2 {
			break
		}
		p.release(most)
	}
	for i := 0; p.streams < maxStreams; i++ {
		acquireFor(p, now, fmt.Sprintf("10.4.%d.%d", i/200, i%200), 1)
	}
	late := &stream{from: netip.MustParseAddr("10.0.0.3")}
	if _, ok := p.acquire(late, now.Add(minAuthTime-time.Millisecond)); ok {
		t.Error("a stream loses its place before its turn is over")
	}
	if evicted, ok := p.acquire(late, now.Add(minAuthTime)); !ok || evicted == nil {
		t.Error("a stream whose turn is over keeps a newcomer out")
	}
}

// TestBytesAreSharedByAddress: the address with most bytes loses its oldest stream for those of others.
func TestBytesAreSharedByAddress(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	p := &streamSlots{byAddress: map[netip.Addr]*addressUsage{}}
	var greedy []*stream
	for i := range 4 {
		for _, s := range acquireFor(p, now.Add(time.Duration(i)), fmt.Sprintf("10.1.0.%d", i), 2) {
			if _, ok := p.reserveBytes(s, maxUnauthenticatedBytesOfAddress/2); !ok {
				t.Fatal("within the bounds")
			}
			greedy = append(greedy, s)
		}
	}
	if _, ok := p.reserveBytes(greedy[0], 1); ok {
		t.Error("an address keeps more than it may")
	}
	honest := acquireFor(p, now, "10.0.0.1", 1)[0]
	evicted, ok := p.reserveBytes(honest, firstFrameRoom)
	if !ok || evicted != greedy[0] || p.unauthenticated > maxUnauthenticatedBytes {
		t.Errorf("%v, %+v, %d bytes", ok, evicted, p.unauthenticated)
	}
	if _, ok := p.reserveBytes(evicted, 1); ok {
		t.Error("a stream that has lost its place keeps bytes")
	}
	for _, s := range append(greedy, honest) {
		p.release(s)
	}
	if p.unauthenticated != 0 || p.streams != 0 || len(p.byAddress) != 0 {
		t.Errorf("%+v is left", p)
	}
}

// TestStrangersLeaveSlotsForNodes: strangers take all slots, from eight addresses and repeatedly, and a node
// that starts joins nevertheless.
func TestStrangersLeaveSlotsForNodes(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	label := gossiptest.Labelled(x.o.Label, nil)
	g := x.gossip.transport.(*hostTransport).guard
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		var open []net.Conn
		defer func() {
			for _, conn := range open {
				conn.Close()
			}
		}()
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			default:
			}
			from := &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("127.0.2.%d", 1+i%8))}
			if conn, err := (&net.Dialer{LocalAddr: from}).Dial("tcp", x.LocalAddr()); err == nil {
				sendRaw(conn, label)
				open = append(open, conn)
			}
			if len(open) > 2*maxStreams {
				open[0].Close()
				open = open[1:]
			}
		}
	}()
	redistest.Eventually(t, patience, "all places are taken", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.mu.streams >= maxStreams
	})
	b := startNode(t, "b", joining(x.LocalAddr()), func(o *Options) { o.KeyFile = keyFile(t, x.key) })
	awaitMembers(t, b, "a b")
	close(end)
	<-ended
	if n := refusals(t, x.reg)["stream bounds"]; n == 0 {
		t.Error("no bound was reached: this proves nothing")
	}
}
