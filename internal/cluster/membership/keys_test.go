package membership

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/test/gossiptest"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/stalltest"
)

// keyFile writes a file with these keys, in this order.
func keyFile(t *testing.T, keys ...[]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	writeKeys(t, path, keys...)
	return path
}

// writeKeys replaces the file as a whole, as an operator should.
func writeKeys(t *testing.T, path string, keys ...[]byte) {
	t.Helper()
	text := "# gossip\n"
	for _, k := range keys {
		text += base64.StdEncoding.EncodeToString(k) + "\n\n"
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func newKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return key
}

// logBuffer keeps log records for queries.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *logBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *logBuffer) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), text)
}

func (s *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestKeysAreRead(t *testing.T) {
	one, two := newKey(), newKey()[:16]
	keys, err := ReadKeys(keyFile(t, one, two))
	if err != nil || len(keys) != 2 || !bytes.Equal(keys[0], one) || !bytes.Equal(keys[1], two) {
		t.Errorf("%x, %v", keys, err)
	}
	for want, text := range map[string]string{
		"line 3": "# one\n\nnot base64!\n", "16, 24 or 32": base64.StdEncoding.EncodeToString([]byte("short")),
		"could be guessed": base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"holds no key":     "# none\n", "longer than": strings.Repeat("#\n", maxKeyFile),
	} {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadKeys(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		} else if strings.Contains(err.Error(), "not base64!") {
			t.Errorf("%v shows what the file holds", err)
		}
	}
}

func TestInstallKeysReplacesTheRing(t *testing.T) {
	a, b, c, d := newKey(), newKey(), newKey(), newKey()
	keyring, err := memberlist.NewKeyring([][]byte{a}, a)
	if err != nil {
		t.Fatal(err)
	}
	for i, keys := range [][][]byte{{a, b}, {b, a}, {b}, {b, c, d}, {c, d}, {a, d}, {c, a, b, d}, {d}, {d, d}} {
		if err := orderKeys(keyring, keys); err != nil {
			t.Fatal(err)
		}
		for _, key := range keyring.GetKeys()[:min(len(keys), len(keyring.GetKeys()))] {
			if !containsKey(keys, key) {
				t.Errorf("%d: a key that has to go stands before one that stays", i)
			}
		}
		if err := installKeys(keyring, keys); err != nil {
			t.Fatal(err)
		}
		got := keyring.GetKeys()
		if !bytes.Equal(got[0], keys[0]) || len(obsoleteKeys(keyring, keys)) > 0 {
			t.Fatalf("%d: %d keys, want %d", i, len(got), len(keys))
		}
		for _, k := range keys {
			if !containsKey(got, k) {
				t.Fatalf("%d: a key is missing", i)
			}
		}
	}
}

// TestKeysAreReplacedUnderGossip takes the three steps node by node: after each of them gossip of every node
// reaches every other, and no packet is lost because of a key.
func TestKeysAreReplacedUnderGossip(t *testing.T) {
	t.Parallel()
	old, fresh := newKey(), newKey()
	var files []string
	logs := &logBuffer{}
	secure := func(o *Options) {
		o.KeyFile, o.KeysEvery, o.Logger = keyFile(t, old), 5*time.Millisecond, logs.logger()
		files = append(files, o.KeyFile)
	}
	machine, begun := stalltest.Start(t), time.Now()
	a, b, c := startThreeNodes(t, secure)
	nodes := []*Cluster{a, b, c}
	var mu sync.Mutex
	fewest := 3
	for _, n := range nodes {
		n.Subscribe(func(v sharding.View) {
			mu.Lock()
			fewest = min(fewest, len(v.Members))
			mu.Unlock()
		})
	}
	for i, step := range [][][]byte{{old, fresh}, {fresh, old}, {fresh}} {
		aside := i%2 == 0 // something to tell
		for j, n := range nodes {
			writeKeys(t, files[j], step...)
			redistest.Eventually(t, patience, "the node has the keys", func() bool {
				got := n.o.ring.GetKeys()
				return len(got) == len(step) && bytes.Equal(got[0], step[0])
			})
			if err := n.PublishRedisState(RedisState{Aside: aside, Blind: -1}); err != nil {
				t.Fatal(err)
			}
			for _, other := range nodes {
				redistest.Eventually(t, patience, "the others receive it",
					func() bool { m, _ := other.View().Member(n.o.Name); return m.Withdrawn == aside })
			}
		}
	}
	for _, sign := range []string{"Decrypt packet failed", "key file is invalid", "is plain text"} {
		if n := logs.count(sign); n > 0 {
			t.Errorf("%q stands %d times in the log", sign, n)
		}
	}
	mu.Lock()
	// A node that stood still for long counts as dead, as it should.
	if stood := machine.Longest(begun); fewest < 3 && stood < probeInterval {
		t.Errorf("a node saw no more than %d members, the machine stood still for %v at most", fewest, stood)
	}
	mu.Unlock()
	late := startNode(t, "x", func(o *Options) { o.KeyFile = keyFile(t, old) })
	if n, err := late.startGossip().Join([]string{a.LocalAddr()}); n != 0 || err == nil {
		t.Errorf("somebody with the old key joined %d nodes, %v", n, err)
	}
	startNode(t, "d", func(o *Options) { o.KeyFile = files[0] }, joining(a.LocalAddr()))
	awaitMembers(t, c, "a- b- c- d")
}

func TestInvalidKeyFileChangesNothing(t *testing.T) {
	t.Parallel()
	logs, path := &logBuffer{}, keyFile(t, newKey())
	a := startNode(t, "a", func(o *Options) {
		o.KeyFile, o.KeysEvery, o.Logger = path, 5*time.Millisecond,
			logs.logger()
	})
	before := a.o.ring.GetPrimaryKey()
	for _, text := range []string{"junk", ""} {
		logged := logs.count("key file is invalid")
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, patience, "a log record of the invalid file", func() bool { return logs.count("key file is invalid") > logged })
	}
	if got := a.o.ring.GetKeys(); len(got) != 1 || !bytes.Equal(got[0], before) {
		t.Error("the ring has changed")
	}
	fresh := newKey()
	writeKeys(t, path, fresh)
	redistest.Eventually(t, patience, "the repaired file is taken", func() bool { return bytes.Equal(a.o.ring.GetPrimaryKey(), fresh) })
	if n := logs.count("key file is invalid"); n != 2 {
		t.Errorf("told %d times of two broken files", n)
	}
}

