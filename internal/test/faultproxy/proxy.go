package faultproxy

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Proxy stands between clients and one target.
type Proxy struct {
	target string
	addr   string
	faults *faults
	wg     sync.WaitGroup
	ended  chan struct{} // closed by close

	mu       sync.Mutex
	listener net.Listener
	mirror   bool
	name     func(net.Addr) string // nil: clients have no names
	closed   bool
	links    map[*link]struct{}
}

// New starts a proxy to the host:port target, on a loopback port of its own,
// until the test ends. At first everything passes.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	return NewAt(t, "127.0.0.1:0", target)
}

// NewAt is [New] at an address of the caller's choice.
func NewAt(t testing.TB, listen, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	p := &Proxy{
		target: target, addr: l.Addr().String(), listener: l, faults: newFaults(), ended: make(chan struct{}),
		links: map[*link]struct{}{},
	}
	p.wg.Go(p.acceptClients)
	t.Cleanup(p.closeLinks)
	return p
}

// Addr is the host:port that clients dial.
func (p *Proxy) Addr() string { return p.addr }

// MirrorRefusals makes the proxy's address refuse connections, as the target's own
// does, from when a client has been turned away because the target refused until it
// listens again. Nobody else may come by the address meanwhile.
func (p *Proxy) MirrorRefusals() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mirror = true
}

// Name sets how clients are named that connect from now on, by the address they
// connect from. It is called once for each connection.
func (p *Proxy) Name(name func(net.Addr) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name = name
}

func (p *Proxy) clientName(client net.Conn) string {
	p.mu.Lock()
	name := p.name
	p.mu.Unlock()
	if name == nil {
		return ""
	}
	return name(client.RemoteAddr())
}

// CloseAll cuts every open connection at once, on both sides; of those clients
// only that faults are limited to. New ones are accepted as before.
func (p *Proxy) CloseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if p.faults.includesClient(l.name) && l.closeBoth() {
			p.faults.addCounters(func(c *Counters) { c.Closed++ })
		}
	}
}

// Open is the number of connections that pass through the proxy now.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) closeLinks() {
	p.mu.Lock()
	p.closed = true
	for l := range p.links {
		l.closeBoth()
	}
	_ = p.listener.Close()
	p.mu.Unlock()
	close(p.ended)
	p.faults.stopFaults()
	p.wg.Wait()
}

func (p *Proxy) acceptClients() {
	for {
		p.mu.Lock()
		listener := p.listener
		p.mu.Unlock()
		client, err := listener.Accept()
		if err != nil {
			return
		}
		name := p.clientName(client)
		if p.faults.refusesClient(name) {
			_ = client.Close()
			continue
		}
		server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
		if err != nil { // the client sees what a dead target looks like
			_ = client.Close()
			if errors.Is(err, syscall.ECONNREFUSED) && !p.mirrorRefusal() {
				return
			}
			continue
		}
		if !p.addLink(name, client, server) {
			return
		}
	}
}

// probeEvery is how often a target that refused is asked whether it listens again.
const probeEvery = 10 * time.Millisecond

// mirrorRefusal stops listening until the target listens, if the proxy mirrors that. It
// fails once the proxy closes.
func (p *Proxy) mirrorRefusal() bool {
	p.mu.Lock()
	mirror := p.mirror
	if mirror {
		_ = p.listener.Close()
	}
	p.mu.Unlock()
	if !mirror {
		return true
	}
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.ended:
			return false
		case <-ticker.C:
		}
		if p.listenAgain() {
			return true
		}
	}
}

// listenAgain listens if the target does.
func (p *Proxy) listenAgain() bool {
	probe, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		return false
	}
	_ = probe.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return false
	}
	p.listener = l
	return true
}

// addLink starts the two pumps of a connection. It fails once the proxy closes. The proxy
// may have begun to refuse while it dialed the target: after Refuse and CloseAll no
// connection is left, also none that was accepted before.
func (p *Proxy) addLink(name string, client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = client.Close()
		_ = server.Close()
		return false
	}
	if p.faults.refusesClient(name) {
		_ = client.Close()
		_ = server.Close()
		return true
	}
	l := newLink(name, client, server, p.faults)
	p.links[l] = struct{}{}
	p.faults.addCounters(func(c *Counters) { c.Connections++ })
	p.wg.Go(func() {
		l.copyBothWays()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	})
	return true
}
