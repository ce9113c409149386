package acceptance

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

const (
	grpcPort   = 7070
	peerPort   = 7071
	gossipPort = 7946
)

// links are the proxies before one node, and the one between it and Redis. Clients
// of the first are named: "a" is a node, "w1" a worker.
type links struct {
	ip      string              // the node listens here; the proxies have an address of their own
	redis   *faultproxy.Proxy   // this node to Redis; nil without a proxy
	grpc    *faultproxy.Proxy   // workers to this node
	peer    *faultproxy.Proxy   // other nodes to this one
	gossip  *faultproxy.Proxy   // the same, streams of the gossip
	packets *faultproxy.Packets // and its packets
}

func newLinks(t testing.TB, server *redistest.Server, o *origins, node string) *links {
	t.Helper()
	l := &links{ip: loopback()}
	front := loopback()
	l.grpc = faultproxy.NewAt(t, hostPort(front, grpcPort), l.real(grpcPort))
	l.peer = faultproxy.NewAt(t, hostPort(front, peerPort), l.real(peerPort))
	l.gossip = faultproxy.NewAt(t, hostPort(front, gossipPort), l.real(gossipPort))
	l.packets = faultproxy.NewPackets(t, hostPort(front, gossipPort), l.real(gossipPort))
	for _, p := range []*faultproxy.Proxy{l.grpc, l.peer, l.gossip} {
		p.Name(o.byProcess(p.Addr()))
		p.MirrorRefusals() // by which nodes tell a dead process from a slow one
	}
	o.listens(node, l.ip)
	l.packets.Name(o.byAddress)
	if server != nil {
		l.redis = faultproxy.New(t, server.Addr())
	}
	return l
}

// loopback is one of the host's sixteen million addresses for itself: ports of
// different nodes and tests do not meet.
func loopback() string {
	return net.IPv4(127, byte(1+rand.IntN(250)), byte(rand.IntN(256)), byte(1+rand.IntN(250))).String()
}

// real is where the node itself listens.
func (l *links) real(port int) string { return hostPort(l.ip, port) }

// flags make a node listen behind the proxies and tell their addresses.
func (l *links) flags() []string {
	flags := []string{
		"--grpc-addr", l.real(grpcPort), "--advertise-grpc", l.grpc.Addr(),
		"--peer-addr", l.real(peerPort), "--advertise-peer", l.peer.Addr(),
		"--gossip-addr", l.real(gossipPort), "--advertise-gossip", l.gossip.Addr(),
	}
	if l.redis != nil {
		flags = append(flags, "--redis-url", fmt.Sprintf("redis://%s/0", l.redis.Addr()))
	}
	return flags
}

// proxies are all for streams.
func (l *links) proxies() []*faultproxy.Proxy {
	all := []*faultproxy.Proxy{l.grpc, l.peer, l.gossip}
	if l.redis != nil {
		all = append(all, l.redis)
	}
	return all
}

// pass ends all faults.
func (l *links) pass() {
	for _, p := range l.proxies() {
		p.Pass()
	}
	l.packets.Pass()
}

// sever cuts a node off from others as if the network between them were gone:
// what they send to it is lost, and open streams starve. It is one direction of a
// partition.
func (l *links) sever(from ...string) {
	l.packets.Only(from...)
	l.packets.Lose(1)
	for _, p := range []*faultproxy.Proxy{l.gossip, l.peer} {
		p.Only(from...)
		p.Blackhole(faultproxy.Both)
	}
}

// rough makes every link slow, and now and then cuts one.
func (l *links) rough(low, high time.Duration, cut float64) {
	for _, p := range l.proxies() {
		p.LatencyBetween(low, high)
		p.CutReplies(cut)
	}
	l.packets.Late(low, high)
	l.packets.Lose(cut)
}
