package acceptance

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// flood is many connections to a node that mean no good, from several addresses. Each is
// made anew when the node closes it.
type flood struct {
	addr          string
	open, refused atomic.Int64
	ctx           context.Context
	stop          context.CancelFunc
	all           sync.WaitGroup
}

// floodKind is what a connection does: most send nothing, as that costs least.
func floodKind(i int) func(ctx context.Context, conn net.Conn) error {
	switch {
	case i%20 == 1:
		return strangersCalls
	case i%50 == 2:
		return strangersBytes
	case i%50 == 4:
		return strangersStreams
	case i%2 == 0:
		return holdAfterGreeting
	}
	return holdSilent
}

// newFlood opens connections until it is stopped, from addresses other than 127.0.0.1.
func newFlood(t *testing.T, addr string, connections int) *flood {
	t.Helper()
	f := &flood{addr: addr}
	f.ctx, f.stop = context.WithCancel(t.Context())
	for i := range connections {
		from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%20))}}
		f.all.Go(func() { f.keepConnections(from, floodKind(i)) })
	}
	t.Cleanup(f.endFlood)
	return f
}

func (f *flood) endFlood() {
	f.stop()
	f.all.Wait()
}

func (f *flood) keepConnections(from *net.Dialer, kind func(context.Context, net.Conn) error) {
	for f.ctx.Err() == nil {
		conn, err := from.DialContext(f.ctx, "tcp", f.addr)
		if err == nil {
			f.open.Add(1)
			stop := context.AfterFunc(f.ctx, func() { _ = conn.Close() })
			_ = kind(f.ctx, conn) // ends when the node closes it
			stop()
			_ = conn.Close()
			f.open.Add(-1)
			f.refused.Add(1)
		}
		select { // not to measure how fast this machine opens connections
		case <-f.ctx.Done():
		case <-time.After(5*time.Second + rand.N(10*time.Second)):
		}
	}
}

func holdSilent(_ context.Context, conn net.Conn) error {
	_, err := conn.Read(make([]byte, 1))
	return err
}

// holdAfterGreeting sends what every client of HTTP/2 sends first, and no more.
func holdAfterGreeting(ctx context.Context, conn net.Conn) error {
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return err
	}
	f := http2.NewFramer(conn, conn)
	err := f.WriteSettings()
	for err == nil && ctx.Err() == nil {
		var frame http2.Frame
		frame, err = f.ReadFrame()
		if ping, ok := frame.(*http2.PingFrame); ok && !ping.IsAck() {
			err = f.WritePing(true, ping.Data) // or it would be taken for dead
		}
	}
	return err
}

// writePreface begins HTTP/2, and reads and discards what the node sends.
func writePreface(conn net.Conn) (*http2.Framer, error) {
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return nil, err
	}
	f := http2.NewFramer(conn, conn)
	go func() {
		for {
			if _, err := f.ReadFrame(); err != nil {
				_ = conn.Close()
				return
			}
		}
	}()
	return f, f.WriteSettings()
}

func strangersHeaders() []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: fermatav1.JobService_CreateJob_FullMethodName}, {Name: ":authority", Value: "x"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}, {Name: "authorization", Value: "Bearer guessed"},
	} {
		_ = e.WriteField(h) // to memory
	}
	return block.Bytes()
}

// strangersCalls guesses tokens.
func strangersCalls(ctx context.Context, conn net.Conn) error {
	f, err := writePreface(conn)
	pace := time.NewTicker(time.Second)
	defer pace.Stop()
	for id := uint32(1); err == nil && ctx.Err() == nil; id += 2 {
		err = errors.Join(
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: strangersHeaders(), EndHeaders: true}),
			f.WriteData(id, true, binary.BigEndian.AppendUint32([]byte{0}, 0)))
		awaitTick(ctx, pace)
	}
	return err
}

// strangersStreams opens as many streams as HTTP/2 lets it, with long headers.
func strangersStreams(ctx context.Context, conn net.Conn) error {
	f, err := writePreface(conn)
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for id := uint32(1); err == nil && ctx.Err() == nil; id += 2 {
		block.Reset()
		for _, h := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/grpc.health.v1.Health/Watch"}, {Name: ":authority", Value: "x"},
			{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}, {Name: "a-bin", Value: strings.Repeat("A", 3800)},
		} {
			_ = e.WriteField(h) // to memory
		}
		err = errors.Join(
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}),
			f.WriteData(id, true, binary.BigEndian.AppendUint32([]byte{0}, 0)))
		awaitTick(ctx, pace)
	}
	return err
}

