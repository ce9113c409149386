package httphandler

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fermata-io/fermata/internal/lib/egress"
	"github.com/fermata-io/fermata/worker"
)

// nameServer answers DNS questions over UDP. Every question of a name gets the
// next of its answers, the last one for ever.
type nameServer struct {
	conn net.PacketConn
	mu   sync.Mutex
	left map[string][][]netip.Addr
	rest []netip.Addr // of all other names
	done sync.WaitGroup
}

func serveNames(t *testing.T, names map[string][][]netip.Addr, rest ...netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn, left: names, rest: rest}
	s.done.Go(s.serve)
	t.Cleanup(func() {
		conn.Close()
		s.done.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func (s *nameServer) serve() {
	b := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(b)
		if err != nil {
			return
		}
		if answer := s.answer(b[:n]); answer != nil {
			_, _ = s.conn.WriteTo(answer, from) // the client asks again
		}
	}
}

// answer makes the answer to one question: header, the question, records.
func (s *nameServer) answer(q []byte) []byte {
	const header = 12
	var labels []string
	at := header
	for at < len(q) && q[at] != 0 {
		labels = append(labels, string(q[at+1:at+1+int(q[at])]))
		at += 1 + int(q[at])
	}
	kind := binary.BigEndian.Uint16(q[at+1:])
	end := at + 5
	out := append([]byte{}, q[:end]...)
	binary.BigEndian.PutUint16(out[2:], 0x8580) // an answer, with authority
	binary.BigEndian.PutUint16(out[6:], 0)
	binary.BigEndian.PutUint32(out[8:], 0)
	for _, a := range s.next(strings.ToLower(strings.Join(labels, ".")), kind) {
		if a.Is4() != (kind == 1) {
			continue
		}
		out = append(out, 0xc0, header, byte(kind>>8), byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(a.BitLen()/8))
		out = append(out, a.AsSlice()...)
		out[7]++
	}
	return out
}

// next is what a name resolves to. A client asks for both kinds of addresses: only
// that for IPv4 counts as a question.
func (s *nameServer) next(name string, kind uint16) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, known := s.left[name]
	if !known {
		return s.rest
	}
	if kind == 1 && len(left) > 1 {
		s.left[name] = left[1:]
	}
	return left[0]
}

// sink listens on every address of this machine and counts who connects, but for
// connections to an address that may be reached.
func sink(t *testing.T, open ...string) (port string, connections *atomic.Int32) {
	t.Helper()
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	connections = &atomic.Int32{}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(conn.LocalAddr().String())
			if !slices.Contains(open, strings.TrimPrefix(host, "::ffff:")) {
				connections.Add(1)
			}
			conn.Close()
		}
	})
	t.Cleanup(func() {
		listener.Close()
		done.Wait()
	})
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port), connections
}

func portOf(t *testing.T, text string) uint16 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(n)
}

// get makes a request; the URL may be anything.
func get(t *testing.T, h worker.Handler, target string) error {
	t.Helper()
	payload, err := json.Marshal(map[string]string{"url": target, "timeout": "10s"})
	if err != nil {
		t.Fatal(err)
	}
	return h(t.Context(), task(string(payload)))
}

