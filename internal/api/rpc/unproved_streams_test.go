package rpc

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// openStreams opens streams of a connection until it has no place for one more.
func (l *lobby) openStreams(c *connection, life time.Duration) (streams []context.Context) {
	for {
		ctx, ok := l.openStream(context.Background(), c, life)
		if !ok {
			return streams
		}
		streams = append(streams, ctx)
	}
}

// TestUnprovedStreams: each connection has a few, all have a bound together, and whoever
// has most of them makes room.
func TestUnprovedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLobby(1000, time.Hour)
		var all []context.Context
		var first *connection
		for i := range allUnprovedStreams / unprovedStreams {
			c, err := l.arrive(fmt.Sprint("10.0.0.", i%2)) // of two addresses
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = c
			}
			streams := l.openStreams(c, time.Minute)
			if len(streams) != unprovedStreams {
				t.Fatalf("a connection has %d streams, want %d", len(streams), unprovedStreams)
			}
			all = append(all, streams...)
		}
		honest, err := l.arrive("10.0.9.9")
		if err != nil {
			t.Fatal(err)
		}
		mine := l.openStreams(honest, time.Minute)
		if len(mine) != unprovedStreams || l.streams.count != allUnprovedStreams {
			t.Fatalf("%d streams of somebody else, %d of all", len(mine), l.streams.count)
		}
		ended := 0
		for _, ctx := range all {
			if ctx.Err() != nil {
				ended++
			}
		}
		if ended != unprovedStreams || mine[0].Err() != nil {
			t.Errorf("%d streams were ended for %d others", ended, unprovedStreams)
		}

		// A stream that is over gives its place back, and so does a proof.
		over, end := context.WithCancel(context.Background())
		fresh, _ := l.arrive("10.0.9.10")
		if _, ok := l.openStream(over, fresh, time.Minute); !ok || len(fresh.streams) != 1 {
			t.Fatal("a stream finds no place")
		}
		end()
		synctest.Wait()
		if len(fresh.streams) != 0 {
			t.Error("a stream that is over has a place")
		}
		honest.proved(&proof{})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if mine[0].Err() != nil {
			t.Error("a stream ended although its connection was proved")
		}
		for i, ctx := range all {
			if ctx.Err() == nil {
				t.Fatalf("stream %d of a stranger lives for ever", i)
			}
		}
		if l.streams.count != 0 || len(l.streams.hosts) != 0 || len(first.streams) != 0 {
			t.Errorf("%d places are taken in the end", l.streams.count)
		}
	})
}

const watchMethod = grpc_health_v1.Health_Watch_FullMethodName

// bigHeaders are 11 KiB once decoded, and a few bytes on the wire when repeated.
func bigHeaders() (fields []hpack.HeaderField) {
	for range 4 {
		fields = append(fields, hpack.HeaderField{Name: "a-bin", Value: strings.Repeat("A", 3800)})
	}
	return fields
}

// TestFloodOfUnprovedStreams: strangers open as many streams as HTTP/2 lets them, of what
// is open to everybody and of what is not. A node keeps few of them, and answers others.
func TestFloodOfUnprovedStreams(t *testing.T) {
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
				eventually(t, "a connection that goes on is closed", w.holds(func() bool { return w.closed }))
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

// TestUnprovedStreamsAreHeld: strangers that stay within what a connection may have are
// held to the bound of all, and leave places for others.
func TestUnprovedStreamsAreHeld(t *testing.T) {
	const connections = 2 * allUnprovedStreams / unprovedStreams
	f := serveFlooded(t, Options{}, &floodJobs{}, nil)
	defer f.others(t)()
	before := heap()
	for range connections {
		w := f.rude(t, 0)
		for range unprovedStreams {
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
	if more := heap() - before; more > connections*perConnection+allUnprovedStreams*perStream {
		t.Errorf("%d MiB are kept", more>>20)
	}
}

// TestUnprovedStreamsEnd: a watch of a stranger ends, and so does a call that sends no
// message, while the connection goes on. Those of who is known do not.
func TestUnprovedStreamsEnd(t *testing.T) {
	f := serveFlooded(t, Options{UnprovedAge: time.Second}, &floodJobs{}, nil)
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
	eventually(t, "the time of strangers is over", stranger.holds(func() bool { return stranger.closed }))
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
	eventually(t, "all calls reach a handler", func() bool { return jobs.inside.Load() == calls })
	close(hold)
	for _, id := range ids {
		if code := w.answer(t, id); code != codes.OK {
			t.Errorf("a call with a good token: %s", code)
		}
	}

	remote := f.rude(t, window)
	ids = nil
	for range unprovedStreams + 1 {
		id, err := remote.open("remote", fermatav1.JobService_CreateJob_FullMethodName)
		remote.must(t, err)
		ids = append(ids, id)
	}
	if code := remote.answer(t, ids[unprovedStreams]); code != codes.ResourceExhausted {
		t.Errorf("a call beyond the bound: %s", code)
	}
	for _, id := range ids[:unprovedStreams] {
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
	for i := range maxRefusals {
		id, err := w.open("", method, soon)
		w.must(t, err)
		if code := w.answer(t, id); code != codes.Unauthenticated {
			t.Fatalf("refusal %d: %s", i, code)
		}
	}
	_, _ = w.open("", method, soon)
	eventually(t, "one refusal more closes the connection", w.holds(func() bool { return w.closed }))

	many := f.rude(t, window)
	for range unprovedStreams + 1 {
		if _, err := many.open("bad", method, late); err != nil {
			break
		}
	}
	eventually(t, "a far deadline beyond the bound closes the connection", many.holds(func() bool { return many.closed }))
}

// TestPeersHaveBoundsOfStreams: the port for nodes says what it takes at once.
func TestPeersHaveBoundsOfStreams(t *testing.T) {
	options, err := PeerCredentials(nil, Options{})
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
	for id, want := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: maxStreams, http2.SettingMaxHeaderListSize: maxHeaderBytes} {
		if have, _ := settings.Value(id); have != want {
			t.Errorf("%s is %d, want %d", id, have, want)
		}
	}
}
