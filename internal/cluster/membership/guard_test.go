package membership

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/test/gossiptest"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// refusals counts the refused streams and packets: by kind, by reason, and by both.
func refusals(t *testing.T, reg *prometheus.Registry) map[string]int {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, f := range families {
		if f.GetName() != "fermata_gossip_refused_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			kind, reason, n := m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(), int(m.GetCounter().GetValue())
			counts[kind] += n
			counts[reason] += n
			counts[kind+" "+reason] += n
		}
	}
	return counts
}

// target is a node under attack.
type target struct {
	*Cluster
	key []byte
	reg *prometheus.Registry
	log *logBuffer
}

func newTarget(t *testing.T, change ...func(*Options)) *target {
	t.Helper()
	x := &target{key: newKey(), reg: prometheus.NewRegistry(), log: &logBuffer{}}
	x.Cluster = startNode(t, "a", append([]func(*Options){func(o *Options) {
		o.KeyFile, o.Registerer, o.Logger = keyFile(t, x.key), x.reg, x.log.logger()
	}}, change...)...)
	return x
}

// encryptedFrame is a message of a stream, encrypted with a key.
func encryptedFrame(t *testing.T, key []byte, label string, plain []byte) []byte {
	t.Helper()
	head := binary.BigEndian.AppendUint32([]byte{encryptedType}, uint32(len(plain)+encryptionOverhead))
	return append(head, gossiptest.Sealed(t, key, string(head)+label, plain)...)
}

// openStream opens a stream from an address of this host.
func (x *target) openStream(t *testing.T, from string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", x.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// awaitClose waits until the other side has closed a connection, and returns what it sent before.
func awaitClose(t *testing.T, conn net.Conn) []byte {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(conn)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Fatal("the stream is still open")
	}
	return got
}

// sendRaw writes parts and ignores errors: the other side may have closed.
func sendRaw(conn net.Conn, parts ...[]byte) {
	for _, p := range parts {
		if _, err := conn.Write(p); err != nil {
			return
		}
	}
}

// TestUnauthenticatedStreamsAreDropped: with the right label, and all that is known without the key.
func TestUnauthenticatedStreamsAreDropped(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	ours := gossiptest.Labelled(x.o.Label, nil)
	length := func(n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{encryptedType}, n) }
	for name, c := range map[string]struct {
		says [][]byte
		want refusal
	}{
		"20 MiB are on their way":    {[][]byte{ours, length(20 << 20), make([]byte, 64<<10)}, refusedSize},
		"more than a list can have":  {[][]byte{ours, length(maxStream + 1)}, refusedSize},
		"too little to be encrypted": {[][]byte{ours, length(5)}, refusedSize},
		"another key": {[][]byte{ours, encryptedFrame(t, newKey(), x.o.Label, []byte{pingType})},
			refusedKey},
		"anything":     {[][]byte{ours, length(4 << 10), make([]byte, 4<<10)}, refusedKey},
		"in the clear": {[][]byte{ours, {pingType, 0x80, 0, 0, 0}}, refusedKey},
		"another label": {[][]byte{gossiptest.Labelled(strings.Repeat("x", len(x.o.Label)), nil)},
			refusedLabel},
		"no label": {[][]byte{encryptedFrame(t, x.key, "", bytes.Repeat([]byte{pingType}, 300))},
			refusedLabel},
		"from another cluster": {[][]byte{ours, encryptedFrame(t, x.key, "other", []byte{pingType})}, refusedKey},
	} {
		t.Run(name, func(t *testing.T) {
			before := refusals(t, x.reg)["stream "+string(c.want)]
			conn := x.openStream(t, "127.0.0.1")
			sendRaw(conn, c.says...)
			if got := awaitClose(t, conn); len(got) > 0 {
				t.Errorf("a stranger is answered %q", got)
			}
			redistest.Eventually(t, patience, "it is counted",
				func() bool { return refusals(t, x.reg)["stream "+string(c.want)] == before+1 })
		})
	}
	if isGossiping(x.Cluster) {
		t.Error("a stranger has made the node gossip")
	}
	if n := x.log.count("gossip refused"); n != 1 {
		t.Errorf("%d lines in a moment, want one", n)
	}
}

