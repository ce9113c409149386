package rpc

import (
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const watchMethod = grpc_health_v1.Health_Watch_FullMethodName

// bigHeaders are 4.5 KiB once decoded, and a few bytes on the wire when repeated.
func bigHeaders() (fields []hpack.HeaderField) {
	for range 2 {
		fields = append(fields, hpack.HeaderField{Name: "a-bin", Value: strings.Repeat("A", 3000)})
	}
	return fields
}

// TestFloodOfUnauthenticatedStreams: strangers open as many streams as HTTP/2 lets them, of what
// is open to everybody and of what is not. A node keeps few of them, and answers others.
func TestFloodOfUnauthenticatedStreams(t *testing.T) {
	const connections, streams = 24, 250
	for name, open := range map[string]func(w *rude) (uint32, error){
		"health": func(w *rude) (uint32, error) { return w.open("", watchMethod) },
		"health with long headers": func(w *rude) (uint32, error) {
			return w.open("", watchMethod, bigHeaders()...)
		},
		"token without a message": func(w *rude) (uint32, error) {
			return w.open("bad", fermatav1.JobService_GetJob_FullMethodName)
		},
	} {
		t.Run(name, func(t *testing.T) {
			counted := prometheus.NewRegistry()
			f := serveFlooded(t, Options{Registerer: counted}, &floodJobs{}, nil)
			defer f.others(t)()
			before := heap()
			var flood []*rude
			for range connections {
				w := f.rude(t, window)
				flood = append(flood, w)
				for range streams {
					id, err := open(w)
					if err == nil {
						err = w.framer.WriteData(id, false, nil)
					}
					if err != nil {
						break // closed by then
					}
				}
			}
			for _, w := range flood {
				redistest.Eventually(t, patience, "a connection that goes on is closed", w.holds(func() bool { return w.closed }))
			}
			if n := deniedFor(t, counted, "refused"); n != connections {
				t.Errorf("%d connections were closed for what was refused on them, want %d", n, connections)
			}
			probe := f.rude(t, window)
			if code := probe.call(t, "", grpc_health_v1.Health_Check_FullMethodName, nil); code != codes.OK {
				t.Errorf("health of somebody else: %s", code)
			}
			if more := heap() - before; more > connections*(256<<10) {
				t.Errorf("%d KiB are kept for %d connections", more>>10, connections)
			}
		})
	}
}

// TestFloodOfOpenStreams: whoever calls, a connection has few streams of what is open to
// everybody, with few headers. Other calls go on beside them where the identity has places left.
func TestFloodOfOpenStreams(t *testing.T) {
	rule := allow(authz.Worker, "*", "few")
	rule.Limits.MaxOpenCalls = 5
	const perConnection, streams = 8, 100
	for name, c := range map[string]struct {
		options     Options
		token       string
		connections int
		most        int  // streams of all connections
		beside      bool // other calls go on
	}{
		"a role":              {Options{}, "many", 4, 4 * perConnection, true},
		"no role":             {Options{Authority: newAuthority(t, authz.Limits{}, allow(authz.Viewer, "*", "else", "healthy"))}, "nobody", 4, 4 * perConnection, false},
		"a limit of calls":    {Options{Authority: newAuthority(t, authz.Limits{}, rule, allow(authz.Viewer, "*", "healthy"))}, "few", 4, 5, false},
		"no credential asked": {Options{Limits: authz.Limits{Rate: 1e6, Burst: 1e6}}, "", 1, perConnection, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := serveFlooded(t, c.options, &floodJobs{}, nil)
			defer f.others(t)()
			deadlines := [][]hpack.HeaderField{nil, {{Name: "grpc-timeout", Value: "5S"}}, {{Name: "grpc-timeout", Value: "99H"}}}
			open := 0
			var connections []*rude
			for range c.connections {
				w := f.rude(t, window)
				if code := w.call(t, c.token, fermatav1.AccessService_WhoAmI_FullMethodName, nil); code != codes.OK {
					t.Fatal(code)
				}
				connections = append(connections, w)
			}
			for i, w := range connections {
				var ids []uint32
				for n := range streams {
					if c.token == "nobody" && n == guard.MaxRefusedCalls/2 {
						break // beyond, the connection is closed
					}
					more := deadlines[n*i%len(deadlines)]
					if c.token == "nobody" {
						more = nil
					}
					id, err := w.open("", watchMethod, more...)
					w.must(t, err, w.framer.WriteData(id, true, prefix(0)))
					ids = append(ids, id)
				}
				// What is refused is refused in the order of the headers, or within its time.
				redistest.Eventually(t, patience, "calls beyond the bound end", w.holds(func() bool { return len(w.status)-1 >= len(ids)-min(perConnection, c.most-open) }))
				w.mu.Lock()
				for _, id := range ids {
					switch code, over := w.status[id]; {
					case !over:
						open++
					case code != codes.ResourceExhausted && code != codes.Canceled:
						t.Errorf("a call beyond the bound: %s", code)
					}
				}
				w.mu.Unlock()
				if code := w.call(t, c.token, fermatav1.AccessService_WhoAmI_FullMethodName, nil); (code == codes.OK) != c.beside {
					t.Errorf("a call beside: %s", code)
				}
			}
			if open > c.most || open < min(c.most, perConnection) {
				t.Errorf("%d streams are open, want at most %d", open, c.most)
			}
		})
	}
}

