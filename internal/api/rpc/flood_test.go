package rpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/api/workerstream"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// The floods here speak HTTP/2 by hand over TCP, as a client that means harm does.
// What is asserted are states, counts and memory, and that somebody else is served
// meanwhile; how fast, is for benchmarks.

// patience is how long a test waits for what has to come.
const patience = redistest.Patience

// floodJobs counts the calls that reach it, and holds them if it is told to.
type floodJobs struct {
	*fakeJobs
	hold          chan struct{} // nil: nothing is held. A held call ignores that it was cancelled
	calls, inside atomic.Int64
	peak          atomic.Int64
	payload       int // bytes in each answer of a list
}

func (f *floodJobs) visit() (leave func()) {
	f.calls.Add(1)
	n := f.inside.Add(1)
	for p := f.peak.Load(); n > p && !f.peak.CompareAndSwap(p, n); p = f.peak.Load() {
	}
	if f.hold != nil {
		<-f.hold
	}
	return func() { f.inside.Add(-1) }
}

func (f *floodJobs) Create(_ context.Context, d job.Definition, _ string) (job.Record, error) {
	defer f.visit()()
	return job.Record{Definition: &d}, nil
}

func (f *floodJobs) List(context.Context, job.Filter, int, string) (job.Page, error) {
	defer f.visit()()
	d := stored()
	d.Payload = make([]byte, f.payload)
	return job.Page{Records: []job.Record{{Definition: &d}}}, nil
}

// flooded is a server that listens on loopback.
type flooded struct {
	address string
	jobs    *floodJobs
	healthy *grpc.ClientConn
}