// TestSilentStreamsEnd: a stream that sends nothing, or less than announced, is closed.
func TestSilentStreamsEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keyFile func(*Options)
		begin   []byte // of a message
	}{
		"with a key": {func(*Options) {}, append([]byte{encryptedType, 0, 0, 4, 0}, make([]byte, 100)...)},
		"in the clear": {func(o *Options) { o.KeyFile = "" },
			encodeMessage(t, pushPullType, exchangeHeader{Nodes: 2}, testMember{"a", 1})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTarget(t, c.keyFile)
			silent, slow := x.openStream(t, "127.0.0.1"), x.openStream(t, "127.0.0.1")
			sendRaw(slow, gossiptest.Labelled(x.o.Label, nil), c.begin)
			awaitClose(t, silent)
			awaitClose(t, slow)
			redistest.Eventually(t, patience, "both are counted",
				func() bool { return refusals(t, x.reg)["stream cut"] == 2 })
		})
	}
}

// TestStreamsOfOtherNetworksAreDropped: the key is valid, the network is not allowed.
func TestStreamsOfOtherNetworksAreDropped(t *testing.T) {
	t.Parallel()
	x := newTarget(t, func(o *Options) { o.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	ping := append(gossiptest.Labelled(x.o.Label, nil), encryptedFrame(t, x.key, x.o.Label, []byte{pingType, 0x80})...)
	conn := x.openStream(t, "127.0.0.2")
	sendRaw(conn, ping)
	if got := awaitClose(t, conn); len(got) > 0 {
		t.Errorf("it is answered: %q", got)
	}
	packets, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)},
		net.UDPAddrFromAddrPort(netip.MustParseAddrPort(x.LocalAddr())))
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	sendRaw(packets, gossiptest.Labelled(x.o.Label,
		gossiptest.Sealed(t, x.key, x.o.Label, gossiptest.Departure("a", 1))))
	redistest.Eventually(t, patience, "both are counted", func() bool {
		counts := refusals(t, x.reg)
		return counts["stream network"] == 1 && counts["packet network"] == 1
	})
	conn = x.openStream(t, "127.0.0.1")
	sendRaw(conn, ping)
	if got := awaitClose(t, conn); len(got) == 0 {
		t.Error("a node of the network is not answered")
	}
}

// TestStreamsOfOneAddressAreFew: one address cannot take the slots of others.
func TestStreamsOfOneAddressAreFew(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	for range 2 * maxStreamsOfAddress {
		x.openStream(t, "127.0.0.2")
	}
	redistest.Eventually(t, patience, "half of them are refused",
		func() bool { return refusals(t, x.reg)["stream bounds"] == maxStreamsOfAddress })
	b := startNode(t, "b", joining(x.LocalAddr()), func(o *Options) { o.KeyFile = keyFile(t, x.key) })
	awaitMembers(t, b, "a b")
	if n := refusals(t, x.reg)["stream bounds"]; n != maxStreamsOfAddress {
		t.Errorf("%d streams refused, want those of one address alone", n)
	}
}

// TestSlotsOfStreamsAreReleased: a stream that has ended has no slot.
func TestSlotsOfStreamsAreReleased(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	ping := append(gossiptest.Labelled(x.o.Label, nil), encryptedFrame(t, x.key, x.o.Label, []byte{pingType, 0x80})...)
	for range 2 * maxStreamsOfAddress {
		conn := x.openStream(t, "127.0.0.1")
		sendRaw(conn, ping)
		if got := awaitClose(t, conn); len(got) == 0 {
			t.Fatalf("a member is not answered; refused: %v", refusals(t, x.reg))
		}
	}
	listener := x.gossip.transport.(*hostTransport)
	redistest.Eventually(t, patience, "nothing is counted", func() bool {
		g := listener.guard
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.mu.streams == 0 && g.mu.unauthenticated == 0 && len(g.mu.byAddress) == 0
	})
}

