package membership

import (
	"bytes"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/fermata-io/fermata/internal/lib/librarylog"
)

func TestOptions(t *testing.T) {
	o, err := Options{Name: "a", BindPort: 7946}.withDefaults()
	if err != nil || o.BindAddr != DefaultBindAddr || o.RejoinEvery != DefaultRejoinEvery || o.AdvertisePort != 7946 {
		t.Fatalf("defaults: %+v, %v", o, err)
	}
	bad := map[string]Options{
		"no name":            {},
		"bind to a name":     {BindAddr: "localhost"},
		"advertise a name":   {AdvertiseAddr: "node-1"},
		"port":               {BindPort: 65536},
		"advertised port":    {AdvertisePort: -1},
		"missing keys":       {KeyFile: "/does/not/exist"},
		"short key":          {KeyFile: keyFile(t, []byte("short"))},
		"negative polls":     {KeysEvery: -time.Second},
		"not of its own":     {BindAddr: "127.0.0.1", Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		"long label":         {Label: strings.Repeat("x", 256)},
		"long addresses":     {GRPCAddr: strings.Repeat("x", 250), PeerAddr: strings.Repeat("y", 250)},
		"negative intervals": {RejoinEvery: -time.Second},
	}
	for name, o := range bad {
		t.Run(name, func(t *testing.T) {
			if name != "no name" {
				o.Name = "a"
			}
			if _, err := New(o); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestConfig(t *testing.T) {
	cluster, err := New(Options{
		Name: "a", KeyFile: keyFile(t, []byte("0123456789abcdef")), Label: "l",
		Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.o.memberlistConfig(cluster.nodes)
	for text, want := range map[string]bool{"10.1.2.3": true, "11.1.2.3": false, "fd00::1": true,
		"::ffff:10.1.2.3": true, "fe80::1": false} {
		if err := c.IPAllowed(net.ParseIP(text)); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	if c.EnableCompression || !c.GossipVerifyIncoming || !c.GossipVerifyOutgoing || c.Label != "l" {
		t.Errorf("an encrypted cluster compresses or does not verify: %+v", c)
	}
	if (Options{}).memberlistConfig(cluster.nodes).EnableCompression {
		t.Error("a cluster without a key compresses")
	}
	if c.SkipInboundLabelCheck {
		t.Error("labels are not checked")
	}
}

func TestMeta(t *testing.T) {
	m, err := decodeMeta(encodeMeta(nodeMeta{GRPC: "g:1", Peer: "p:2", Process: "x", Version: "1.2.3", Events: 1001}))
	if err != nil || m != (nodeMeta{GRPC: "g:1", Peer: "p:2", Process: "x", Version: "1.2.3", Events: 1001}) {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := decodeMeta([]byte(`{"g":"g:1","later":{"x":1}}`)); err != nil || m.GRPC != "g:1" {
		t.Errorf("unknown fields: %+v, %v", m, err)
	}
	if _, err := decodeMeta([]byte("\x00")); err == nil {
		t.Error("garbage was read")
	}
}

func TestLogBridge(t *testing.T) {
	var out bytes.Buffer
	handler := slog.NewTextHandler(&out, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})
	l := log.New(&logBridge{logger: slog.New(handler)}, "", log.LstdFlags)
	for _, c := range []struct{ line, want string }{
		{"[DEBUG] memberlist: Stream connection from=1.2.3.4:5",
			`level=DEBUG msg="message of memberlist" text="Stream connection from=1.2.3.4:5"`},
		{"[INFO] memberlist: Suspect b", `level=INFO msg="message of memberlist" text="Suspect b"`},
		{"[WARN] memberlist: Refuting", `level=WARN msg="message of memberlist" text=Refuting`},
		{"[ERR] Failed to shutdown [x]: y", `level=ERROR msg="message of memberlist" text="Failed to shutdown [x]: y"`},
		{"[ERROR] memberlist: z", `level=ERROR msg="message of memberlist" text=z`},
		{"[WARN] memberlist: Got ping for unexpected node 'a\nb'", `level=WARN msg="message of memberlist" text="Got ping for unexpected node 'a\nb'"`},
		{"[WARN] memberlist: " + strings.Repeat("x", 1<<20), `level=WARN msg="message of memberlist" text=` + strings.Repeat("x", librarylog.MaxText)},
	} {
		out.Reset()
		l.Print(c.line)
		if got := strings.TrimSpace(out.String()); got != c.want {
			t.Errorf("%q became %q", c.line, got)
		}
	}
	if level, text := parseLogLine("no level here"); level != slog.LevelInfo || text != "no level here" {
		t.Errorf("a line without level: %v %q", level, text)
	}
}

func TestSplitTarget(t *testing.T) {
	for _, c := range []struct{ target, host, port string }{
		{"node-1:7000", "node-1", "7000"},
		{"node-1.svc", "node-1.svc", "9"},
		{"10.0.0.1", "10.0.0.1", "9"},
		{"[::1]:7000", "::1", "7000"},
		{"[::1]", "::1", "9"},
		{"::1", "::1", "9"},
	} {
		if host, port := splitTarget(c.target, "9"); host != c.host || port != c.port {
			t.Errorf("%q: host %q port %q", c.target, host, port)
		}
	}
}

// TestLostNodes: a node that departs is lost, unless its process has announced that it leaves, before or after gossip
// reports its departure. A node of an earlier build, which announces nothing, is never lost.
func TestLostNodes(t *testing.T) {
	o, _ := Options{Name: "a"}.withDefaults()
	d := newDelegate(o, func() {})
	node := func(name, process string, features Feature) *memberlist.Node {
		return &memberlist.Node{Name: name, Addr: net.IPv4(10, 0, 0, 1), Port: 1,
			Meta: encodeMeta(nodeMeta{GRPC: "g", Peer: "p", Process: process, Features: features})}
	}
	lost := func() (names []string) {
		for _, m := range d.listNodes(time.Now()) {
			if !m.LostAt.IsZero() {
				names = append(names, m.Name)
			}
		}
		return names
	}
	for _, name := range []string{"dies", "leaves", "leaves-late", "returns", "returned"} {
		d.NotifyJoin(node(name, name+"/1", AllFeatures))
	}
	d.NotifyJoin(node("earlier", "earlier/1", FeatureRunPayloads))
	if names := lost(); names != nil {
		t.Errorf("members are lost: %q", names)
	}
	d.recordLeaving("leaves")
	d.recordLeaving("returned")
	d.NotifyUpdate(node("leaves", "leaves/1", AllFeatures))
	for _, name := range []string{"dies", "leaves", "leaves-late", "returns"} {
		d.NotifyLeave(node(name, name+"/1", AllFeatures))
	}
	d.NotifyLeave(node("earlier", "earlier/1", FeatureRunPayloads))
	d.recordLeaving("leaves-late")
	d.recordLeaving("unknown")
	// The next process of a name has announced nothing.
	d.NotifyJoin(node("returned", "returned/2", AllFeatures))
	d.NotifyLeave(node("returned", "returned/2", AllFeatures))
	d.NotifyJoin(node("returns", "returns/2", AllFeatures))
	if names := lost(); !slices.Equal(names, []string{"dies", "returned"}) {
		t.Errorf("lost nodes: %q", names)
	}
}

func TestDepartedAreBounded(t *testing.T) {
	o, _ := Options{Name: "a"}.withDefaults()
	d := newDelegate(o, func() {})
	node := func(i int) *memberlist.Node {
		return &memberlist.Node{Name: string(rune('A' + i)), Addr: net.IPv4(10, 0, 0, byte(i)), Port: 1,
			Meta: encodeMeta(nodeMeta{GRPC: "g", Peer: "p"})}
	}
	d.NotifyJoin(node(0))
	for i := 1; i <= maxDeparted+10; i++ {
		d.NotifyJoin(node(i))
		d.NotifyLeave(node(i))
	}
	now := time.Now()
	if n := len(d.listNodes(now)); n != maxDeparted+1 {
		t.Errorf("%d nodes remembered", n)
	}
	if list := d.listNodes(now.Add(departedRetention + time.Minute)); len(list) != 1 || list[0].State != StateAlive ||
		list[0].Addr != "10.0.0.0:1" {
		t.Errorf("later: %+v", list)
	}
}
