package membership

import (
	"bytes"
	"compress/lzw"
	"encoding/binary"
	"io"
	"math"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/test/gossiptest"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// encodeMessage is a message as memberlist encodes it: its type and values.
func encodeMessage(t testing.TB, kind byte, values ...any) []byte {
	t.Helper()
	message := bytes.NewBuffer([]byte{kind})
	for _, v := range values {
		if err := codec.NewEncoder(message, &codec.MsgpackHandle{}).Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	return message.Bytes()
}

// compress compresses a message and then a number of zeros, as memberlist does.
func compress(t testing.TB, message []byte, zeros int) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := lzw.NewWriter(&packed, lzw.LSB, 8)
	if _, err := io.Copy(w, io.MultiReader(bytes.NewReader(message), bytes.NewReader(make([]byte, zeros)))); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return encodeMessage(t, compressedType, struct {
		Algo uint8
		Buf  []byte
	}{0, packed.Bytes()})
}

type (
	testPing   struct{ SeqNo uint32 }
	testMember struct {
		Name        string
		Incarnation uint32
	}
	testError struct{ Error string }
)

// longText is the first bytes of a text of a length that does not follow.
func longText(announced uint32) []byte { return binary.BigEndian.AppendUint32([]byte{0xdb}, announced) }

// bombs are messages that are short, and of 39 MiB when they are decompressed.
func bombs(t testing.TB) map[string][]byte {
	t.Helper()
	const size = 39 << 20
	name := append([]byte("\x81\xa4Name"), longText(size)...)
	return map[string][]byte{
		"zeros":                compress(t, nil, size),
		"behind a message":     compress(t, encodeMessage(t, pingType, testPing{1}), size),
		"behind an update":     compress(t, gossiptest.Departure("b", 1), size),
		"in the name":          compress(t, append([]byte{pingType}, name...), size),
		"the name of a member": compress(t, append(encodeMessage(t, pushPullType, exchangeHeader{Nodes: 1}), name...), size),
	}
}

// readsPlain reads an unencrypted message of a stream, and returns how many bytes it reserved.
func readsPlain(text []byte, validate validator) (message []byte, kept int, why refusal) {
	keep := func(n int) bool { kept += n; return kept <= maxUnauthenticatedBytesOfAddress }
	message, why = readPlain(bytes.NewReader(text), 1, keep, validate)
	return message, kept, why
}

// TestPlainBombsAreRefused: without a key, a message of a few kilobytes that memberlist would decompress to 39 MiB
// is refused after a few kilobytes.
func TestPlainBombsAreRefused(t *testing.T) {
	reg := prometheus.NewRegistry()
	a := startNode(t, "a", func(o *Options) { o.Registerer = reg })
	g := a.gossip.transport.(*hostTransport).guard
	ours := gossiptest.Labelled(a.o.Label, nil)
	for name, bomb := range bombs(t) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, kept, why := readsPlain(bomb, validateRequest); why == "" || kept > maxUnauthenticatedBytesOfAddress {
			t.Errorf("%s: a request is refused with %q, %d bytes were reserved", name, why, kept)
		}
		if _, _, why := readsPlain(bomb, validateReply); why == "" {
			t.Errorf("%s: a reply is accepted", name)
		}
		if why := validatePlainPacket(bomb, 1); why == "" {
			t.Errorf("%s: a packet is accepted", name)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d KiB were allocated for %d KiB", name, n>>10, len(bomb)>>10)
		}

		stream, counted := openPlainStream(t, a), refusals(t, reg)["stream"]
		sendRaw(stream, ours, bomb)
		if got := awaitClose(t, stream); len(got) > 0 {
			t.Errorf("%s: the sender is answered %q", name, got)
		}
		redistest.Eventually(t, patience, "the stream is counted",
			func() bool { return refusals(t, reg)["stream"] == counted+1 })
	}
	small := compress(t, nil, maxPacket+1)
	if why := g.checkPacket(append(bytes.Clone(ours), small...), netip.Addr{}); why != refusedSize {
		t.Errorf("a packet of %d bytes is refused with %q", len(small), why)
	}
	if isGossiping(a) {
		t.Error("a bomb has made the node gossip")
	}
}