// TestUnauthenticatedStreamsKeepLittle: strangers with the right label announce 1 MiB and send nearly all of it,
// from several addresses. The memory stays within the bounds.
func TestUnauthenticatedStreamsKeepLittle(t *testing.T) {
	x := newTarget(t)
	begin := append(gossiptest.Labelled(x.o.Label, nil),
		binary.BigEndian.AppendUint32([]byte{encryptedType}, maxStream)...)
	junk := make([]byte, maxStream-1)
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	var calls sync.WaitGroup
	for i := range 6 * maxStreamsOfAddress {
		conn := x.openStream(t, fmt.Sprintf("127.0.1.%d", 1+i%6))
		calls.Go(func() {
			sendRaw(conn, begin, junk)
			awaitClose(t, conn)
		})
	}
	most := uint64(0)
	done := make(chan struct{})
	go func() { calls.Wait(); close(done) }()
	for poll := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-done:
			poll.Stop()
			// The growing of buffers may double what is kept until memory is collected.
			if bound := uint64(3*maxUnauthenticatedBytes + 8<<20); most > before.HeapAlloc+bound {
				t.Errorf("%d MiB, %d before", most>>20, before.HeapAlloc>>20)
			}
			if n := refusals(t, x.reg)["stream bounds"]; n == 0 {
				t.Error("no bound was reached: this proves nothing")
			}
			return
		case <-poll.C:
			runtime.GC()
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
	}
}

// TestNodesOfThePreviousBuildGossip: they use memberlist's own transport.
func TestNodesOfThePreviousBuildGossip(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]string{"with a key": keyFile(t, newKey()), "in the clear": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keyed := func(o *Options) { o.KeyFile = keys }
			previous := func(o *Options) {
				transport, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
					BindAddrs: []string{"127.0.0.1"}, Logger: log.New(io.Discard, "", 0),
				})
				if err != nil {
					t.Fatal(err)
				}
				o.Transport = transport
			}
			a := startNode(t, "a", keyed)
			b := startNode(t, "b", keyed, previous, joining(a.LocalAddr()))
			c := startNode(t, "c", keyed, joining(b.LocalAddr()))
			awaitSharedState(t, a, b, c)
		})
	}
}

// TestHoldersOfTheKeyCannotEndANode sends messages that crash memberlist, or make it allocate much memory.
func TestHoldersOfTheKeyCannotEndANode(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	b := startNode(t, "b", joining(x.LocalAddr()), func(o *Options) { o.KeyFile = keyFile(t, x.key) })
	awaitMembers(t, x.Cluster, "a b")
	ours := gossiptest.Labelled(x.o.Label, nil)
	list := func(nodes, state int) []byte {
		var text []byte
		_ = codec.NewEncoderBytes(&text, &codec.MsgpackHandle{}).Encode(exchangeHeader{Nodes: nodes,
			UserStateLen: state})
		return append([]byte{pushPullType}, text...)
	}
	// Version 0 of the encryption ends in padding; here the padding is longer than the text.
	padded := gossiptest.Sealed(t, x.key, x.o.Label, bytes.Repeat([]byte{255}, 32))
	padded[0] = 0
	stream := func(plain []byte) []byte {
		return append(bytes.Clone(ours),
			encryptedFrame(t, x.key, x.o.Label, plain)...)
	}
	for name, c := range map[string]struct{ packet, stream []byte }{
		"padding without an end":     {packet: append(bytes.Clone(ours), padded...)},
		"nothing":                    {stream: stream(nil)},
		"room for a million members": {stream: stream(list(1<<20, 0))},
		"20 MiB of something else":   {stream: stream(list(0, 20<<20))},
		"a compressed list":          {stream: stream([]byte{9, 0x82})},
		"a message of a user":        {stream: stream([]byte{8, 0x81})},
		"a compressed packet": {packet: append(bytes.Clone(ours),
			gossiptest.Sealed(t, x.key, x.o.Label, []byte{9, 0x82})...)},
		"a compressed part": {packet: append(bytes.Clone(ours),
			gossiptest.Sealed(t, x.key, x.o.Label, []byte{compoundType, 1, 0, 2, 9, 0x82})...)},
		"parts that are not there": {packet: append(bytes.Clone(ours),
			gossiptest.Sealed(t, x.key, x.o.Label, []byte{compoundType, 200, 0})...)},
		"a packet of more than 4 KiB": {packet: append(bytes.Clone(ours),
			gossiptest.Sealed(t, x.key, x.o.Label, make([]byte, maxPacket))...)},
	} {
		before := refusals(t, x.reg)
		kind, network, says := "packet", "udp", c.packet
		if c.stream != nil {
			kind, network, says = "stream", "tcp", c.stream
		}
		conn, err := net.Dial(network, x.LocalAddr())
		if err != nil {
			t.Fatal(err)
		}
		sendRaw(conn, says)
		redistest.Eventually(t, patience, name+" is refused", func() bool { return refusals(t, x.reg)[kind] == before[kind]+1 })
		conn.Close()
	}
	if err := b.PublishRedisState(RedisState{Aside: true, Blind: -1}); err != nil {
		t.Fatal(err)
	}
	awaitMembers(t, x.Cluster, "a b-")
}

