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
	l := &links{ip: newLoopbackAddress()}
	front := newLoopbackAddress()
	l.grpc = faultproxy.NewAt(t, hostPort(front, grpcPort), l.realAddress(grpcPort))
	l.peer = faultproxy.NewAt(t, hostPort(front, peerPort), l.realAddress(peerPort))
	l.gossip = faultproxy.NewAt(t, hostPort(front, gossipPort), l.realAddress(gossipPort))
	l.packets = faultproxy.NewPackets(t, hostPort(front, gossipPort), l.realAddress(gossipPort))
	for _, p := range []*faultproxy.Proxy{l.grpc, l.peer, l.gossip} {
		p.Name(o.byProcess(p.Addr()))
		p.MirrorRefusals() // by which nodes distinguish a dead process from a slow one
	}
	o.noteListener(node, l.ip)
	l.packets.Name(o.byAddress)
	if server != nil {
		l.redis = faultproxy.New(t, server.Addr())
	}
	return l
}

// newLoopbackAddress is one of the host's sixteen million addresses for itself: ports of
// different nodes and tests do not meet.
func newLoopbackAddress() string {
	return net.IPv4(127, byte(1+rand.IntN(250)), byte(rand.IntN(256)), byte(1+rand.IntN(250))).String()
}

// realAddress is where the node itself listens.
func (l *links) realAddress(port int) string { return hostPort(l.ip, port) }

// nodeFlags make a node listen behind the proxies and announce the proxies' addresses.
func (l *links) nodeFlags() []string {
	flags := []string{
		"--grpc-addr", l.realAddress(grpcPort), "--advertise-grpc", l.grpc.Addr(),
		"--peer-addr", l.realAddress(peerPort), "--advertise-peer", l.peer.Addr(),
		"--gossip-addr", l.realAddress(gossipPort), "--advertise-gossip", l.gossip.Addr(),
	}
	if l.redis != nil {
		flags = append(flags, "--redis-url", fmt.Sprintf("redis://%s/0", l.redis.Addr()))
	}
	return flags
}

// allProxies are all for streams.
func (l *links) allProxies() []*faultproxy.Proxy {
	all := []*faultproxy.Proxy{l.grpc, l.peer, l.gossip}
	if l.redis != nil {
		all = append(all, l.redis)
	}
	return all
}

// removeFaults ends all faults.
func (l *links) removeFaults() {
	for _, p := range l.allProxies() {
		p.Pass()
	}
	l.packets.Pass()
}

// cutOff cuts a node off from others as if the network between them were gone:
// what they send to it is lost, and open streams starve. It is one direction of a
// partition.
func (l *links) cutOff(from ...string) {
	l.packets.Only(from...)
	l.packets.Lose(1)
	for _, p := range []*faultproxy.Proxy{l.gossip, l.peer} {
		p.Only(from...)
		p.Blackhole(faultproxy.Both)
	}
}

// makeRough makes every link slow, and now and then cuts one.
func (l *links) makeRough(low, high time.Duration, cut float64) {
	for _, p := range l.allProxies() {
		p.LatencyBetween(low, high)
		p.CutReplies(cut)
	}
	l.packets.Late(low, high)
	l.packets.Lose(cut)
}