func openPlainStream(t *testing.T, a *Cluster) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", a.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestPlainMessagesAreBounded: without a key, the guard reads the messages that nodes send, with or without
// compression (memberlist receives them without), and nothing that is longer or has another form.
func TestPlainMessagesAreBounded(t *testing.T) {
	t.Parallel()
	ping := encodeMessage(t, pingType, testPing{7})
	list := func(header exchangeHeader, members ...any) []byte {
		return encodeMessage(t, pushPullType, append([]any{header}, members...)...)
	}
	nested, long := bytes.Repeat([]byte("\x81\xa1a"), 5000), strings.Repeat("x", maxProbe)
	one := list(exchangeHeader{Nodes: 1}, testMember{"a", 2})
	two := list(exchangeHeader{Nodes: 2}, testMember{"a", 1}, testMember{"b", 1})
	for name, c := range map[string]struct {
		text     []byte
		validate validator
		want     refusal
	}{
		"a ping":                         {text: ping},
		"a list":                         {text: two},
		"a reply":                        {text: encodeMessage(t, ackType, testPing{7}), validate: validateReply},
		"an error":                       {text: encodeMessage(t, errorType, testError{"no"}), validate: validateReply},
		"a list as a reply":              {text: two, validate: validateReply},
		"no list as long as announced":   {text: list(exchangeHeader{Nodes: 2}, testMember{"a", 1}), want: refusedCut},
		"more members than there may be": {text: list(exchangeHeader{Nodes: MaxMembers + 1}), want: refusedContent},
		"a negative number of members":   {text: list(exchangeHeader{Nodes: -1}), want: refusedContent},
		"a million members":              {text: list(exchangeHeader{Nodes: 1 << 20}), want: refusedContent},
		"other data":                     {text: list(exchangeHeader{UserStateLen: 1}), want: refusedContent},
		"an incarnation above the bound": {text: one, want: refusedContent},
		"a text of 4 GiB":                {text: append([]byte("\x00\x81\xa1N"), longText(1<<32-1)...), want: refusedSize},
		"a map of 4 billion entries":     {text: []byte("\x00\xdf\xff\xff\xff\xff"), want: refusedContent},
		"an array of 4 billion entries":  {text: []byte("\x00\x81\xa4Node\xdd\xff\xff\xff\xff"), want: refusedContent},
		"a map in a map":                 {text: []byte("\x00\x81\xa4Node\x81\xa1a\x01"), want: refusedContent},
		"maps in maps":                   {text: append([]byte{0}, nested...), want: refusedContent},
		"an extension":                   {text: []byte("\x00\x81\xa4Node\xc9\xff\xff\xff\xff\x01"), want: refusedContent},
		"a number":                       {text: []byte("\x00\x05"), want: refusedContent},
		"data of a user":                 {text: encodeMessage(t, 8, testPing{20 << 20}), want: refusedContent},
		"a long ping":                    {text: encodeMessage(t, pingType, testError{long}), want: refusedContent},
		"an encrypted message":           {text: []byte{encryptedType, 0, 0, 1, 0}, want: refusedKey},
	} {
		t.Run(name, func(t *testing.T) {
			validate := c.validate
			if validate == nil {
				validate = validateRequest
			}
			message, kept, why := readsPlain(c.text, validate)
			if why != c.want || why == "" && !bytes.Equal(message, c.text) {
				t.Errorf("refused with %q, want %q; %d bytes are passed on", why, c.want, len(message))
			}
			if kept > 2*firstFrameRoom {
				t.Errorf("%d bytes are reserved for %d", kept, len(c.text))
			}
			packed := compress(t, c.text, 0)
			message, kept, why = readsPlain(packed, validate)
			if (why == "") != (c.want == "") || why == "" && !bytes.Equal(message, c.text) {
				t.Errorf("compressed: refused with %q, want %q; %d bytes are passed on", why, c.want, len(message))
			}
			if kept > 4*firstFrameRoom {
				t.Errorf("compressed: %d bytes are reserved for %d", kept, len(c.text))
			}
			if _, _, why := readsPlain(compress(t, packed, 0), validate); why == "" {
				t.Error("compressed twice: accepted")
			}
		})
	}
	if message, _, why := readsPlain(append(bytes.Clone(two), ping...), validateRequest); why != "" ||
		!bytes.Equal(message, two) {
		t.Errorf("two messages: %q, %d bytes are passed on, want those of the first", why, len(message))
	}
	algorithm := bytes.Replace(compress(t, ping, 0), []byte("Algo\x00"), []byte("Algo\x01"), 1)
	if _, _, why := readsPlain(algorithm, validateRequest); why != refusedContent {
		t.Errorf("another algorithm: %q", why)
	}
}