// TestInventedMembersAreBounded: a holder of the key invents members without end.
func TestInventedMembersAreBounded(t *testing.T) {
	d := newDelegate(Options{Name: "a", Logger: (&logBuffer{}).logger()}, func() {})
	member := func(name string) *memberlist.Node {
		return &memberlist.Node{Name: name, Addr: net.IPv4(127, 0, 0, 1).To4(), Port: 1, Meta: []byte("{}")}
	}
	taken := 0
	for i := range 3 * MaxMembers {
		n := member(fmt.Sprint("made-up-", i))
		if d.NotifyAlive(n) == nil {
			taken++
			d.NotifyJoin(n)
			d.NotifyLeave(n) // it departs at once, and memberlist keeps its name
		}
	}
	if taken != MaxMembers-1 {
		t.Errorf("%d names are known", taken)
	}
	if err := d.NotifyAlive(member("a")); err != nil {
		t.Errorf("of itself: %v", err)
	}
	if err := d.NotifyAlive(member("made-up-0")); err != nil {
		t.Errorf("of one that is known: %v", err)
	}
	d.removeDepartedNames(time.Now().Add(2 * nameRetention))
	if err := d.NotifyAlive(member("new")); err != nil {
		t.Errorf("when they are forgotten: %v", err)
	}
	long, big, nowhere := member(strings.Repeat("x", maxName+1)), member("big"), member("nowhere")
	big.Meta, nowhere.Addr = make([]byte, memberlist.MetaMaxSize+1), []byte{1, 2, 3}
	for _, n := range []*memberlist.Node{long, big, nowhere, member("")} {
		if d.NotifyAlive(n) == nil {
			t.Errorf("%.10q is taken, with %d bytes of metadata at %v", n.Name, len(n.Meta), n.Addr)
		}
	}
}

// TestAListOfAllMembersFits: the maximum number of members, each of maximum size.
func TestAListOfAllMembersFits(t *testing.T) {
	type state struct { // memberlist's own
		Name        string
		Addr        []byte
		Port        uint16
		Meta        []byte
		Incarnation uint32
		State       int
		Vsn         []uint8
	}
	var text []byte
	longest := state{
		Name: strings.Repeat("x", maxName), Addr: make([]byte, 16), Port: 65535,
		Meta:        make([]byte, memberlist.MetaMaxSize),
		Incarnation: 1<<32 - 1, State: 3, Vsn: []byte{1, 5, 2, 255, 255, 255},
	}
	if err := codec.NewEncoderBytes(&text, &codec.MsgpackHandle{}).Encode(longest); err != nil {
		t.Fatal(err)
	}
	if room := 100; len(text)*MaxMembers+room > maxStream {
		t.Errorf("a member takes %d bytes, %d of them do not fit into a stream", len(text), MaxMembers)
	}
}