// inside are URLs that lead to what is not public, as far as the attacker is
// concerned. PORT stands for the sink's. Every name resolves to this machine.
var inside = []string{
	// Plainly.
	"http://127.0.0.1:PORT/", "http://localhost:PORT/", "http://LOCALHOST:PORT/", "http://localhost.:PORT/", "http://127.0.0.1.:PORT/",
	"http://127.255.255.254:PORT/", "http://0.0.0.0:PORT/", "http://0:PORT/", "http://[::]:PORT/", "http://[::1]:PORT/",
	"http://[0:0:0:0:0:0:0:1]:PORT/", "http://[0000::0001]:PORT/",
	// Other ways to write IPv4.
	"http://2130706433:PORT/", "http://017700000001:PORT/", "http://0x7f000001:PORT/", "http://0x7f.0.0.1:PORT/", "http://0177.0.0.1:PORT/",
	"http://127.1:PORT/", "http://127.0.1:PORT/", "http://0x7f.1:PORT/", "http://127.0.0.1%00:PORT/", "http://00000127.0.0.1:PORT/",
	"http://4294967297:PORT/", "http://1.0.0.127.in-addr.arpa:PORT/",
	// IPv4 inside of IPv6.
	"http://[::ffff:127.0.0.1]:PORT/", "http://[::ffff:7f00:1]:PORT/", "http://[::127.0.0.1]:PORT/", "http://[::ffff:0:7f00:1]:PORT/",
	"http://[64:ff9b::7f00:1]:PORT/", "http://[64:ff9b:1::7f00:1]:PORT/", "http://[2002:7f00:1::]:PORT/", "http://[2001:0:7f00:1::]:PORT/",
	"http://[::ffff:169.254.169.254]:PORT/", "http://[64:ff9b::a9fe:a9fe]:PORT/", "http://[2002:a9fe:a9fe::]:PORT/",
	// Zones.
	"http://[fe80::1%25lo]:PORT/", "http://[::1%25lo]:PORT/", "http://[fe80::1%25eth0]:PORT/", "http://[ff02::1%25lo]:PORT/",
	// Where clouds and clusters keep what is theirs.
	"http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/latest/meta-data/", "http://169.254.170.2/v2/credentials",
	"http://100.100.100.200/latest/", "http://192.0.0.192/", "http://168.63.129.16/", "http://metadata.google.internal/", "http://instance-data/",
	"http://10.0.0.1:PORT/", "http://172.16.0.1:PORT/", "http://192.168.0.1:PORT/", "http://100.64.0.1:PORT/", "http://[fd00::1]:PORT/",
	"http://[fc00::1]:PORT/", "http://[fec0::1]:PORT/", "http://198.18.0.1:PORT/", "http://255.255.255.255:PORT/", "http://224.0.0.1:PORT/",
	"http://240.0.0.1:PORT/", "http://192.0.2.1:PORT/", "http://[2001:db8::1]:PORT/", "http://[100::1]:PORT/", "http://[ff02::1]:PORT/",
	"http://0251.0376.0251.0376:PORT/", "http://2852039166:PORT/", "http://kubernetes.default.svc:PORT/",
	// Users, escapes, slashes: who is the host?
	"http://example.com@127.0.0.1:PORT/", "http://example.com:80@127.0.0.1:PORT/", "http://example.com%40127.0.0.1:PORT/",
	"http://127.0.0.1:PORT@localhost:PORT/", "http://example.com#@127.0.0.1:PORT/", "http://127.0.0.1:PORT#@example.com/", "http://127.0.0.1:PORT?@example.com/",
	`http://127.0.0.1:PORT\@example.com/`, "http://example.com\\@127.0.0.1:PORT/", "http:///127.0.0.1:PORT/", "http:127.0.0.1:PORT/",
	"//127.0.0.1:PORT/", "http://%31%32%37.0.0.1:PORT/", "http://127%2e0%2e0%2e1:PORT/", "http://127.0.0.1:PORT\t/", " http://127.0.0.1:PORT/",
	"http://127.0.0.1\n:PORT/", "http://127.0.0.1:0PORT/", "http://127.0.0.1:+PORT/", "HTTP://127.0.0.1:PORT/",
	// Names.
	"http://①②⑦.⓪.⓪.①:PORT/", "http://127。0。0。1:PORT/", "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:PORT/", "http://xn--localhost-:PORT/", "http://lo\u00adcalhost:PORT/",
	"http://localtest.me:PORT/", "http://127.0.0.1.nip.io:PORT/", "http://a.b.c.d.e.f.g:PORT/", "http://-:PORT/", "http://_:PORT/",
	// Other protocols.
	"file:///etc/passwd", "gopher://127.0.0.1:PORT/_x", "ftp://127.0.0.1:PORT/", "dict://127.0.0.1:PORT/", "unix:///var/run/docker.sock",
	"ldap://127.0.0.1:PORT/", "jar:http://127.0.0.1:PORT/!/", "ws://127.0.0.1:PORT/", "https://127.0.0.1:PORT/", "https://[::1]:PORT/",
}