// TestPlainPacketsAreValidated: without a key too, a node refuses packets that no node sends, and states that another
// node could not refute.
func TestPlainPacketsAreValidated(t *testing.T) {
	t.Parallel()
	g := newGuard(Options{Label: "l", Now: time.Now})
	ping := encodeMessage(t, pingType, testPing{7})
	parts := append([]byte{compoundType, 2, 0, byte(len(ping)), 0, byte(len(ping))}, append(bytes.Clone(ping), ping...)...)
	checked := func(packet []byte) []byte { return append([]byte{crcType, 1, 2, 3, 4}, packet...) }
	forged := gossiptest.Departure("b", math.MaxUint32)
	for name, c := range map[string]struct {
		packet []byte
		want   refusal
	}{
		"a ping":                   {ping, ""},
		"parts":                    {parts, ""},
		"parts, with a checksum":   {checked(parts), ""},
		"compressed":               {compress(t, parts, 0), ""},
		"compressed, checksum":     {checked(compress(t, parts, 0)), ""},
		"a departure":              {gossiptest.Departure("b", 1), ""},
		"that cannot be refuted":   {forged, refusedContent},
		"the same, compressed":     {compress(t, forged, 0), refusedContent},
		"compressed twice":         {compress(t, compress(t, ping, 0), 0), refusedContent},
		"a checksum, compressed":   {compress(t, checked(ping), 0), refusedContent},
		"compressed, in parts":     {append([]byte{compoundType, 1, 0, 2}, compressedType, 0x82), refusedContent},
		"nothing, compressed":      {compress(t, nil, 0), refusedContent},
		"cut":                      {compress(t, parts, 0)[:24], refusedContent},
		"data of a user":           {[]byte{8, 0x81}, refusedContent},
		"a list":                   {encodeMessage(t, pushPullType, exchangeHeader{}), refusedContent},
		"maps in maps":             {append([]byte{aliveType}, bytes.Repeat([]byte("\x81\xa1a"), 1000)...), refusedContent},
		"a text that is not there": {append([]byte("\x04\x81\xa4Meta"), longText(math.MaxUint32)...), refusedContent},
	} {
		if why := g.checkPacket(gossiptest.Labelled("l", c.packet), netip.Addr{}); why != c.want {
			t.Errorf("%s: refused with %q, want %q", name, why, c.want)
		}
	}
}

// TestPlainStreamsCountUntilTheyEnd: their senders are unknown after the first message too.
func TestPlainStreamsCountUntilTheyEnd(t *testing.T) {
	t.Parallel()
	g := newGuard(Options{Now: time.Now})
	ours, theirs := net.Pipe()
	defer theirs.Close()
	s, why := g.admitStream(ours, netip.MustParseAddr("10.0.0.1"))
	if why != "" {
		t.Fatal(why)
	}
	ping := encodeMessage(t, pingType, testPing{7})
	go sendRaw(theirs, ping)
	if why := s.authenticate(); why != "" {
		t.Fatal(why)
	}
	if g.mu.unauthenticated == 0 || s.pendingElement != nil {
		t.Errorf("%d bytes count, it waits: %v", g.mu.unauthenticated, s.pendingElement != nil)
	}
	if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, ping) {
		t.Errorf("%q, %v", got, err)
	}
	if err := s.Close(); err != nil || g.mu.unauthenticated != 0 || g.mu.streams != 0 {
		t.Errorf("%v; %d bytes and %d streams count", err, g.mu.unauthenticated, g.mu.streams)
	}
}

// TestNodesThatCompressGossip: nodes of the previous build compress what they send without a key.
func TestNodesThatCompressGossip(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	counted := func(o *Options) { o.Registerer = reg }
	a := startNode(t, "a", counted)
	b := startNode(t, "b", func(o *Options) {
		transport, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{"127.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		o.Transport = transport
	})
	b.gossip.Lock()
	b.gossip.config.EnableCompression = true
	b.gossip.Unlock()
	// It sends a list to a, and a reply to c.
	if _, err := b.startGossip().Join([]string{a.LocalAddr()}); err != nil {
		t.Fatal(err)
	}
	c := startNode(t, "c", joining(b.LocalAddr()))
	awaitSharedState(t, a, b, c)
	if refused := refusals(t, reg); refused["packet"]+refused["stream"] > 0 {
		t.Errorf("refused: %v", refused)
	}
}