// serveFlooded serves everybody who has a token, unless the options say who.
func serveFlooded(t *testing.T, o Options, jobs *floodJobs, wrap func(net.Listener) net.Listener) *flooded {
	t.Helper()
	jobs.fakeJobs = &fakeJobs{}
	o.Jobs, o.Cluster = jobs, fakeCluster{}
	if o.Authority == nil && o.Limits == (authz.Limits{}) {
		o.Authority = newAuthority(t, authz.Limits{}, allow(authz.Admin, "*", "*"))
	}
	if o.Authority != nil {
		o.LeaseSigningKey = bytes.Repeat([]byte("k"), workerstream.MinKeyBytes)
	}
	server, _, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &flooded{address: listener.Addr().String(), jobs: jobs}
	if wrap != nil {
		listener = wrap(listener)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	f.healthy = f.dial(t)
	return f
}

func (f *flooded) dial(t *testing.T, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+f.address, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// others has somebody else call until it is stopped; every call has to succeed.
func (f *flooded) others(t *testing.T) (stop func()) {
	t.Helper()
	call := func() bool {
		ctx, cancel := context.WithTimeout(as(t.Context(), "healthy"), patience)
		defer cancel()
		err := listNodes(ctx, f.healthy)
		if err != nil {
			t.Errorf("somebody else during the flood: %v", err)
		}
		return err == nil
	}
	if !call() {
		t.FailNow()
	}
	done := make(chan struct{})
	var calling sync.WaitGroup
	calling.Go(func() {
		for call() {
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	})
	return func() {
		close(done)
		calling.Wait()
		call()
	}
}

// settled waits until there are no more goroutines than before the flood.
func settled(t *testing.T, before int) {
	t.Helper()
	redistest.Eventually(t, patience, "the goroutines of the flood end", func() bool { return runtime.NumGoroutine() <= before })
}

// heap is what is in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // pools are emptied by the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// rude is a connection of HTTP/2 without any manners. Writing is for one goroutine.
type rude struct {
	conn    net.Conn
	framer  *http2.Framer
	block   bytes.Buffer
	encoder *hpack.Encoder
	last    uint32 // stream

	mu      sync.Mutex
	frames  int // that were read
	changed *sync.Cond
	windows map[uint32]int // what the server has granted of each stream, of the connection for 0, and was not used
	initial int            // window of each stream
	sent    int            // bytes of messages
	status  map[uint32]codes.Code
	resets  map[uint32]http2.ErrCode
	away    []http2.ErrCode
	pongs   int
	closed  bool
}

// window is what a client that reads grants to all its streams together.
const window = 1 << 30

// rude connects. With a window of 0 it is the 64 KiB that every connection has.
func (f *flooded) rude(t *testing.T, window uint32) *rude {
	t.Helper()
	conn, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	const defaultWindow = 65535
	w := &rude{conn: conn, framer: http2.NewFramer(conn, conn), status: map[uint32]codes.Code{}, resets: map[uint32]http2.ErrCode{},
		windows: map[uint32]int{0: defaultWindow}, initial: defaultWindow}
	w.changed = sync.NewCond(&w.mu)
	w.encoder = hpack.NewEncoder(&w.block)
	w.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = conn.SetWriteDeadline(time.Now().Add(patience))
	_, err = conn.Write([]byte(http2.ClientPreface))
	w.must(t, err, w.framer.WriteSettings())
	if window > 0 {
		w.must(t, w.framer.WriteWindowUpdate(0, window))
	}
	var reading sync.WaitGroup
	reading.Go(w.read)
	t.Cleanup(func() {
		_ = conn.Close()
		reading.Wait()
	})
	return w
}

func (w *rude) must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (w *rude) read() {
	for {
		frame, err := w.framer.ReadFrame()
		w.mu.Lock()
		w.frames++
		w.changed.Broadcast()
		if err != nil {
			w.closed = true
			w.mu.Unlock()
			return
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				if code, err := strconv.Atoi(h.Value); h.Name == "grpc-status" && err == nil {
					w.status[f.StreamID] = codes.Code(code)
				}
			}
		case *http2.SettingsFrame:
			if n, ok := f.Value(http2.SettingInitialWindowSize); ok {
				w.initial = int(n)
			}
		case *http2.WindowUpdateFrame:
			w.windows[f.StreamID] += int(f.Increment)
		case *http2.RSTStreamFrame:
			w.resets[f.StreamID] = f.ErrCode
		case *http2.GoAwayFrame:
			w.away = append(w.away, f.ErrCode)
		case *http2.PingFrame:
			if f.IsAck() {
				w.pongs++
			}
		}
		w.mu.Unlock()
	}
}

func (w *rude) holds(is func() bool) func() bool {
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return is()
	}
}

// headers encodes those of a call; without a token there is no authorization.
func (w *rude) headers(token, method string, more ...hpack.HeaderField) []byte {
	w.block.Reset()
	if token != "" {
		more = append(more, hpack.HeaderField{Name: "authorization", Value: "Bearer " + token})
	}
	for _, h := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method}, {Name: ":authority", Value: "x"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, more...) {
		_ = w.encoder.WriteField(h) // to memory
	}
	return w.block.Bytes()
}

// start sends a whole request and returns the number of its stream.
func (w *rude) start(t *testing.T, token, method string, body []byte) uint32 {
	t.Helper()
	id, err := w.push(token, method, body)
	w.must(t, err)
	return id
}

func (w *rude) push(token, method string, body []byte) (uint32, error) {
	id, err := w.open(token, method)
	if err != nil {
		return 0, err
	}
	return id, w.framer.WriteData(id, true, append(prefix(len(body)), body...))
}

// prefix is that of a message of gRPC, which says its length.
func prefix(length int) []byte { return binary.BigEndian.AppendUint32([]byte{0}, uint32(length)) }

// open sends the headers of a request.
func (w *rude) open(token, method string, more ...hpack.HeaderField) (uint32, error) {
	w.last += 2
	id := w.last - 1
	return id, w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.headers(token, method, more...), EndHeaders: true})
}

// begin sends headers and the beginning of what says to be a message of this length.
func (w *rude) begin(t *testing.T, length int, body []byte) uint32 {
	t.Helper()
	id, err := w.open("flood", fermatav1.JobService_CreateJob_FullMethodName)
	w.must(t, err, w.framer.WriteData(id, false, append(prefix(length), body...)))
	return id
}