// TestOpenCallsReturnTheirPlaces: a connection that looks at health for ever is served, and
// headers that are long are not.
func TestOpenCallsReturnTheirPlaces(t *testing.T) {
	f := serveFlooded(t, Options{}, &floodJobs{}, nil)
	w := f.rude(t, window)
	for i := range 10 * guard.MaxOpenMethodCalls {
		if code := w.call(t, "many", grpc_health_v1.Health_Check_FullMethodName, nil); code != codes.OK {
			t.Fatalf("check %d: %s", i, code)
		}
	}
	id, err := w.open("many", watchMethod, bigHeaders()...)
	w.must(t, err, w.framer.WriteData(id, true, prefix(0)))
	if code := w.answer(t, id); code != codes.ResourceExhausted {
		t.Errorf("long headers: %s", code)
	}
}

// TestConnectionsWithoutARoleAreBounded: an identity that no rule gives a role is bounded as
// a stranger is, though its calls are answered; one that gets a role is not from then on.
func TestConnectionsWithoutARoleAreBounded(t *testing.T) {
	authority := newAuthority(t, authz.Limits{}, allow(authz.Viewer, "*", "else"))
	f := serveFlooded(t, Options{Authority: authority}, &floodJobs{}, nil)
	const whoAmI = fermatav1.AccessService_WhoAmI_FullMethodName
	held := func(w *rude) (held int) {
		var ids []uint32
		for range 3 * guard.MaxUnauthenticatedStreams {
			id, err := w.open("late", fermatav1.JobService_GetJob_FullMethodName)
			w.must(t, err)
			ids = append(ids, id)
		}
		if code := w.call(t, "late", grpc_health_v1.Health_Check_FullMethodName, nil); code != codes.OK && code != codes.ResourceExhausted {
			t.Fatal(code)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, id := range ids {
			if _, over := w.status[id]; !over {
				held++
			}
		}
		return held
	}
	w := f.rude(t, window)
	for range 2 {
		if code := w.call(t, "late", whoAmI, nil); code != codes.OK {
			t.Fatal(code)
		}
	}
	asked := authority.asked.Load()
	for range 10 {
		if code := w.call(t, "late", whoAmI, nil); code != codes.OK {
			t.Fatal(code)
		}
	}
	if n := authority.asked.Load() - asked; n != 0 {
		t.Errorf("a proof without a role was made anew %d times", n)
	}
	if n := held(w); n > guard.MaxUnauthenticatedStreams {
		t.Errorf("%d streams without a message are held for an identity without a role, want at most %d", n, guard.MaxUnauthenticatedStreams)
	}
	authority.decide(t, allow(authz.Viewer, "*", "late"))
	fresh := f.rude(t, window)
	if code := fresh.call(t, "late", whoAmI, nil); code != codes.OK {
		t.Fatal(code)
	}
	if n := held(fresh); n != 3*guard.MaxUnauthenticatedStreams {
		t.Errorf("%d streams are held for an identity with a role", n)
	}
}

// deniedFor is how much was denied for a reason.
func deniedFor(t *testing.T, g prometheus.Gatherer, reason string) (n int) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if family.GetName() == "fermata_access_denied_total" && l.GetName() == "reason" && l.GetValue() == reason {
					n += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}

// TestUnauthenticatedStreamsAreHeld: strangers that stay within what a connection may have are
// held to the bound of all, and leave places for others.
func TestUnauthenticatedStreamsAreHeld(t *testing.T) {
	const connections = 2 * guard.MaxUnauthenticatedStreamsTotal / guard.MaxUnauthenticatedStreams
	f := serveFlooded(t, Options{}, &floodJobs{}, nil)
	defer f.others(t)()
	before := heap()
	for range connections {
		w := f.rude(t, 0)
		for range guard.MaxUnauthenticatedStreams {
			id, err := w.open("", watchMethod)
			w.must(t, err, w.framer.WriteData(id, true, prefix(0)))
		}
	}
	probe := f.rude(t, window)
	for range 3 {
		if code := probe.call(t, "", grpc_health_v1.Health_Check_FullMethodName, nil); code != codes.OK {
			t.Errorf("health while all places are taken: %s", code)
		}
	}
	const perConnection, perStream = 128 << 10, 16 << 10
	if more := heap() - before; more > connections*perConnection+guard.MaxUnauthenticatedStreamsTotal*perStream {
		t.Errorf("%d MiB are kept", more>>20)
	}
}

// TestUnauthenticatedStreamsEnd: a watch of a stranger ends, and so does a call that sends no
// message, while the connection goes on. Those of who is known do not.
func TestUnauthenticatedStreamsEnd(t *testing.T) {
	f := serveFlooded(t, Options{UnauthenticatedAge: time.Second}, &floodJobs{}, nil)
	w := f.rude(t, window)
	if code := w.call(t, "", grpc_health_v1.Health_Check_FullMethodName, nil); code != codes.OK {
		t.Fatal(code)
	}
	mute, err := w.open("bad", fermatav1.JobService_GetJob_FullMethodName)
	w.must(t, err)
	if code := w.answer(t, mute); code != codes.Canceled {
		t.Errorf("a call without a message: %s", code)
	}
	watch := w.start(t, "", watchMethod, nil)
	if code := w.answer(t, watch); code != codes.Canceled {
		t.Errorf("a watch of a stranger: %s", code)
	}
	known := f.rude(t, window)
	watch = known.start(t, "flood", watchMethod, nil)
	stranger := f.rude(t, window)
	redistest.Eventually(t, patience, "the time of strangers is over", stranger.holds(func() bool { return stranger.closed }))
	known.mu.Lock()
	defer known.mu.Unlock()
	if _, over := known.status[watch]; over || known.closed {
		t.Error("the watch of somebody known has ended")
	}
}

// TestManyCallsAtOnceOnANewConnection: a credential that needs no question to anybody else
// counts from the first headers on. With one that does, calls beyond the bound of strangers
// are to be repeated.
func TestManyCallsAtOnceOnANewConnection(t *testing.T) {
	const calls = 100
	hold := make(chan struct{})
	jobs := &floodJobs{hold: hold}
	f := serveFlooded(t, Options{}, jobs, nil)
	body := createBody(t)
	w := f.rude(t, window)
	var ids []uint32
	for range calls {
		ids = append(ids, w.start(t, "many", fermatav1.JobService_CreateJob_FullMethodName, body))
	}
	redistest.Eventually(t, patience, "all calls reach a handler", func() bool { return jobs.inside.Load() == calls })
	close(hold)
	for _, id := range ids {
		if code := w.answer(t, id); code != codes.OK {
			t.Errorf("a call with a good token: %s", code)
		}
	}

	remote := f.rude(t, window)
	ids = nil
	for range guard.MaxUnauthenticatedStreams + 1 {
		id, err := remote.open("remote", fermatav1.JobService_CreateJob_FullMethodName)
		remote.must(t, err)
		ids = append(ids, id)
	}
	if code := remote.answer(t, ids[guard.MaxUnauthenticatedStreams]); code != codes.ResourceExhausted {
		t.Errorf("a call beyond the bound: %s", code)
	}
	for _, id := range ids[:guard.MaxUnauthenticatedStreams] {
		remote.must(t, remote.framer.WriteData(id, true, append(prefix(len(body)), body...)))
		if code := remote.answer(t, id); code != codes.OK {
			t.Errorf("a call within the bound: %s", code)
		}
	}
}

// TestCallsThatAreRefusedByTheirHeaders: gRPC keeps the deadline of each until it is over,
// so that few are refused that way, and none whose deadline is far.
func TestCallsThatAreRefusedByTheirHeaders(t *testing.T) {
	f := serveFlooded(t, Options{}, &floodJobs{}, nil)
	w := f.rude(t, window)
	const method = fermatav1.JobService_CreateJob_FullMethodName
	soon, late := hpack.HeaderField{Name: "grpc-timeout", Value: "5S"}, hpack.HeaderField{Name: "grpc-timeout", Value: "99999999H"}
	id, err := w.open("", method, late)
	w.must(t, err)
	body := createBody(t)
	w.must(t, w.framer.WriteData(id, true, append(prefix(len(body)), body...)))
	if code := w.answer(t, id); code != codes.Unauthenticated {
		t.Errorf("a call without a credential and with a far deadline: %s", code)
	}
	for i := range guard.MaxRefusedCalls {
		id, err := w.open("", method, soon)
		w.must(t, err)
		if code := w.answer(t, id); code != codes.Unauthenticated {
			t.Fatalf("refusal %d: %s", i, code)
		}
	}
	_, _ = w.open("", method, soon)
	redistest.Eventually(t, patience, "one refusal more closes the connection", w.holds(func() bool { return w.closed }))

	many := f.rude(t, window)
	for range guard.MaxUnauthenticatedStreams + 1 {
		if _, err := many.open("bad", method, late); err != nil {
			break
		}
	}
	redistest.Eventually(t, patience, "a far deadline beyond the bound closes the connection", many.holds(func() bool { return many.closed }))
}

// TestCallsOfPeersAreCheckedByTheirHeaders: without TLS, a call without the key of the nodes is refused before its request
// has arrived, and its connection stays bounded as those of strangers are.
func TestCallsOfPeersAreCheckedByTheirHeaders(t *testing.T) {
	key, self := guard.PeerKey("the key"), guard.Callee{Name: "n"}
	check, err := guard.PeerKeyCheck(key, self, guard.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	options, err := guard.PeerServerOptions(nil, check, guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	peers := grpc.NewServer(options...)
	fermatav1.RegisterPeerServiceServer(peers, fermatav1.UnimplementedPeerServiceServer{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = peers.Serve(listener) })
	t.Cleanup(func() { peers.Stop(); serving.Wait() })
	f := &flooded{address: listener.Addr().String()}
	const method = fermatav1.PeerService_DescribeNode_FullMethodName
	proof := func(key guard.PeerKey) hpack.HeaderField {
		return hpack.HeaderField{Name: guard.PeerProofHeader, Value: key.CallerProof(self)}
	}
	nonce := hpack.HeaderField{Name: guard.PeerNonceHeader, Value: "nonce"}

	node, stranger := f.rude(t, window), f.rude(t, window)
	id, err := node.open("", method, proof(key), nonce)
	node.must(t, err, node.framer.WriteData(id, true, prefix(0)))
	if code := node.answer(t, id); code != codes.Unimplemented {
		t.Errorf("a call with the key: %s", code)
	}
	for i := range guard.MaxRefusedCalls {
		id, err := stranger.open("", method, proof(guard.PeerKey("another key")), nonce)
		stranger.must(t, err)
		if code := stranger.answer(t, id); code != codes.Unauthenticated { // its request has not arrived
			t.Fatalf("call %d without the key: %s", i, code)
		}
	}
	_, _ = stranger.open("", method)
	redistest.Eventually(t, patience, "one refusal more closes the connection", stranger.holds(func() bool { return stranger.closed }))
}

// TestPeersHaveBoundsOfStreams: the port for nodes says what it takes at once.
func TestPeersHaveBoundsOfStreams(t *testing.T) {
	options, err := guard.PeerServerOptions(nil, nil, guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	frame, err := framer.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		t.Fatalf("%T comes first", frame)
	}
	for id, want := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: guard.MaxStreamsPerConnection, http2.SettingMaxHeaderListSize: guard.MaxHeaderBytes} {
		if have, _ := settings.Value(id); have != want {
			t.Errorf("%s is %d, want %d", id, have, want)
		}
	}
}
