package guard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	"github.com/fermata-io/fermata/internal/lib/memorybudget"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// talker answers calls with so many bytes, and streams with messages of a KiB. Then the stream ends.
type talker struct {
	fermatav1.UnimplementedJobServiceServer
	fermatav1.UnimplementedEventServiceServer
	fermatav1.UnimplementedWorkerServiceServer
	bytes int
	began atomic.Int64
	ended atomic.Int64
	drain chan struct{} // workers wait for it, if it is not nil
	// counted: something else counts the streams of workers.
	counted bool
}

func (k *talker) GetJob(context.Context, *fermatav1.GetJobRequest) (*fermatav1.Job, error) {
	defer k.ended.Add(1)
	return &fermatav1.Job{Name: string(bytes.Repeat([]byte("x"), k.bytes))}, nil
}

func (k *talker) ListPresets(context.Context, *fermatav1.ListPresetsRequest) (*fermatav1.ListPresetsResponse, error) {
	return &fermatav1.ListPresetsResponse{}, nil
}

func (k *talker) WatchEvents(_ *fermatav1.WatchEventsRequest, s grpc.ServerStreamingServer[fermatav1.WatchEventsResponse]) error {
	defer k.ended.Add(1)
	for range k.bytes >> 10 {
		if err := s.Send(&fermatav1.WatchEventsResponse{ResumeToken: string(bytes.Repeat([]byte("x"), 1<<10))}); err != nil {
			return err
		}
	}
	return nil
}

func (k *talker) Work(s grpc.BidiStreamingServer[fermatav1.WorkRequest, fermatav1.WorkResponse]) error {
	defer k.ended.Add(1)
	k.began.Add(1)
	if k.counted {
		StreamMemoryFrom(s.Context()).Release()
	}
	if k.drain != nil {
		select {
		case <-k.drain:
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
	for range k.bytes >> 10 {
		welcome := &fermatav1.Welcome{Node: string(bytes.Repeat([]byte("x"), 1<<10))}
		if err := s.Send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Welcome{Welcome: welcome}}); err != nil {
			return err
		}
	}
	return status.Error(codes.Unavailable, "the node stops")
}

// serveTalker serves a node with so much memory for unread answers.
func serveTalker(t *testing.T, k *talker, memory int64) (g *Gate, address string) {
	t.Helper()
	return serveTalkerOf(t, k, memory, 1<<30)
}

// serveTalkerOf serves a node with so much memory, for unread answers and for open connections and streams.
func serveTalkerOf(t *testing.T, k *talker, memory, openMemory int64) (g *Gate, address string) {
	t.Helper()
	policy, err := authz.NewPolicy([]authz.Rule{
		{Role: authz.Viewer, Namespaces: []string{"*"}, Subjects: []string{"token:viewer"}},
		{Role: authz.Worker, Namespaces: []string{"*"}, Subjects: []string{"token:worker", "token:other"}},
	}, authz.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	g, err = New(Options{Authority: policyAuthority{policy}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	g.unread, g.strangers, g.open = newUnreadBudget(memory), newStrangersBudget(memory), newOpenBudget(openMemory)
	options, err := g.ConnectionOptions(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	codec := UnreadCodec(grpccodec.Codec())
	server := grpc.NewServer(append(options, grpc.ForceServerCodecV2(codec), grpc.MaxConcurrentStreams(MaxStreamsPerConnection),
		grpc.ChainUnaryInterceptor(g.UnaryInterceptor, g.BoundUnread), grpc.ChainStreamInterceptor(g.StreamInterceptor))...)
	services := g.Services(server, codec, MaxRequestBytes)
	fermatav1.RegisterJobServiceServer(services, k)
	fermatav1.RegisterEventServiceServer(services, k)
	fermatav1.RegisterWorkerServiceServer(services, k)
	grpc_health_v1.RegisterHealthServer(services, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return g, listener.Addr().String()
}

// windowless is a client that grants no stream a window, but reads whatever is written to it.
type windowless struct {
	conn     net.Conn
	framer   *http2.Framer
	block    bytes.Buffer
	encoder  *hpack.Encoder
	last     uint32
	writing  sync.Mutex
	answered atomic.Int64 // streams with headers
	ended    atomic.Int64 // streams with trailers
	closed   atomic.Bool
}

func dialWindowless(t *testing.T, address string) *windowless {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	w := &windowless{conn: conn, framer: http2.NewFramer(conn, conn), last: 1}
	w.encoder = hpack.NewEncoder(&w.block)
	w.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err = conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	if err := w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(w.read)
	t.Cleanup(func() {
		_ = conn.Close()
		reading.Wait()
	})
	return w
}

func (w *windowless) read() {
	defer w.closed.Store(true)
	for {
		frame, err := w.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			w.answered.Add(1)
			if f.StreamEnded() {
				w.ended.Add(1)
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				w.write(w.framer.WriteSettingsAck)
			}
		}
	}
}

func (w *windowless) write(frame func() error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	_ = frame() // fails on a connection that was closed
}

// call begins a call with an empty request, or that of GetJob.
func (w *windowless) call(token, method string) {
	var request []byte
	if method == fermatav1.JobService_GetJob_FullMethodName {
		request, _ = proto.Marshal(&fermatav1.GetJobRequest{Name: "namespaces/n/jobs/j"})
	}
	w.block.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method}, {Name: ":authority", Value: "x"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}, {Name: "authorization", Value: "Bearer " + token},
	} {
		if f.Value != "Bearer " {
			_ = w.encoder.WriteField(f) // to memory
		}
	}
	w.write(func() error {
		return w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: w.last, BlockFragment: w.block.Bytes(), EndHeaders: true})
	})
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))), request...)
	w.write(func() error { return w.framer.WriteData(w.last, true, message) })
	w.last += 2
}