// answer waits for the status of a stream.
func (w *rude) answer(t *testing.T, id uint32) codes.Code {
	t.Helper()
	redistest.Eventually(t, patience, "a call has a status", w.holds(func() bool { _, ok := w.status[id]; return ok || w.closed }))
	w.mu.Lock()
	defer w.mu.Unlock()
	code, ok := w.status[id]
	if !ok {
		t.Fatal("the connection was closed in place of an answer")
	}
	return code
}

func (w *rude) call(t *testing.T, token, method string, body []byte) codes.Code {
	t.Helper()
	return w.answer(t, w.start(t, token, method, body))
}

func encoded(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func createBody(t *testing.T) []byte {
	t.Helper()
	return encoded(t, &fermatav1.CreateJobRequest{Parent: "namespaces/n", JobId: "a", Job: newJobPB()})
}

// TestFloodOfIdleConnections: connections beyond the limit are open and get nothing.
// A connection counts from its first call, as only a call says whose it is: those
// that never call take no place of anybody, and are bounded by the files that the
// process may have open.
func TestFloodOfIdleConnections(t *testing.T) {
	const limit, beyond = 50, 50
	rule := allow(authz.Viewer, "*", "many")
	rule.Limits.Connections = limit
	who := map[string]Options{"identity": {Authority: newAuthority(t, authz.Limits{}, rule, allow(authz.Viewer, "*", "*"))}}
	if runtime.GOOS == "linux" { // where loopback has a second address, for the other host
		who["host"] = Options{Limits: authz.Limits{Connections: limit}}
	}
	for name, o := range who {
		t.Run(name, func(t *testing.T) {
			f := serveFlooded(t, o, &floodJobs{}, nil)
			if name == "host" {
				f.healthy = f.dial(t, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
					return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(ctx, "tcp", address)
				}))
			}
			defer f.others(t)()
			before := runtime.NumGoroutine()
			var silent []*rude
			for range beyond {
				silent = append(silent, f.rude(t, window))
			}
			const method = fermatav1.ClusterService_ListNodes_FullMethodName
			var in, out []*rude
			for range limit + beyond {
				w := f.rude(t, window)
				switch code := w.call(t, "many", method, nil); code {
				case codes.OK:
					in = append(in, w)
				case codes.ResourceExhausted:
					out = append(out, w)
				default:
					t.Fatalf("%s", code)
				}
			}
			if len(in) != limit || len(out) != beyond {
				t.Fatalf("%d connections are served, %d refused", len(in), len(out))
			}
			if code := out[0].call(t, "many", method, nil); code != codes.ResourceExhausted {
				t.Errorf("asking again without a place: %s", code)
			}
			if code := in[0].call(t, "many", method, nil); code != codes.OK {
				t.Errorf("who has a place: %s", code)
			}
			for _, w := range in {
				_ = w.conn.Close()
			}
			for _, w := range out {
				redistest.Eventually(t, patience, "a place is free", func() bool { return w.call(t, "many", method, nil) == codes.OK })
				_ = w.conn.Close()
			}
			for _, w := range silent {
				_ = w.conn.Close()
			}
			settled(t, before)
		})
	}
}

