package simnet

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// Network connects hosts. Make it with New, inside the bubble.
type Network struct {
	mu      sync.Mutex
	seed    uint64
	hosts   map[string]*Host // the present incarnations, by IP
	cuts    map[direction]int
	loss    float64       // of packets
	slow    time.Duration // added to each latency, at most
	dials   map[direction]uint64
	changed chan struct{} // closed and replaced by every change
}

// direction leads from one IP to another.
type direction struct{ from, to string }

// Latency of a chunk or packet on its way, least and most.
const (
	minLatency = 100 * time.Microsecond
	maxLatency = 2 * time.Millisecond
)

// New is a network without hosts. The seed decides the latencies.
func New(seed uint64) *Network {
	return &Network{
		seed: seed, hosts: map[string]*Host{}, cuts: map[direction]int{}, dials: map[direction]uint64{},
		changed: make(chan struct{}),
	}
}

// Boot starts a machine at an address, in place of any that was there before.
func (n *Network) Boot(ip string) *Host {
	h := &Host{net: n, ip: ip, ended: make(chan struct{}), listeners: map[string]*listener{},
		streams: map[*stream]struct{}{}}
	n.changeNetwork(func() { n.hosts[ip] = h })
	return h
}

// Cut closes the way from one address to another. Cuts are counted: each needs
// its Heal.
func (n *Network) Cut(from, to string) { n.changeNetwork(func() { n.cuts[direction{from, to}]++ }) }

// Heal takes one Cut back.
func (n *Network) Heal(from, to string) { n.changeNetwork(func() { n.cuts[direction{from, to}]-- }) }

// Disturb loses packets with a probability from 0 to 1 and adds up to slow to
// every latency.
func (n *Network) Disturb(loss float64, slow time.Duration) {
	n.changeNetwork(func() { n.loss, n.slow = loss, slow })
}

func (n *Network) changeNetwork(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.changed)
	n.changed = make(chan struct{})
}

// Passes reports whether packets pass from one address to another, and when to look again. A host that is down
// lets nothing pass.
func (n *Network) Passes(from, to string) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.passesLocked(from, to), n.changed
}

func (n *Network) passesLocked(from, to string) bool {
	a, b := n.hosts[from], n.hosts[to]
	return n.cuts[direction{from, to}] == 0 && a != nil && b != nil && !a.frozen && !b.frozen && !b.off
}

// randFor of one stream or packet, which depend on nothing but the seed, the ends and
// how many there were before.
func (n *Network) randFor(from, to string) *rand.Rand {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dials[direction{from, to}]++
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(from + ">" + to)) // a hash takes everything
	return rand.New(rand.NewPCG(n.seed^hash.Sum64(), n.dials[direction{from, to}]))
}

// Latency draws how long something is on its way.
func (n *Network) Latency(dice *rand.Rand) time.Duration {
	n.mu.Lock()
	slow := n.slow
	n.mu.Unlock()
	d := minLatency + time.Duration(dice.Int64N(int64(maxLatency-minLatency)))
	if slow > 0 {
		d += time.Duration(dice.Int64N(int64(slow)))
	}
	return d
}