// TestForgedPacketsChangeNothing: an outsider announces that b has left, unencrypted, with another key, and with
// another cluster's label. The same message with the right key and label is accepted, so nothing else was wrong
// with it.
func TestForgedPacketsChangeNothing(t *testing.T) {
	t.Parallel()
	key, reg := newKey(), prometheus.NewRegistry()
	a, _, _ := startThreeNodes(t, func(o *Options) {
		o.KeyFile = keyFile(t, key)
		if o.Name == "a" {
			o.Registerer = reg
		}
	})
	conn, err := net.Dial("udp", a.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	label := a.o.Label
	before := a.View().Version
	for _, forged := range [][]byte{
		gossiptest.Labelled(label, gossiptest.Departure("b", 1000)), // in the clear
		gossiptest.Departure("b", 1000),
		gossiptest.Labelled(label, gossiptest.Sealed(t, newKey(), label, gossiptest.Departure("b", 1000))),
		gossiptest.Labelled(label, gossiptest.Sealed(t, key, "other",
			gossiptest.Departure("b", 1000))), // replayed from there
		gossiptest.Labelled("other", gossiptest.Sealed(t, key, "other", gossiptest.Departure("b", 1000))),
		gossiptest.Sealed(t, key, "", gossiptest.Departure("b", 1000)),
	} {
		told := refusals(t, reg)["packet"]
		if _, err := conn.Write(forged); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, patience, "the packet is refused", func() bool { return refusals(t, reg)["packet"] > told })
	}
	if v := a.View().Version; v != before {
		t.Errorf("the view changed: %d, was %d", v, before)
	}
	if _, err := conn.Write(gossiptest.Labelled(label,
		gossiptest.Sealed(t, key, label, gossiptest.Departure("b", 1000)))); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, patience, "a holder of the key is believed", func() bool { return a.View().Version > before })
	awaitMembers(t, a, "a b c") // b refutes
}

// TestForgedStateCanBeRefuted: a holder of the key publishes a state of b with the greatest accepted
// incarnation. b refutes it, and its refutation is accepted. The bound is by the clock that nodes share, and not by that
// of a host, which may differ from the others'.
func TestForgedStateCanBeRefuted(t *testing.T) {
	t.Parallel()
	key, reg := newKey(), prometheus.NewRegistry()
	now := func() time.Time { return time.Now().Add(time.Hour) }
	a, b, _ := startThreeNodes(t, func(o *Options) {
		o.KeyFile, o.Now = keyFile(t, key), now
		if o.Name == "a" {
			o.Registerer = reg
		}
	})
	conn, err := net.Dial("udp", a.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	send := func(message []byte) {
		t.Helper()
		if _, err := conn.Write(gossiptest.Labelled(a.o.Label,
			gossiptest.Sealed(t, key, a.o.Label, message))); err != nil {
			t.Fatal(err)
		}
	}
	at, meta := netip.MustParseAddrPort(b.LocalAddr()), []byte(`{"g":"evil.example:443"}`)
	for _, most := range []uint32{math.MaxUint32, math.MaxUint32 - 1,
		maxIncarnation(now()) + 100*incarnationsPerSecond} {
		for _, message := range [][]byte{gossiptest.Claim("b", most, at, meta), gossiptest.Departure("b", most)} {
			before := refusals(t, reg)["packet content"]
			send(message)
			redistest.Eventually(t, patience, "it is refused", func() bool { return refusals(t, reg)["packet content"] == before+1 })
		}
	}
	if memberNames(a.View()) != "a b c" {
		t.Fatalf("a sees %q", memberNames(a.View()))
	}
	is := func(address string) func() bool {
		return func() bool { m, _ := a.View().Member("b"); return m.GRPCAddr == address }
	}
	version := a.View().Version
	send(gossiptest.Claim("b", maxIncarnation(now()), at, meta))
	redistest.Eventually(t, patience, "a has believed it", func() bool { return a.View().Version > version })
	redistest.Eventually(t, patience, "b has refuted it", is("b:9000"))
	version = a.View().Version
	send(gossiptest.Departure("b", maxIncarnation(now())))
	redistest.Eventually(t, patience, "a has believed it", func() bool { return a.View().Version > version })
	awaitMembers(t, a, "a b c")
	redistest.Eventually(t, patience, "b is where it was", is("b:9000"))
}

// TestNodesOfOtherNetworksStayOut: the stranger has the key, and is on this host.
func TestNodesOfOtherNetworksStayOut(t *testing.T) {
	t.Parallel()
	a := startNode(t, "a", func(o *Options) { o.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	startNode(t, "x", func(o *Options) { o.BindAddr = "127.0.0.2" }, joining(a.LocalAddr()))
	b := startNode(t, "b", joining(a.LocalAddr()))
	awaitMembers(t, a, "a b")
	awaitMembers(t, b, "a b")
}
