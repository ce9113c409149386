package faultproxy

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	maxPacket = 64 << 10
	// maxFlows bounds the sockets towards the target, one for each sender.
	maxFlows = 256
)

// Packets is the proxy's form for UDP: senders send to it, it sends to the target,
// and answers go back. Packets are lost or late, never altered.
type Packets struct {
	target *net.UDPAddr
	conn   *net.UDPConn
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	name     func(net.Addr) string
	only     []string
	loss     float64
	low      time.Duration
	high     time.Duration
	counters PacketCounters
	flows    map[string]*flow
}

// PacketCounters count packets by result since NewPackets, in both directions.
type PacketCounters struct {
	Passed, Lost, Delayed int64
}

// flow is one sender and the socket that stands for it.
type flow struct {
	name   string
	sender *net.UDPAddr
	out    *net.UDPConn
}

// NewPackets starts a proxy at a host:port to a host:port, until the test ends.
func NewPackets(t testing.TB, listen, target string) *Packets {
	t.Helper()
	p := &Packets{flows: map[string]*flow{}}
	var err error
	if p.target, err = net.ResolveUDPAddr("udp", target); err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	at, err := net.ResolveUDPAddr("udp", listen)
	if err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	if p.conn, err = net.ListenUDP("udp", at); err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	p.wg.Go(p.forwardPackets)
	t.Cleanup(p.closeSockets)
	return p
}

// Addr is the host:port that senders use.
func (p *Packets) Addr() string { return p.conn.LocalAddr().String() }

// Name sets the naming of senders whose first packet is still to come.
func (p *Packets) Name(name func(net.Addr) string) { p.applyChange(func() { p.name = name }) }

// Only limits faults to senders of these names; none lifts the limit.
func (p *Packets) Only(names ...string) { p.applyChange(func() { p.only = names }) }

// Lose loses packets of both directions with a probability from 0 to 1.
func (p *Packets) Lose(probability float64) { p.applyChange(func() { p.loss = probability }) }

// Late delays each packet by a random time between low and high; they may
// overtake each other.
func (p *Packets) Late(low, high time.Duration) {
	p.applyChange(func() { p.low, p.high = low, max(low, high) })
}

// Pass switches every fault off.
func (p *Packets) Pass() { p.applyChange(func() { p.only, p.loss, p.low, p.high = nil, 0, 0, 0 }) }

// Counters are what happened so far.
func (p *Packets) Counters() PacketCounters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counters
}

func (p *Packets) applyChange(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *Packets) closeSockets() {
	p.mu.Lock()
	p.closed = true
	for _, f := range p.flows {
		_ = f.out.Close()
	}
	p.mu.Unlock()
	_ = p.conn.Close()
	p.wg.Wait()
}

// forwardPackets carries packets of all senders to the target.
func (p *Packets) forwardPackets() {
	buf := make([]byte, maxPacket)
	for {
		n, sender, err := p.conn.ReadFromUDP(buf)
		if err != nil {
			return
		}
		if f := p.findFlow(sender); f != nil {
			p.deliverPacket(f.name, slices.Clone(buf[:n]), func(b []byte) { _, _ = f.out.Write(b) })
		}
	}
}

// findFlow finds or opens a sender's socket; nil when there are too many, or the
// proxy closes.
func (p *Packets) findFlow(sender *net.UDPAddr) *flow {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.flows[sender.String()]; f != nil {
		return f
	}
	if p.closed || len(p.flows) == maxFlows {
		return nil
	}
	out, err := net.DialUDP("udp", nil, p.target)
	if err != nil {
		return nil
	}
	f := &flow{sender: sender, out: out}
	if p.name != nil {
		f.name = p.name(sender)
	}
	p.flows[sender.String()] = f
	p.wg.Go(func() { p.returnPackets(f) })
	return f
}

// returnPackets carries answers to their sender. An error of one packet, such as that
// nothing listens at the target, ends nothing.
func (p *Packets) returnPackets(f *flow) {
	buf := make([]byte, maxPacket)
	for {
		n, err := f.out.Read(buf)
		if err != nil {
			p.mu.Lock()
			closed := p.closed
			p.mu.Unlock()
			if closed {
				return
			}
			continue
		}
		p.deliverPacket(f.name, slices.Clone(buf[:n]), func(b []byte) { _, _ = p.conn.WriteToUDP(b, f.sender) })
	}
}

// deliverPacket sends a packet on, late, or not at all. What cannot be sent is lost, as
// packets are.
func (p *Packets) deliverPacket(name string, packet []byte, send func([]byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hit := p.only == nil || slices.Contains(p.only, name)
	switch {
	case hit && p.loss > 0 && rand.Float64() < p.loss:
		p.counters.Lost++
	case hit && p.high > 0:
		p.counters.Delayed++
		time.AfterFunc(p.low+time.Duration(rand.Int64N(int64(p.high-p.low)+1)), func() { send(packet) })
	default:
		p.counters.Passed++
		send(packet)
	}
}
