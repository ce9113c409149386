package membership

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Bounds of the gossip port. They hold for those who have the key too, as far as nothing
// else is said.
const (
	// MaxMembers bounds the names that a node knows by gossip, those that departed lately
	// included.
	MaxMembers = 1024
	// maxName bounds the name of a member, in bytes.
	maxName = 255
	// maxMemberBytes is more than one member takes in a full exchange: 44 bytes of names of
	// fields, and at most 258 for the name, 18 for the IP, 3 for the port, 515 for the
	// metadata, 5 for the incarnation, 1 for the state and 8 for the versions.
	maxMemberBytes = 1024
	// maxStream bounds what one stream may bring: a list of MaxMembers members. It is 1 MiB.
	maxStream = MaxMembers * maxMemberBytes
	// maxPacket bounds a packet. Members pack 1400 bytes, and a message with two names of
	// maxName beside that at most.
	maxPacket = 4 << 10

	// maxStreams bounds the open streams that others have dialled, and
	// maxStreamsOfAddress those from one IPv4 address, or one IPv6 network of 64 bits.
	maxStreams          = 128
	maxStreamsOfAddress = 16
	// maxUnproved bounds the bytes that are kept of streams whose key has not fitted yet, all
	// together, and maxUnprovedOfAddress those of one address.
	maxUnproved          = 8 << 20
	maxUnprovedOfAddress = maxUnproved / 4
	// proofTimeout is how long a stream has until its key has fitted, and proofTurn how long it has
	// before it makes room for others who come later.
	proofTimeout = streamTimeout
	proofTurn    = 500 * time.Millisecond
)

// refusedAgain is the least time between two lines about what was refused.
const refusedAgain = 10 * time.Second

// refusal is why something was refused, as the metric calls it.
type refusal string

func (r refusal) Error() string { return refusalTexts[r] }

const (
	refusedNetwork refusal = "network"
	refusedBounds  refusal = "bounds"
	refusedLabel   refusal = "label"
	refusedKey     refusal = "key"
	refusedSize    refusal = "size"
	refusedContent refusal = "content"
	refusedCut     refusal = "cut"
)

var refusalTexts = map[refusal]string{
	refusedNetwork: "the address is not in a network that nodes may be in",
	refusedBounds:  "too many streams, or too much that no key has fitted",
	refusedLabel:   "it is for another cluster, by its label",
	refusedKey:     "no gossip key fits",
	refusedSize:    "it is too long, or too short to be encrypted",
	refusedContent: "it holds what no node says",
	refusedCut:     "it ended, or took too long, before a key had fitted",
}

// guard decides what of that which comes to the gossip port memberlist gets to see: what
// comes from an allowed network, with the cluster's label, within bounds, and encrypted by a
// key of the ring. memberlist decrypts it again.
type guard struct {
	allow  []netip.Prefix // empty: all
	label  []byte
	ring   *memberlist.Keyring // nil: nothing is encrypted
	logger *slog.Logger

	refused *prometheus.CounterVec

	keys struct {
		sync.Mutex
		raw    [][]byte // of which openers are
		opened []cipher.AEAD
	}
	mu struct {
		sync.Mutex
		places
	}
	told struct {
		sync.Mutex
		at   time.Time
		more int // since then
	}
}

func newGuard(o Options) *guard {
	g := &guard{allow: o.Allow, label: []byte(o.Label), ring: o.ring, logger: o.Logger}
	g.mu.of = map[netip.Addr]*usage{}
	g.refused = promauto.With(o.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "fermata_gossip_refused_total",
		Help: "Streams and packets at the gossip port that were dropped unread, by why.",
	}, []string{"kind", "reason"})
	for _, kind := range []string{"packet", "stream"} {
		for reason := range refusalTexts {
			g.refused.WithLabelValues(kind, string(reason)) // there from the start, so that the first one shows
		}
	}
	return g
}

// refuse counts what was refused, and logs it now and then: who knocks at random must not
// fill the log.
func (g *guard) refuse(kind string, from netip.Addr, why refusal) {
	g.refused.WithLabelValues(kind, string(why)).Inc()
	g.told.Lock()
	defer g.told.Unlock()
	now := time.Now()
	if now.Sub(g.told.at) < refusedAgain {
		g.told.more++
		return
	}
	g.logger.Warn("gossip refused", "kind", kind, "from", from.String(), "reason", why.Error(), "more_before", g.told.more)
	g.told.at, g.told.more = now, 0
}

// allows reports whether a node may be at an address.
func (g *guard) allows(a netip.Addr) bool {
	return len(g.allow) == 0 || slices.ContainsFunc(g.allow, func(p netip.Prefix) bool { return p.Contains(a) })
}

// source is what bounds of one address hold for. Who has one address of IPv6 has 2^64.
func source(a netip.Addr) netip.Addr {
	if p, err := a.WithZone("").Prefix(64); err == nil && a.Is6() {
		return p.Addr()
	}
	return a
}

// packet is why memberlist must not see a packet, empty if it may.
func (g *guard) packet(buf []byte, from netip.Addr) refusal {
	switch {
	case !g.allows(from):
		return refusedNetwork
	case len(buf) > maxPacket:
		return refusedSize
	}
	rest, ok := bytes.CutPrefix(buf, g.header())
	if !ok {
		return refusedLabel
	}
	if g.ring == nil {
		return ""
	}
	plain, why := g.open(rest, g.label)
	if why != "" {
		return why
	}
	return packetFault(plain)
}

// header is what a packet or a stream begins with.
func (g *guard) header() []byte {
	if len(g.label) == 0 {
		return nil
	}
	return append([]byte{labelByte, byte(len(g.label))}, g.label...)
}

// open decrypts what one of the keys has encrypted, and authenticates about with it.
func (g *guard) open(sealed, about []byte) ([]byte, refusal) {
	if len(sealed) < sealedOverhead {
		return nil, refusedSize
	}
	if sealed[0] != sealedVersion {
		return nil, refusedKey
	}
	nonce, text := sealed[1:1+nonceSize], sealed[1+nonceSize:]
	for _, key := range g.openers() {
		if plain, err := key.Open(nil, nonce, text, about); err == nil {
			return plain, ""
		}
	}
	return nil, refusedKey
}

// openers are the keys of the ring, ready for use.
func (g *guard) openers() []cipher.AEAD {
	now := g.ring.GetKeys()
	g.keys.Lock()
	defer g.keys.Unlock()
	if slices.EqualFunc(g.keys.raw, now, bytes.Equal) {
		return g.keys.opened
	}
	g.keys.raw, g.keys.opened = slices.Clone(now), make([]cipher.AEAD, 0, len(now))
	for _, key := range g.keys.raw {
		opener, err := newOpener(key)
		if err != nil {
			continue // no ring takes such a key
		}
		g.keys.opened = append(g.keys.opened, opener)
	}
	return g.keys.opened
}

func newOpener(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

var errClosing = errors.New("the gossip port is closed")