// TestFloodOfResets: a stream that is reset gives its place on the connection back
// while its handler still runs. Handlers are bounded all the same.
func TestFloodOfResets(t *testing.T) {
	const streams, flood = 50, 5000
	jobs := &floodJobs{hold: make(chan struct{})}
	release := sync.OnceFunc(func() { close(jobs.hold) })
	f := serveFlooded(t, Options{MaxConcurrentStreams: streams}, jobs, nil)
	t.Cleanup(release)
	stop, body := f.others(t), createBody(t)
	before := runtime.NumGoroutine()

	w := f.rude(t, window)
	for range streams {
		w.start(t, "flood", fermatav1.JobService_CreateJob_FullMethodName, body)
	}
	redistest.Eventually(t, patience, "every place has a handler", func() bool { return jobs.inside.Load() == streams })
	for id := uint32(1); id < w.last; id += 2 {
		w.must(t, w.framer.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	// The server stops reading until a handler ends, so that the writer is held too.
	var flooding sync.WaitGroup
	flooding.Go(func() {
		for range flood {
			id, err := w.push("flood", fermatav1.JobService_CreateJob_FullMethodName, body)
			if err == nil {
				err = w.framer.WriteRSTStream(id, http2.ErrCodeCancel)
			}
			if err != nil {
				t.Errorf("the flood: %v", err)
				return
			}
		}
	})
	for range 50 {
		if err := listNodes(as(t.Context(), "healthy"), f.healthy); err != nil {
			t.Fatal(err)
		}
	}
	if n := jobs.inside.Load(); n != streams {
		t.Errorf("%d handlers while all places are taken, want %d", n, streams)
	}
	release()
	flooding.Wait()
	if code := w.call(t, "flood", fermatav1.ClusterService_ListNodes_FullMethodName, nil); code != codes.OK {
		t.Errorf("a call after the flood: %s", code)
	}
	if n := jobs.peak.Load(); n > streams {
		t.Errorf("%d handlers at once, want at most %d", n, streams)
	}
	_ = w.conn.Close()
	stop()
	redistest.Eventually(t, patience, "no handler is left", func() bool { return jobs.inside.Load() == 0 })
	settled(t, before)
}

func TestFloodOfPings(t *testing.T) {
	f := serveFlooded(t, Options{}, &floodJobs{}, nil)
	defer f.others(t)()
	w := f.rude(t, window)
	if code := w.call(t, "flood", fermatav1.ClusterService_ListNodes_FullMethodName, nil); code != codes.OK {
		t.Fatal(code)
	}
	for range 1000 {
		if w.framer.WritePing(false, [8]byte{1}) != nil {
			break // closed by then
		}
	}
	redistest.Eventually(t, patience, "the connection is closed", w.holds(func() bool { return w.closed }))
	if !slices.Contains(w.away, http2.ErrCodeEnhanceYourCalm) {
		t.Errorf("told %v, want ENHANCE_YOUR_CALM", w.away)
	}
	if w.pongs > 10 {
		t.Errorf("%d pings were answered", w.pongs)
	}
}

func TestFloodOfStreams(t *testing.T) {
	const streams, flood = 50, 250
	jobs := &floodJobs{hold: make(chan struct{})}
	release := sync.OnceFunc(func() { close(jobs.hold) })
	f := serveFlooded(t, Options{MaxConcurrentStreams: streams}, jobs, nil)
	t.Cleanup(release)
	defer f.others(t)()
	w, body := f.rude(t, window), createBody(t)
	for range flood {
		w.start(t, "flood", fermatav1.JobService_CreateJob_FullMethodName, body)
	}
	redistest.Eventually(t, patience, "what is beyond the limit is refused", w.holds(func() bool { return len(w.resets) == flood-streams }))
	for id, code := range w.resets {
		if code != http2.ErrCodeRefusedStream {
			t.Errorf("stream %d: %s", id, code)
		}
	}
	redistest.Eventually(t, patience, "every place has a handler", func() bool { return jobs.inside.Load() == streams })
	release()
	redistest.Eventually(t, patience, "those within the limit are answered", w.holds(func() bool { return len(w.status) == streams }))
	if n := jobs.calls.Load(); n != streams {
		t.Errorf("%d calls were served, want %d", n, streams)
	}
}

// TestFloodOfHeaders: few bytes that stand for many, by the table of HPACK, and
// headers that never end.
func TestFloodOfHeaders(t *testing.T) {
	jobs := &floodJobs{}
	f := serveFlooded(t, Options{}, jobs, nil)
	defer f.others(t)()
	body := createBody(t)

	w := f.rude(t, window)
	bomb := slices.Repeat([]hpack.HeaderField{{Name: "x", Value: string(bytes.Repeat([]byte("x"), 3000))}}, 1000)
	id, err := w.open("flood", fermatav1.JobService_CreateJob_FullMethodName, bomb...)
	w.must(t, err)
	if n := w.block.Len(); n > guard.MaxHeaderBytes {
		t.Fatalf("%d bytes on the wire: a bomb is smaller", n)
	}
	redistest.Eventually(t, patience, "too long a list is refused", w.holds(func() bool { return w.resets[id] == http2.ErrCodeFrameSize }))
	if code := w.call(t, "flood", fermatav1.JobService_CreateJob_FullMethodName, body); code != codes.OK {
		t.Errorf("a call with headers as they should be, after that: %s", code)
	}
	many := slices.Repeat([]hpack.HeaderField{{Name: "x", Value: ""}}, 100) // HPACK encodes each of them as one byte
	id, err = w.open("flood", fermatav1.JobService_CreateJob_FullMethodName, many...)
	w.must(t, err)
	if code := w.answer(t, id); code != codes.ResourceExhausted {
		t.Errorf("a call with many headers: %s", code)
	}
	if code := w.call(t, "flood", fermatav1.JobService_CreateJob_FullMethodName, body); code != codes.OK {
		t.Errorf("a call after one with many headers: %s", code)
	}
	// gRPC would keep the deadline of a refused call until it has passed.
	_, err = w.open("flood", fermatav1.JobService_CreateJob_FullMethodName, append(many, hpack.HeaderField{Name: "grpc-timeout", Value: "9H"})...)
	w.must(t, err)
	redistest.Eventually(t, patience, "many headers and a deadline close the connection", w.holds(func() bool { return w.closed }))

	w = f.rude(t, window)
	block := slices.Clone(w.headers("flood", fermatav1.JobService_CreateJob_FullMethodName))
	w.must(t, w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block}))
	w.block.Reset()
	w.must(t, w.encoder.WriteField(hpack.HeaderField{Name: "x", Value: string(bytes.Repeat([]byte("x"), 8000)), Sensitive: true}))
	for range 2000 {
		if w.framer.WriteContinuation(1, false, w.block.Bytes()) != nil {
			break // closed by then
		}
	}
	redistest.Eventually(t, patience, "headers without an end close the connection", w.holds(func() bool { return w.closed }))
	if n := jobs.calls.Load(); n != 2 {
		t.Errorf("%d calls reached the handler, want 2", n)
	}
}