// callAll makes so many calls, a few at a time, unless the connection is closed before.
func (w *windowless) callAll(t *testing.T, calls int, token, method string) {
	t.Helper()
	for i := range calls {
		w.call(token, method)
		redistest.Eventually(t, testPatience, "the call is answered", func(context.Context) error {
			if w.answered.Load() <= int64(i)-MaxOpenMethodCalls/2 && !w.closed.Load() {
				return fmt.Errorf("%d of %d", w.answered.Load(), i+1)
			}
			return nil
		})
	}
}

func wantUnread(t *testing.T, b *memorybudget.Budget, what string, holds func(bytes int) bool) {
	t.Helper()
	redistest.Eventually(t, testPatience, what, func(context.Context) error {
		if n := b.InUse(); !holds(n) {
			return fmt.Errorf("%d bytes are taken", n)
		}
		return nil
	})
}

func isZero(bytes int) bool { return bytes == 0 }

// TestEndedStreamsTakeMemoryUntilTheyAreRead: the messages of a stream count after its handler has returned, until
// the client reads them, resets the stream or is gone.
func TestEndedStreamsTakeMemoryUntilTheyAreRead(t *testing.T) {
	const bytes = 48 << 10
	for method, token := range map[string]string{
		fermatav1.WorkerService_Work_FullMethodName: "worker", fermatav1.EventService_WatchEvents_FullMethodName: "viewer",
	} {
		t.Run(token, func(t *testing.T) {
			k := &talker{bytes: bytes}
			g, address := serveTalker(t, k, 0)
			isTaken := func(n int) bool { return k.ended.Load() > 0 && n >= bytes+unreadOverhead && n < 3*bytes }
			w := dialWindowless(t, address)
			w.call(token, method)
			wantUnread(t, g.unread, "an ended stream counts", isTaken)
			w.write(func() error { return w.framer.WriteWindowUpdate(w.last-2, 1<<20) })
			wantUnread(t, g.unread, "it has been read", isZero)
			w.call(token, method)
			wantUnread(t, g.unread, "another one counts", isTaken)
			w.write(func() error { return w.framer.WriteRSTStream(w.last-2, http2.ErrCodeCancel) })
			wantUnread(t, g.unread, "it has been reset", isZero)
			w.call(token, method)
			wantUnread(t, g.unread, "a third one counts", isTaken)
			_ = w.conn.Close()
			wantUnread(t, g.unread, "its connection is closed", isZero)
		})
	}
}

