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

// Bounds of the gossip port. They also hold for holders of the key, unless stated otherwise.
const (
	// MaxMembers bounds the names that a node knows by gossip, including those that departed recently.
	MaxMembers = 1024
	// maxName bounds the name of a member, in bytes.
	maxName = 255
	// maxMemberBytes is more than one member takes in a full exchange: 44 bytes of names of
	// fields, and at most 258 for the name, 18 for the IP, 3 for the port, 515 for the
	// metadata, 5 for the incarnation, 1 for the state and 8 for the versions.
	maxMemberBytes = 1024
	// maxStream bounds the bytes of one stream: a list of MaxMembers members. It is 1 MiB.
	maxStream = MaxMembers * maxMemberBytes
	// maxPacket bounds a packet. Members pack 1400 bytes, and at most one message with two names of maxName in
	// addition.
	maxPacket = 4 << 10

	// maxStreams bounds the open incoming streams, and maxStreamsOfAddress those from one IPv4 address, or from
	// one IPv6 network of 64 bits.
	maxStreams          = 128
	maxStreamsOfAddress = 16
	// maxUnauthenticatedBytes bounds the bytes that are kept of all unauthenticated streams, and
	// maxUnauthenticatedBytesOfAddress those of one address. Without keys all streams count until they end.
	maxUnauthenticatedBytes          = 8 << 20
	maxUnauthenticatedBytesOfAddress = maxUnauthenticatedBytes / 4
	// authTimeout is how long a stream has to authenticate, and minAuthTime how long before it may be evicted
	// for a later one.
	authTimeout = streamTimeout
	minAuthTime = 500 * time.Millisecond
)

// refusalLogInterval is the minimum time between two log records of refusals.
const refusalLogInterval = 10 * time.Second

// refusal is the reason of a refusal, as in the metric.
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
	refusedNetwork: "the address is not in an allowed network",
	refusedBounds:  "too many streams, or too many unauthenticated bytes",
	refusedLabel:   "the label is that of another cluster",
	refusedKey:     "no gossip key decrypts it",
	refusedSize:    "it is too long, or too short to be encrypted",
	refusedContent: "the message is not one that nodes send",
	refusedCut:     "it ended, or took too long, before it was authenticated",
}

// guard filters the traffic of the gossip port for memberlist. It passes traffic from an allowed network, with
// the cluster's label, within bounds, encrypted with a key of the ring if there is one, and of messages that nodes
// send. Memberlist decrypts it again, and decompresses packets again.
type guard struct {
	allow  []netip.Prefix // empty: all
	label  []byte
	ring   *memberlist.Keyring // nil: no encryption
	now    func() time.Time    // by the clock that nodes share
	logger *slog.Logger

	refused *prometheus.CounterVec

	keys struct {
		sync.Mutex
		rawKeys [][]byte // the keys of ciphers
		ciphers []cipher.AEAD
	}
	mu struct {
		sync.Mutex
		streamSlots
	}
	refusalLog struct {
		sync.Mutex
		loggedAt   time.Time
		suppressed int // since loggedAt
	}
}

func newGuard(o Options) *guard {
	g := &guard{allow: o.Allow, label: []byte(o.Label), ring: o.ring, now: o.Now, logger: o.Logger}
	g.mu.byAddress = map[netip.Addr]*addressUsage{}
	g.refused = promauto.With(o.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "fermata_gossip_refused_total",
		Help: "Streams and packets refused at the gossip port, by reason.",
	}, []string{"kind", "reason"})
	for _, kind := range []string{"packet", "stream"} {
		for reason := range refusalTexts {
			// Present from the start, so that the first refusal is visible as an increase.
			g.refused.WithLabelValues(kind, string(reason))
		}
	}
	return g
}

// recordRefusal counts a refusal and logs it at most once per interval, so that scanners cannot fill the log.
func (g *guard) recordRefusal(kind string, from netip.Addr, why refusal) {
	g.refused.WithLabelValues(kind, string(why)).Inc()
	g.refusalLog.Lock()
	defer g.refusalLog.Unlock()
	now := time.Now()
	if now.Sub(g.refusalLog.loggedAt) < refusalLogInterval {
		g.refusalLog.suppressed++
		return
	}
	g.logger.Warn("gossip refused", "kind", kind, "from", from.String(), "reason", why.Error(), "more_before",
		g.refusalLog.suppressed)
	g.refusalLog.loggedAt, g.refusalLog.suppressed = now, 0
}

// allowsAddr reports whether a node may have this address.
func (g *guard) allowsAddr(a netip.Addr) bool {
	return len(g.allow) == 0 || slices.ContainsFunc(g.allow, func(p netip.Prefix) bool { return p.Contains(a) })
}

// checkPacket returns the reason to refuse a packet; empty: memberlist may receive it.
func (g *guard) checkPacket(buf []byte, from netip.Addr) refusal {
	switch {
	case !g.allowsAddr(from):
		return refusedNetwork
	case len(buf) > maxPacket:
		return refusedSize
	}
	rest, ok := bytes.CutPrefix(buf, g.labelHeader())
	if !ok {
		return refusedLabel
	}
	if g.ring == nil {
		return validatePlainPacket(rest, maxIncarnation(g.now()))
	}
	plain, why := g.decrypt(rest, g.label)
	if why != "" {
		return why
	}
	return validatePacket(plain, maxIncarnation(g.now()))
}

// labelHeader is the header of every packet and stream.
func (g *guard) labelHeader() []byte {
	if len(g.label) == 0 {
		return nil
	}
	return append([]byte{labelByte, byte(len(g.label))}, g.label...)
}

// decrypt decrypts text with one of the keys, and authenticates additional with it.
func (g *guard) decrypt(sealed, additional []byte) ([]byte, refusal) {
	if len(sealed) < encryptionOverhead {
		return nil, refusedSize
	}
	if sealed[0] != encryptionVersion {
		return nil, refusedKey
	}
	nonce, text := sealed[1:1+nonceSize], sealed[1+nonceSize:]
	for _, key := range g.currentCiphers() {
		if plain, err := key.Open(nil, nonce, text, additional); err == nil {
			return plain, ""
		}
	}
	return nil, refusedKey
}

// currentCiphers are the ciphers of the ring's keys.
func (g *guard) currentCiphers() []cipher.AEAD {
	now := g.ring.GetKeys()
	g.keys.Lock()
	defer g.keys.Unlock()
	if slices.EqualFunc(g.keys.rawKeys, now, bytes.Equal) {
		return g.keys.ciphers
	}
	g.keys.rawKeys, g.keys.ciphers = slices.Clone(now), make([]cipher.AEAD, 0, len(now))
	for _, key := range g.keys.rawKeys {
		opener, err := newCipher(key)
		if err != nil {
			continue // a ring contains no such key
		}
		g.keys.ciphers = append(g.keys.ciphers, opener)
	}
	return g.keys.ciphers
}

func newCipher(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

var errClosing = errors.New("the gossip port is closed")