// TestFloodOfBytes: what a message says of its own length is not believed beyond
// the limit, and nothing of it is stored.
func TestFloodOfBytes(t *testing.T) {
	jobs := &floodJobs{}
	f := serveFlooded(t, Options{MaxRecvMsgSize: 1 << 20}, jobs, nil)
	defer f.others(t)()
	before := heap()
	w := f.rude(t, window)
	var ids []uint32
	for _, claimed := range []int{1<<20 + 1, 1 << 30, 1<<32 - 1} {
		for range 50 {
			ids = append(ids, w.begin(t, claimed, nil))
		}
	}
	for _, id := range ids {
		if code := w.answer(t, id); code != codes.ResourceExhausted {
			t.Errorf("stream %d: %s", id, code)
		}
	}
	big := encoded(t, &fermatav1.CreateJobRequest{Parent: "namespaces/n", JobId: "a", Job: &fermatav1.Job{Handler: "h", Payload: make([]byte, 1<<20)}})
	if code := w.answer(t, w.begin(t, len(big), big[:8000])); code != codes.ResourceExhausted {
		t.Errorf("a request that is too long: %s", code)
	}
	if n := jobs.calls.Load(); n != 0 {
		t.Errorf("%d calls reached the handler", n)
	}
	if more := heap() - before; more > 8<<20 {
		t.Errorf("%d bytes are kept", more)
	}
}

