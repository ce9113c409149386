package simnet

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/fermata-io/fermata/internal/cluster/membership"
)

// gossipTransport carries memberlist's packets and streams. It implements
// membership.Transport.
type gossipTransport struct {
	host     *Host
	port     int
	listener net.Listener
	packets  chan *memberlist.Packet
	streams  chan net.Conn
	working  sync.WaitGroup
}

// Gossip opens the host's gossip port.
func (h *Host) Gossip(port int) (membership.Transport, error) {
	l, err := h.Listen(net.JoinHostPort(h.ip, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	g := &gossipTransport{host: h, port: port, listener: l, packets: make(chan *memberlist.Packet, 1024),
		streams: make(chan net.Conn)}
	h.mu.Lock()
	h.packets = g
	h.mu.Unlock()
	g.working.Go(g.acceptPackets)
	return g, nil
}

func (g *gossipTransport) acceptPackets() {
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return
		}
		select {
		case g.streams <- conn:
		case <-time.After(time.Second): // the transport no longer reads packets
			_ = conn.Close() // nothing was sent
		}
	}
}

func (g *gossipTransport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.ParseIP(g.host.ip), g.port, nil
}

// WriteTo sends one packet, which arrives after its latency unless the way is shut
// then, or it is lost.
func (g *gossipTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	if !g.host.Up() {
		return now, ErrDown
	}
	ip, _, err := net.SplitHostPort(addr)
	if err != nil {
		return now, err
	}
	n := g.host.net
	dice := n.randFor(g.host.ip, ip)
	n.mu.Lock()
	lost := dice.Float64() < n.loss
	n.mu.Unlock()
	if lost {
		return now, nil
	}
	packet := &memberlist.Packet{Buf: append([]byte(nil), b...),
		From: address(net.JoinHostPort(g.host.ip, strconv.Itoa(g.port)))}
	time.AfterFunc(n.Latency(dice), func() { n.deliverPacket(g.host.ip, ip, packet) })
	return now, nil
}

// deliverPacket hands a packet to the gossip port of the host that has the address now.
func (n *Network) deliverPacket(from, to string, packet *memberlist.Packet) {
	n.mu.Lock()
	target, open := n.hosts[to], n.passesLocked(from, to)
	n.mu.Unlock()
	if !open {
		return
	}
	target.mu.Lock()
	g := target.packets
	target.mu.Unlock()
	if g == nil {
		return
	}
	packet.Timestamp = time.Now()
	select {
	case g.packets <- packet:
	default: // as a full socket buffer does
	}
}

func (g *gossipTransport) PacketCh() <-chan *memberlist.Packet { return g.packets }
func (g *gossipTransport) StreamCh() <-chan net.Conn           { return g.streams }

func (g *gossipTransport) IngestStream(conn net.Conn) error {
	g.streams <- conn
	return nil
}

func (g *gossipTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return g.host.Dial(ctx, addr)
}

func (g *gossipTransport) Shutdown() error {
	g.host.mu.Lock()
	g.host.packets = nil
	g.host.mu.Unlock()
	err := g.listener.Close()
	g.working.Wait()
	return err
}