func TestPrivateAddressesAreNotReached(t *testing.T) {
	if len(inside) < 60 {
		t.Fatalf("%d URLs", len(inside))
	}
	port, connections := sink(t)
	names := serveNames(t, nil, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"))
	// The port is not what keeps them out.
	h := newHandler(Options{Ports: []uint16{80, portOf(t, port)}}, names).handle
	for _, target := range inside {
		err := get(t, h, strings.ReplaceAll(target, "PORT", port))
		switch {
		case err == nil:
			t.Errorf("%q was reached", target)
		case strings.HasPrefix(err.Error(), "payload: "), strings.Contains(err.Error(), "not allowed here, or no such name"),
			strings.Contains(err.Error(), "invalid URL port"), strings.Contains(err.Error(), "invalid port"):
		default:
			t.Errorf("%q was not refused: %v", target, err)
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}

	// The control: what is allowed arrives, so the sink sees.
	open := newHandler(Options{Allow: loopback}, names).handle
	if err := get(t, open, "http://anything.example:"+port+"/"); err == nil {
		t.Error("the sink answered")
	}
	if connections.Load() == 0 {
		t.Error("the sink does not see connections")
	}
}

// TestRedirectsCannotLeadInside: the same list, behind a redirect of a server that
// may be reached, and behind a chain of them.
func TestRedirectsCannotLeadInside(t *testing.T) {
	port, connections := sink(t, "127.0.0.1")
	s := target(t)
	names := serveNames(t, nil, netip.MustParseAddr("127.0.0.2"))
	h := newHandler(Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Ports: []uint16{80, portOf(t, port)}}, names).handle
	other := strings.Replace("http://127.0.0.2:PORT/", "PORT", port, 1)
	for _, goal := range append([]string{other, "http://name.example:PORT/", "//127.0.0.2:PORT/"}, inside...) {
		goal = strings.ReplaceAll(goal, "PORT", port)
		hop := s.URL + "/to?url=" + url.QueryEscape(goal)
		for _, start := range []string{hop, s.URL + "/to?url=" + url.QueryEscape(hop)} {
			if err := get(t, h, start); err == nil {
				t.Errorf("%q was reached by redirect", goal)
			}
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
}

// TestRebinding: a name that resolves to something else by the next time is judged
// by what is connected to.
func TestRebinding(t *testing.T) {
	port, connections := sink(t, "127.0.0.3")
	var asked atomic.Int32
	outside := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, "outside")
	}))
	// The same port on an address of its own: 127.0.0.3 stands for the world outside.
	listener, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	outside.Listener.Close()
	outside.Listener = listener
	outside.Start()
	defer outside.Close()
	_, outsidePort, _ := net.SplitHostPort(listener.Addr().String())

	out, in := netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("127.0.0.1")
	names := serveNames(t, map[string][][]netip.Addr{
		"turns.example": {{out}, {in}, {out}, {in}},
		"both.example":  {{in, out}},
		"mixed.example": {{out, in}},
	})
	h := newHandler(Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.3/32")}}, names).handle
	for i, want := range []bool{true, false, true, false} {
		if err := get(t, h, "http://turns.example:"+outsidePort+"/"); (err == nil) != want {
			t.Errorf("turn %d: %v, want reached %v", i+1, err, want)
		}
	}
	// Of several addresses, those that may not be reached are passed over.
	if err := get(t, h, "http://both.example:"+outsidePort+"/"); err != nil {
		t.Error(err)
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("%d requests arrived outside, want 3", n)
	}
	// The one outside does not answer: that inside is no second choice.
	if err := get(t, h, "http://mixed.example:"+port+"/"); err == nil {
		t.Error("reached")
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections arrived inside", n)
	}
}