// TestFloodOfBadText: text that is not UTF-8 does not get past the codec of gRPC,
// which answers INTERNAL ("error unmarshalling request"), as it does for any bytes
// that are no message, not INVALID_ARGUMENT with the name of the field. Neither a
// handler nor, as it comes before them, the gate sees such a request; those who have
// no token learn no more by it.
func TestFloodOfBadText(t *testing.T) {
	jobs := &floodJobs{}
	f := serveFlooded(t, Options{}, jobs, nil)
	defer f.others(t)()
	w := f.rude(t, window)
	for _, token := range []string{"flood", "bad"} {
		for name, body := range map[string][]byte{
			"parent":          {0x0a, 2, 'n', 0xff},
			"surrogate":       {0x0a, 3, 0xed, 0xa0, 0x80},
			"overlong":        {0x0a, 2, 0xc0, 0x80},
			"inside of job":   {0x1a, 3, 0x0a, 1, 0xff},
			"length too long": {0x0a, 100, 'n'},
		} {
			if code := w.call(t, token, fermatav1.JobService_CreateJob_FullMethodName, body); code != codes.Internal {
				t.Errorf("%s of %s: %s, want Internal", name, token, code)
			}
		}
	}
	if n := jobs.calls.Load(); n != 0 {
		t.Errorf("%d calls reached the handler", n)
	}
}

// TestFloodOfUnreadAnswers: who asks for much and reads nothing gets as many answers
// kept as a connection may have streams, and gives them up with the stream.
func TestFloodOfUnreadAnswers(t *testing.T) {
	const streams, flood, size = 40, 240, 512 << 10
	jobs := &floodJobs{payload: size}
	f := serveFlooded(t, Options{MaxConcurrentStreams: streams}, jobs, nil)
	stop := f.others(t)
	goroutines, before := runtime.NumGoroutine(), heap()
	body := encoded(t, &fermatav1.ListJobsRequest{Parent: "namespaces/n"})
	w := f.rude(t, 0)
	ask := func(calls int) {
		for range calls {
			w.start(t, "flood", fermatav1.JobService_ListJobs_FullMethodName, body)
		}
	}
	ask(flood)
	redistest.Eventually(t, patience, "what is beyond the limit is refused", w.holds(func() bool { return len(w.resets) == flood-streams }))
	redistest.Eventually(t, patience, "every place has an answer", func() bool { return jobs.calls.Load() == streams && jobs.inside.Load() == 0 })
	const bound = 2*streams*size + 16<<20
	if more := heap() - before; more > bound {
		t.Errorf("%d bytes are kept for %d answers of %d", more, streams, size)
	}
	// To reset them and ask again keeps no more.
	for range 5 {
		for id := uint32(1); id < w.last; id += 2 {
			w.must(t, w.framer.WriteRSTStream(id, http2.ErrCodeCancel))
		}
		ask(streams)
	}
	w.must(t, w.framer.WritePing(false, [8]byte{1}))
	redistest.Eventually(t, patience, "the server has read all that", w.holds(func() bool { return w.pongs > 0 || w.closed }))
	redistest.Eventually(t, patience, "the handlers end", func() bool { return jobs.inside.Load() == 0 })
	if more := heap() - before; more > bound {
		t.Errorf("%d bytes are kept after resets", more)
	}
	if n := jobs.peak.Load(); n > streams {
		t.Errorf("%d handlers at once, want at most %d", n, streams)
	}
	_ = w.conn.Close()
	stop()
	settled(t, goroutines)
	// Buffers come back to their pools as the last goroutines go.
	redistest.Eventually(t, patience, "little is kept after the connection", func() bool { return heap()-before <= 16<<20 })
}