// awaitTick waits for the next tick, or for the end.
func awaitTick(ctx context.Context, pace *time.Ticker) {
	select {
	case <-pace.C:
	case <-ctx.Done():
	}
}

// strangersBytes makes the node read requests that never end.
func strangersBytes(ctx context.Context, conn net.Conn) error {
	f, err := writePreface(conn)
	if err == nil {
		err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: strangersHeaders(), EndHeaders: true})
	}
	first := binary.BigEndian.AppendUint32([]byte{0}, 16<<20)
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for part := append(first, make([]byte, 16<<10-len(first))...); err == nil && ctx.Err() == nil; part = make([]byte, 16<<10) {
		err = f.WriteData(1, false, part)
		awaitTick(ctx, pace)
	}
	return err
}

// served is what an honest client got in a while.
type served struct {
	calls, fresh []time.Duration // of calls, and of calls on connections of their own
	runs         int64
	most         int64 // RSS of the node, bytes
}

func (s served) String() string {
	return fmt.Sprintf("%d calls p50 %v p99 %v; on new connections %d calls p50 %v p99 %v; %d runs; RSS %d MiB",
		len(s.calls), quantileOf(s.calls, 0.5), quantileOf(s.calls, 0.99), len(s.fresh), quantileOf(s.fresh, 0.5), quantileOf(s.fresh, 0.99), s.runs, s.most>>20)
}

func quantileOf(d []time.Duration, q float64) time.Duration {
	return quantileOfSorted(slices.Sorted(slices.Values(d)), q).Round(10 * time.Microsecond)
}

// residentMemory is how much memory a process has, in bytes.
func (p *process) residentMemory() int64 {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		p.t.Fatalf("no VmRSS in %s", text)
	}
	kb, _ := strconv.ParseInt(string(m[1]), 10, 64) // digits
	return kb << 10
}

// floodMemory is the limit under which the node of TestFlood runs.
const floodMemory = 128 << 20

// limitedScheduler is a program that starts the scheduler in a control group of so many
// bytes, and the group's directory; "" and "" where this user may make no such group.
func limitedScheduler(t *testing.T, limit int64) (program, group string) {
	t.Helper()
	for root, file := range map[string]string{
		"/sys/fs/cgroup": "memory.max", "/sys/fs/cgroup/unified": "memory.max", "/sys/fs/cgroup/memory": "memory.limit_in_bytes",
	} {
		dir := filepath.Join(root, fmt.Sprint("fermata-flood-", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // after the processes in it have ended
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, limit), 0o644); err != nil {
			continue
		}
		program = filepath.Join(t.TempDir(), "scheduler")
		text := fmt.Sprintf("#!/bin/sh\necho $$ > %s/cgroup.procs || exit 1\nexec %s \"$@\"\n", dir, commandPath(t, "scheduler"))
		if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return program, dir
	}
	return "", ""
}