func TestMetadataAddressesNeedTheirOwnNetwork(t *testing.T) {
	for _, test := range []struct {
		allow, address string
		want           bool
	}{
		{"169.254.0.0/16", "169.254.169.254:80", false},
		{"169.254.0.0/16", "169.254.1.1:80", true},
		{"0.0.0.0/0", "169.254.169.254:80", false},
		{"0.0.0.0/0", "[::ffff:169.254.169.254]:80", false},
		{"fd00::/8", "[fd00:ec2::254]:80", false},
		{"fd00::/8", "[fd00:ec2::254%eth0]:80", false},
		{"168.63.129.16/31", "168.63.129.16:80", false},
		{"169.254.169.254/32", "169.254.169.254:80", true},
		{"fd00:ec2::254/128", "[fd00:ec2::254]:80", true},
		// By a translator, which may well be allowed.
		{"64:ff9b::/96", "[64:ff9b::a9fe:a9fe]:80", false},
		{"64:ff9b::/96", "[64:ff9b::808:808]:80", true},
		{"64:ff9b:1::/48", "[64:ff9b:1::a83f:8110]:80", false},
		{"64:ff9b:1::/48", "[64:ff9b:1:a9fe:a9:fe00::]:80", false},
		{"64:ff9b:1::/48", "[64:ff9b:1:0:a9:fea9:fe00:0]:80", false},
		{"fd00::/8", "[fd00:1:a9fe:a9fe::]:80", false},
		{"64:ff9b::a9fe:a9fe/128", "[64:ff9b::a9fe:a9fe]:80", true},
		{"169.254.169.254/32", "[64:ff9b::a9fe:a9fe]:80", false},
		{"::/0", "[2002:a9fe:a9fe::1]:80", false},
		{"::/0", "[::169.254.169.254]:80", false},
		{"::/0", "[::1]:80", true},
		// Of clouds that have others.
		{"fe80::/10", "[fe80::a9fe:a9fe%eth0]:80", false},
		{"fe80::/10", "[fe80::1%eth0]:80", true},
		{"fd00::/8", "[fd00:42::42]:80", false},
		{"169.254.0.0/16", "169.254.42.42:80", false},
	} {
		check := egress.Guard{Allow: []netip.Prefix{netip.MustParsePrefix(test.allow)}, Ports: DefaultPorts()}.Control
		if err := check(t.Context(), "tcp", test.address, nil); (err == nil) != test.want {
			t.Errorf("%s with %s: %v", test.address, test.allow, err)
		}
	}
}

func TestPorts(t *testing.T) {
	check := egress.Guard{Allow: nil, Ports: DefaultPorts()}.Control
	for port := range 1 << 16 {
		err := check(t.Context(), "tcp", fmt.Sprintf("93.184.216.34:%d", port), nil)
		if want := port == 80 || port == 443; (err == nil) != want {
			t.Fatalf("port %d: %v", port, err)
		}
	}
}

// TestNoProxy: a proxy of the environment would dial in the handler's stead, past
// its guard.
func TestNoProxy(t *testing.T) {
	port, connections := sink(t)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.1:"+port)
	}
	names := serveNames(t, nil, netip.MustParseAddr("10.0.0.1"))
	h := newHandler(Options{}, names).handle
	for _, target := range []string{"http://name.example/", "https://name.example/"} {
		if err := get(t, h, target); err == nil || !strings.Contains(err.Error(), "not allowed here") {
			t.Errorf("%s: %v", target, err)
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
}

// FuzzGuard: whatever address is connected to, it is one that is public by what
// the standard library knows, or allowed.
func FuzzGuard(f *testing.F) {
	allowed := netip.MustParsePrefix("10.1.0.0/16")
	check := egress.Guard{Allow: []netip.Prefix{allowed}, Ports: DefaultPorts()}.Control
	for _, s := range []string{"93.184.216.34:443", "[::ffff:10.1.2.3]:80", "[fe80::1%eth0]:80", "10.1.2.3:1", "[2606:4700::1111]:443", "127.0.0.1:80", "x", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if check(t.Context(), "tcp", address, nil) != nil {
			return
		}
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			t.Fatalf("%q was let through", address)
		}
		a := ap.Addr().Unmap()
		if allowed.Contains(a) {
			return
		}
		if a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || a.IsInterfaceLocalMulticast() || ap.Port() != 80 && ap.Port() != 443 {
			t.Fatalf("%q was let through", address)
		}
	})
}