// TestUnreadAnswersOfAnIdentity: over all its connections they take a part of the memory of the node, which ends with
// the connections, and leave some to others.
func TestUnreadAnswersOfAnIdentity(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(160 << 20))
	const connections, calls, size = 4, 40, 512 << 10
	jobs := &floodJobs{payload: size}
	f := serveFlooded(t, Options{}, jobs, nil)
	stop := f.others(t)
	before := heap()
	body := encoded(t, &fermatav1.ListJobsRequest{Parent: "namespaces/n"})
	var floods []*rude
	for range connections {
		w := f.rude(t, 0)
		floods = append(floods, w)
		for range calls {
			w.start(t, "flood", fermatav1.JobService_ListJobs_FullMethodName, body)
		}
	}
	redistest.Eventually(t, patience, "every call is answered", func() bool { return jobs.calls.Load() >= connections*calls && jobs.inside.Load() == 0 })
	if more := heap() - before; more > 40<<20 {
		t.Errorf("%d MiB are kept for %d answers of half a MiB", more>>20, connections*calls)
	}
	conn := f.dial(t)
	list := func(token string) error {
		_, err := fermatav1.NewJobServiceClient(conn).ListJobs(as(t.Context(), token), &fermatav1.ListJobsRequest{Parent: "namespaces/n"})
		return err
	}
	if err := list("flood"); !strings.Contains(fmt.Sprint(err), "unread") {
		t.Errorf("one more of the identity that does not read: %v", err)
	}
	if err := list("other"); err != nil {
		t.Errorf("another identity: %v", err)
	}
	for _, w := range floods {
		_ = w.conn.Close()
	}
	redistest.Eventually(t, patience, "the closed connections give all back", func() bool { return list("flood") == nil })
	stop()
}

// hasty notes for how long the server lets a connection take to shake hands, and
// lets it take a moment.
type hasty struct {
	net.Listener
	mu    sync.Mutex
	given []time.Duration
}

const moment = time.Second

func (h *hasty) Accept() (net.Conn, error) {
	conn, err := h.Listener.Accept()
	return &hastyConn{Conn: conn, h: h}, err
}

type hastyConn struct {
	net.Conn
	h *hasty
}

func (c *hastyConn) SetDeadline(at time.Time) error {
	if at.IsZero() {
		return c.Conn.SetDeadline(at)
	}
	c.h.mu.Lock()
	c.h.given = append(c.h.given, time.Until(at))
	c.h.mu.Unlock()
	return c.Conn.SetDeadline(time.Now().Add(moment))
}

// TestFloodOfHandshakes: connections that do not finish theirs are closed, also if
// they keep on sending.
func TestFloodOfHandshakes(t *testing.T) {
	ca := newCA(t)
	for name, o := range map[string]Options{
		"plain": {},
		"TLS": {Credentials: credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{ca.leaf(t, "node")},
		})},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hasty{}
			f := serveFlooded(t, o, &floodJobs{}, func(l net.Listener) net.Listener {
				h.Listener = l
				return h
			})
			opening := []byte(http2.ClientPreface)
			if name == "TLS" {
				opening = []byte{22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3} // of a ClientHello
				f.healthy = f.dial(t, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
					MinVersion: tls.VersionTLS13, RootCAs: ca.pool, ServerName: "node",
				})))
			}
			before := runtime.NumGoroutine()
			defer f.others(t)()
			var held sync.WaitGroup
			for i := range 60 {
				conn, err := net.Dial("tcp", f.address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_ = conn.SetReadDeadline(time.Now().Add(patience))
				// A third says nothing, a third the half, a third a byte now and then.
				switch i % 3 {
				case 1:
					_, _ = conn.Write(opening[:len(opening)/2])
				case 2:
					held.Go(func() {
						pace := time.NewTicker(moment / 5)
						defer pace.Stop()
						for _, b := range opening[:len(opening)-1] {
							if _, err := conn.Write([]byte{b}); err != nil {
								return
							}
							<-pace.C
						}
					})
				}
				held.Go(func() {
					buffer := make([]byte, 1000)
					for {
						if _, err := conn.Read(buffer); err != nil {
							if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
								t.Error("a connection that shakes no hands is kept")
							}
							return
						}
					}
				})
			}
			held.Wait()
			// The healthy connection is older than a moment, and is served.
			redistest.Eventually(t, patience, "nothing is left of them", func() bool { return runtime.NumGoroutine() <= before+20 })
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, d := range h.given {
				if d <= 0 || d > handshakeTimeout {
					t.Errorf("%s for a handshake, want at most %s", d, handshakeTimeout)
				}
			}
			if len(h.given) < 60 {
				t.Errorf("%d of the connections had a deadline", len(h.given))
			}
		})
	}
}