// TestFlood: while strangers hold on to as many connections as they get, a worker goes on
// running its jobs, whoever has a connection is answered, and so is who comes anew; the
// node lives in a control group of 128 MiB, or where none can be made, with GOMEMLIMIT and
// a bound of what it has grown by. `make flood` is the long form.
func TestFlood(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("loopback has one address, and /proc is not there: nothing to see")
		return
	}
	runAlone(t)
	connections, unproved, spell := 600, 200, 2*time.Second
	if text := os.Getenv("FERMATA_FLOOD"); text != "" {
		var err error
		if connections, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		unproved, spell = 0, 20*time.Second // as many as a node with this memory admits by default
	}
	names := []string{"editor", "viewer", "worker-a", "worker-b", "thief"}
	g := newGuests(t, names...)
	g.writeAccessFile(names...)
	server := newRedis(t)
	c := newCluster(t, server.URL(), "--access-file", g.path, "--max-unauthenticated-connections", strconv.Itoa(unproved))
	memory := int64(floodMemory)
	program, group := limitedScheduler(t, memory)
	var env []string
	if group == "" {
		t.Log("no control group can be made here: GOMEMLIMIT and the memory of the process stand for it")
		env = []string{fmt.Sprint("GOMEMLIMIT=", memory*4/5)}
	}
	n := c.startAs("a", program, env)
	var runs atomic.Int64
	g.worksOn(n, &runs)
	for i := range 20 {
		j := newJob(behaviour{})
		j.Queue, j.Schedule = "b", everyInterval(time.Second, time.Now())
		if _, err := n.jobs.CreateJob(g.contextOf("editor"), &fermatav1.CreateJobRequest{Parent: namespace, JobId: fmt.Sprint("j", i), Job: j}); err != nil {
			t.Fatal(err)
		}
	}
	measure := func() (s served) {
		// For a while, and until something has been seen: it is unknown how slow this
		// machine is.
		before, began := runs.Load(), time.Now()
		pace := time.NewTicker(2 * time.Millisecond)
		defer pace.Stop()
		for i := 0; time.Since(began) < spell || len(s.fresh) < 5 || runs.Load() < before+20; i++ {
			if time.Since(began) > spell+2*time.Minute {
				t.Fatalf("too little in two minutes: %v", s)
			}
			s.calls = append(s.calls, g.measureCalls(n.conn))
			if i%10 == 0 {
				began := time.Now()
				conn, err := grpc.NewClient("passthrough:///"+n.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err != nil {
					t.Fatal(err)
				}
				g.measureCalls(conn)
				s.fresh = append(s.fresh, time.Since(began))
				_ = conn.Close()
				s.most = max(s.most, n.residentMemory())
			}
			awaitTick(t.Context(), pace)
		}
		s.runs = runs.Load() - before
		return s
	}
	redistest.Eventually(t, patience, "runs", func() error {
		if runs.Load() < 20 {
			return errors.New("too few")
		}
		return nil
	})
	calm := measure()
	f := newFlood(t, n.grpc, connections)
	redistest.Eventually(t, patience, "a flood", func() error {
		if held, gone := f.open.Load(), f.refused.Load(); held+gone < int64(connections) {
			return fmt.Errorf("%d connections are open, %d were closed", held, gone)
		}
		return nil
	})
	under := measure()
	held, gone := f.open.Load(), f.refused.Load()
	f.endFlood()
	t.Logf("calm:  %v", calm)
	t.Logf("flood: %v; %d connections held, %d closed by the node", under, held, gone)
	t.Logf("p99 under the flood: %.1f times as long, on new connections %.1f times",
		quantileOf(under.calls, 0.99).Seconds()/quantileOf(calm.calls, 0.99).Seconds(), quantileOf(under.fresh, 0.99).Seconds()/quantileOf(calm.fresh, 0.99).Seconds())
	if gone == 0 {
		t.Error("no connection of strangers was closed: this was no flood")
	}
	// In a control group the node has lived, or no call would have succeeded.
	if group == "" && under.most > memory {
		t.Errorf("the node has %d MiB, want at most %d", under.most>>20, memory>>20)
	}
}

// measureCalls makes a call that has to succeed, and returns how long it took.
func (g *guests) measureCalls(conn *grpc.ClientConn) time.Duration {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+g.tokens["editor"])
	began := time.Now()
	if _, err := fermatav1.NewJobServiceClient(conn).GetJob(ctx, &fermatav1.GetJobRequest{Name: jobName("j0")}); err != nil {
		g.t.Fatalf("an honest client: %v", err)
	}
	return time.Since(began)
}

// worksOn runs a worker with a token until the test ends.
func (g *guests) worksOn(n *schedulerNode, runs *atomic.Int64) {
	g.t.Helper()
	token, err := worker.TokenFile(g.tokenFile("worker-b"))
	if err != nil {
		g.t.Fatal(err)
	}
	w, err := worker.New(worker.Options{Addresses: []string{n.grpc}, Queues: []string{"b"}, Token: token})
	if err != nil {
		g.t.Fatal(err)
	}
	w.Handle(handlerName, func(context.Context, *worker.Task) error { runs.Add(1); return nil })
	ctx, stop := context.WithCancel(g.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	g.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			g.t.Error(err)
		}
	})
}