// TestEndedStreamsAreBounded: an identity whose ended streams take more than its share loses the connections with
// several of them.
func TestEndedStreamsAreBounded(t *testing.T) {
	const connections, bytes = 8, 12 << 10 // of an open stream they take no memory
	k := &talker{bytes: bytes}
	g, address := serveTalker(t, k, 0)
	most := g.unread.Largest() + connections*(maxLateStreams+1)*3*bytes
	var all []*windowless
	for range connections {
		w := dialWindowless(t, address)
		all = append(all, w)
		w.callAll(t, MaxStreamsPerConnection, "worker", fermatav1.WorkerService_Work_FullMethodName)
		if n := g.unread.InUse(); n > most {
			t.Fatalf("%d bytes are taken", n)
		}
	}
	redistest.Eventually(t, testPatience, "the last connection is closed", func(context.Context) error {
		if !all[connections-1].closed.Load() {
			return errors.New("it is not")
		}
		return nil
	})
	for _, w := range all {
		_ = w.conn.Close()
	}
	wantUnread(t, g.unread, "all connections are closed", isZero)
}

// TestAnswersToStrangersAreBounded: calls that need no credential, or none that has a role, take memory of a budget of
// their own, and a connection that exceeds the part of its address is closed.
func TestAnswersToStrangersAreBounded(t *testing.T) {
	for who, method := range map[string]string{
		"":       grpc_health_v1.Health_Check_FullMethodName,
		"norole": fermatav1.JobService_ListPresets_FullMethodName,
	} {
		t.Run(cmp.Or(who, "none"), func(t *testing.T) { checkStrangers(t, who, method) })
	}
}

func checkStrangers(t *testing.T, who, method string) {
	g, address := serveTalker(t, &talker{}, 0)
	most := g.strangers.Largest()
	var all []*windowless
	for closed := false; !closed; {
		w := dialWindowless(t, address)
		all = append(all, w)
		w.callAll(t, 40, who, method)
		closed = w.closed.Load()
		if n := g.strangers.InUse(); n > most || n == 0 && !closed {
			t.Fatalf("%d bytes are taken by %d connections, want %d at most", n, len(all), most)
		}
	}
	if n := g.unread.InUse(); n != 0 {
		t.Errorf("%d bytes of the memory of identities are taken", n)
	}
	for _, w := range all {
		_ = w.conn.Close()
	}
	wantUnread(t, g.strangers, "all connections are closed", isZero)
}

// TestSlowClientsKeepTheirConnection: a client that reads late, within its share, gets all of many large answers.
func TestSlowClientsKeepTheirConnection(t *testing.T) {
	const calls = 100
	k := &talker{bytes: 60 << 10}
	g, address := serveTalker(t, k, 1<<30)
	w := dialWindowless(t, address)
	for i := range calls {
		method := fermatav1.JobService_GetJob_FullMethodName
		if i%2 == 0 {
			method = fermatav1.EventService_WatchEvents_FullMethodName
		}
		w.call("viewer", method)
	}
	wantUnread(t, g.unread, "all is answered", func(n int) bool { return k.ended.Load() == calls && n > calls*k.bytes })
	w.write(func() error { return w.framer.WriteWindowUpdate(0, 1<<30) })
	w.write(func() error {
		return w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	})
	redistest.Eventually(t, testPatience, "all is read", func(context.Context) error {
		if n := w.ended.Load(); n < calls {
			return fmt.Errorf("%d of %d, closed: %t", n, calls, w.closed.Load())
		}
		return nil
	})
	wantUnread(t, g.unread, "nothing is taken", isZero)
}

// TestLastMessagesOfAStoppingNodeArrive: each of many workers of one identity gets the last message and the end of its
// stream, though all of them together have more than the share for a moment.
func TestLastMessagesOfAStoppingNodeArrive(t *testing.T) {
	const workers = 300
	k := &talker{bytes: 31 << 10, drain: make(chan struct{})}
	g, address := serveTalker(t, k, 0)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer worker")
	ends := make(chan error, workers)
	for range workers {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		s, err := fermatav1.NewWorkerServiceClient(conn).Work(ctx)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			n := 0
			for {
				if _, err := s.Recv(); err != nil {
					if status.Convert(err).Message() != "the node stops" || n != 31 {
						ends <- fmt.Errorf("after %d messages: %w", n, err)
					} else {
						ends <- io.EOF
					}
					return
				}
				n++
			}
		}()
	}
	redistest.Eventually(t, testPatience, "all streams are open", func(context.Context) error {
		if n := k.began.Load(); n < workers {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	close(k.drain)
	for range workers {
		if err := <-ends; err != io.EOF {
			t.Error(err)
		}
	}
	wantUnread(t, g.unread, "nothing is taken", isZero)
}