// TestFloodBeforeProof: who has proved nothing yet cannot make a node keep more than
// one largest request for a connection, whatever number of streams it opens.
func TestFloodBeforeProof(t *testing.T) {
	jobs, counted := &floodJobs{}, prometheus.NewRegistry()
	f := serveFlooded(t, Options{Registerer: counted}, jobs, nil)
	defer f.others(t)()
	before := heap()
	f.rude(t, window).pour(t, "bad")
	if n, err := testutil.GatherAndCount(counted, "fermata_access_denied_total"); err != nil || n != 3 {
		t.Errorf("%d series count its credential, its streams and its bytes (%v)", n, err)
	}
	if kept := heap() - before; kept > guard.MaxUnauthenticatedBytes+16<<20 {
		t.Errorf("%d MiB are kept", kept>>20)
	}
	if n := jobs.calls.Load(); n != 0 {
		t.Errorf("%d calls reached a handler", n)
	}
}

// pour sends much on many streams, until the connection is closed, as it has to be.
func (w *rude) pour(t *testing.T, token string) {
	t.Helper()
	var ids []uint32
	for range 50 {
		id, err := w.open(token, fermatav1.JobService_CreateJob_FullMethodName)
		w.must(t, err, w.framer.WriteData(id, false, prefix(guard.MaxRequestBytes)))
		ids = append(ids, id)
	}
	sent, part := 0, make([]byte, 16000)
flood:
	for sent < 4*guard.MaxUnauthenticatedBytes {
		for _, id := range ids {
			if w.framer.WriteData(id, false, part) != nil {
				break flood
			}
			sent += len(part)
		}
	}
	if sent > 2*guard.MaxUnauthenticatedBytes { // what the network holds is less
		t.Errorf("%d MiB were taken", sent>>20)
	}
	redistest.Eventually(t, patience, "the connection is closed", w.holds(func() bool { return w.closed }))
}

// TestFloodBeyondConnections: a connection that its identity has no place for may send no
// more than that of a stranger.
func TestFloodBeyondConnections(t *testing.T) {
	const method = fermatav1.ClusterService_ListNodes_FullMethodName
	rule := allow(authz.Viewer, "*", "one")
	rule.Limits.Connections = 1
	f := serveFlooded(t, Options{Authority: newAuthority(t, authz.Limits{}, rule, allow(authz.Viewer, "*", "*"))}, &floodJobs{}, nil)
	defer f.others(t)()
	before := heap()
	in, out := f.rude(t, window), f.rude(t, window)
	for range 2 {
		if code := in.call(t, "one", method, nil); code != codes.OK {
			t.Fatalf("the connection that has the place: %s", code)
		}
		if code := out.call(t, "one", method, nil); code != codes.ResourceExhausted {
			t.Fatalf("the one that has none: %s", code)
		}
	}
	out.pour(t, "one")
	if kept := heap() - before; kept > guard.MaxUnauthenticatedBytes+16<<20 {
		t.Errorf("%d MiB are kept", kept>>20)
	}
	if code := in.call(t, "one", method, nil); code != codes.OK {
		t.Errorf("the connection that has the place, in the end: %s", code)
	}
}

// TestFloodWithoutCredential: without any credential the headers are the end of it.
func TestFloodWithoutCredential(t *testing.T) {
	jobs := &floodJobs{}
	f := serveFlooded(t, Options{}, jobs, nil)
	w := f.rude(t, window)
	id, err := w.open("", fermatav1.JobService_CreateJob_FullMethodName)
	w.must(t, err)
	if code := w.answer(t, id); code != codes.Unauthenticated {
		t.Errorf("a call whose body never came: %v", code)
	}
	if n := jobs.calls.Load(); n != 0 {
		t.Errorf("%d calls reached a handler", n)
	}
}