// TestProbesAreSmall: names of any length could be written to the log.
func TestProbesAreSmall(t *testing.T) {
	type ping struct { // memberlist's own, in indirect pings too
		SeqNo      uint32
		Target     []byte
		Port       uint16
		Node       string
		Nack       bool
		SourceAddr []byte
		SourcePort uint16
		SourceNode string
	}
	message := func(kind byte, name string) []byte {
		t.Helper()
		var text []byte
		err := codec.NewEncoderBytes(&text, &codec.MsgpackHandle{}).Encode(ping{
			SeqNo: 1<<32 - 1, Target: make([]byte, 16), Port: 65535, Node: name, SourceAddr: make([]byte, 16), SourcePort: 65535, SourceNode: name,
		})
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{kind}, text...)
	}
	for _, kind := range []byte{pingType, indirectPingType, ackType, nackType} {
		if why := validatePacket(message(kind, strings.Repeat("x", maxName)), 0); why != "" {
			t.Errorf("type %d with the longest names: %s", kind, why)
		}
		if validatePacket(message(kind, strings.Repeat("x", 4*maxName)), 0) == "" {
			t.Errorf("type %d with names of %d bytes is taken", kind, 4*maxName)
		}
	}
	long := strings.Repeat("x", 4*maxName)
	if validateRequest(message(pingType, "a"), 0) != "" || validateRequest(message(pingType, long), 0) == "" {
		t.Error("pings of streams")
	}
	for _, kind := range []byte{ackType, errorType} {
		if validateReply(message(kind, "a"), 0) != "" || validateReply(message(kind, long), 0) == "" {
			t.Errorf("replies of type %d", kind)
		}
	}
}

func FuzzPacket(f *testing.F) {
	f.Add([]byte{compoundType, 2, 0, 1, 0, 1, pingType, aliveType})
	f.Add([]byte{crcType, 0, 0, 0, 0, pingType})
	f.Add([]byte{pushPullType, 0x83})
	f.Add(compress(f, encodeMessage(f, pingType, testPing{1}), 0))
	f.Add(compress(f, encodeMessage(f, pushPullType, exchangeHeader{Nodes: 1}, testMember{"a", 1}), 0))
	f.Fuzz(func(t *testing.T, plain []byte) {
		validatePacket(plain, 1)
		validatePlainPacket(plain, 1)
		for _, validate := range []validator{validateRequest, validateReply} {
			accepted := validate(plain, 1) == ""
			message, kept, why := readsPlain(plain, validate)
			if why == "" && (len(message) > maxStream || validate(message, 1) != "") || kept > maxUnauthenticatedBytesOfAddress+maxStream {
				t.Errorf("%q: %d bytes are kept", message, kept)
			}
			if accepted && why != "" {
				t.Errorf("it is accepted if it is encrypted, and refused in the clear: %s", why)
			}
		}
	})
}

func BenchmarkForgedPacket(b *testing.B) {
	key := newKey()
	ring, err := memberlist.NewKeyring([][]byte{key}, key)
	if err != nil {
		b.Fatal(err)
	}
	g := newGuard(Options{Label: "fermata", ring: ring, Now: time.Now})
	packet := gossiptest.Labelled("fermata", append([]byte{1}, make([]byte, 1400)...))
	b.ReportAllocs()
	for b.Loop() {
		g.checkPacket(packet, netip.Addr{})
	}
}

// awaitSharedState waits until three nodes know each other, and what two of them then publish.
func awaitSharedState(t *testing.T, a, b, c *Cluster) {
	t.Helper()
	for _, n := range []*Cluster{a, b, c} {
		awaitMembers(t, n, "a b c")
	}
	for _, n := range []*Cluster{a, b} {
		if err := n.PublishRedisState(RedisState{Aside: true, Blind: -1}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []*Cluster{a, b, c} {
		awaitMembers(t, n, "a- b- c")
	}
}
