package rpc

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// largeCall is a large request. Its client sends as many bytes as the server allows.
type largeCall struct {
	id   uint32
	body []byte // what is left of it
}

// sendLarge sends requests side by side, each as far as the windows of its stream and of the connection let it, until
// the connection is closed.
func (w *rude) sendLarge(calls []*largeCall) {
	for {
		w.mu.Lock()
		seen := w.frames
		w.mu.Unlock()
		sent := false
		for _, c := range calls {
			n := w.takeWindow(c.id, min(len(c.body), 16<<10))
			if n == 0 {
				continue
			}
			if w.framer.WriteData(c.id, false, c.body[:n]) != nil {
				return
			}
			c.body, sent = c.body[n:], true
		}
		if !sent && !w.awaitFrame(seen) {
			return
		}
	}
}

// takeWindow returns how many bytes may be sent of a stream, n at most.
func (w *rude) takeWindow(id uint32, n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ended := w.status[id]; ended {
		return 0
	}
	n = max(0, min(n, w.windows[0], w.initial+w.windows[id]))
	w.windows[0] -= n
	w.sent += n
	w.windows[id] -= n
	return n
}

// awaitFrame waits until the server has sent something; false: the connection is closed.
func (w *rude) awaitFrame(seen int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.frames == seen && !w.closed {
		w.changed.Wait()
	}
	return !w.closed
}

// dialLarge connects a client that takes answers of any size.
func (f *flooded) dialLarge(t *testing.T) *grpc.ClientConn {
	return f.dial(t, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(2*guard.MaxRequestBytes)))
}

// createLarge is a request to create a job with a payload of so many bytes.
func createLarge(payload int) *fermatav1.CreateJobRequest {
	return &fermatav1.CreateJobRequest{Parent: "namespaces/n", JobId: "a",
		Job: &fermatav1.Job{Handler: "h", Payload: make([]byte, payload)}}
}

// TestFloodOfLargeRequests: an identity sends large requests that do not end, on many streams of many connections. They
// take a part of the memory of the node, and leave some to others. Before they took memory from a budget, the node kept
// all of them.
func TestFloodOfLargeRequests(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(160 << 20))
	const connections, calls, size = 6, 40, 1 << 20
	f := serveFlooded(t, Options{}, &floodJobs{}, nil)
	stop := f.others(t)
	body := encoded(t, createLarge(size))
	message := append(prefix(len(body)), body...)
	before := heap()
	var floods []*rude
	var sending sync.WaitGroup
	for range connections {
		w := f.rude(t, window)
		floods = append(floods, w)
		var large []*largeCall
		for range calls {
			id, err := w.open("flood", fermatav1.JobService_CreateJob_FullMethodName)
			w.must(t, err)
			large = append(large, &largeCall{id: id, body: message})
		}
		sending.Go(func() { w.sendLarge(large) })
	}
	sum := func() (refused, sent int) {
		for _, w := range floods {
			w.mu.Lock()
			sent += w.sent
			for _, code := range w.status {
				if code == codes.ResourceExhausted {
					refused++
				}
			}
			w.mu.Unlock()
		}
		return refused, sent
	}
	redistest.Eventually(t, patience, "most are refused, or all are sent", func() bool {
		refused, sent := sum()
		return refused >= connections*calls/2 || sent == connections*calls*len(message)
	})
	more := heap() - before
	t.Logf("%d MiB are kept", more>>20)
	if more > 96<<20 { // 40 are usual; what was sent since the last garbage collection is in it
		t.Errorf("%d MiB are kept for %d requests of a MiB", more>>20, connections*calls)
	}
	conn := f.dialLarge(t)
	create := func(token string, payload int) error {
		_, err := fermatav1.NewJobServiceClient(conn).CreateJob(as(t.Context(), token), createLarge(payload))
		return err
	}
	if err := create("other", 15<<20); err != nil {
		t.Errorf("a large request of another identity: %v", err)
	}
	for _, w := range floods {
		_ = w.conn.Close()
	}
	sending.Wait()
	redistest.Eventually(t, patience, "the closed connections give all back", func() bool { return create("flood", 15<<20) == nil })
	stop()
}

// TestLargeRequestsOfManyCallers: honest callers send largest requests at once to a node that has room for few of them,
// and all are served. A call that has waited for too long is repeated, as clients do.
func TestLargeRequestsOfManyCallers(t *testing.T) {
	limit := debug.SetMemoryLimit(160 << 20)
	f := serveFlooded(t, Options{}, &floodJobs{}, nil)
	debug.SetMemoryLimit(limit) // the clients are in this process
	const callers, calls = 4, 3
	var calling sync.WaitGroup
	errs := make([]error, callers*calls)
	q := createLarge(guard.MaxRequestBytes - 1<<10)
	for i := range errs {
		conn := f.dialLarge(t)
		calling.Go(func() {
			for began := time.Now(); time.Since(began) < patience; {
				_, errs[i] = fermatav1.NewJobServiceClient(conn).CreateJob(as(t.Context(), fmt.Sprint("caller", i%callers)), q)
				if status.Code(errs[i]) != codes.ResourceExhausted {
					return
				}
			}
		})
	}
	calling.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if n := f.jobs.calls.Load(); n != callers*calls {
		t.Errorf("%d calls were served, want %d", n, callers*calls)
	}
}

// TestLargeRequestsAreReadAfterTheirCallerIsKnown: who may not make the call is refused before its request has come.
func TestLargeRequestsAreReadAfterTheirCallerIsKnown(t *testing.T) {
	authority := newAuthority(t, authz.Limits{}, allow(authz.Viewer, "*", "viewer"), allow(authz.Admin, "*", "admin"))
	f := serveFlooded(t, Options{Authority: authority}, &floodJobs{}, nil)
	for _, known := range []bool{true, false} { // an identity has called on the connection before, or none has
		for token, want := range map[string]codes.Code{"viewer": codes.PermissionDenied, "bad": codes.Unauthenticated} {
			w := f.rude(t, window)
			if known {
				if code := w.call(t, "viewer", fermatav1.ClusterService_ListNodes_FullMethodName, nil); code != codes.OK {
					t.Fatal(code)
				}
			}
			id, err := w.open(token, fermatav1.JobService_CreateJob_FullMethodName)
			w.must(t, err, w.framer.WriteData(id, false, append(prefix(15<<20), make([]byte, 1000)...)))
			if code := w.answer(t, id); code != want {
				t.Errorf("%s: %s, want %s", token, code, want)
			}
		}
	}
	// Who may is asked for the rest.
	w := f.rude(t, window)
	id, err := w.open("admin", fermatav1.JobService_CreateJob_FullMethodName)
	w.must(t, err)
	var sending sync.WaitGroup
	sending.Go(func() { w.sendLarge([]*largeCall{{id: id, body: append(prefix(15<<20), make([]byte, 15<<20)...)}}) })
	redistest.Eventually(t, patience, "all of it is taken", w.holds(func() bool { return w.sent == 5+15<<20 }))
	_ = w.conn.Close()
	sending.Wait()
}

// countingWorker counts the messages of a stream of a worker.
type countingWorker struct {
	fermatav1.UnimplementedWorkerServiceServer
}

func (countingWorker) Work(stream grpc.BidiStreamingServer[fermatav1.WorkRequest, fermatav1.WorkResponse]) error {
	for n := 0; ; n++ {
		if _, err := stream.Recv(); err != nil {
			return status.Errorf(codes.Aborted, "%d messages, then %v", n, err)
		}
	}
}

// TestLargeMessagesOfStreams take memory as well, each until the next one is read.
func TestLargeMessagesOfStreams(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(160 << 20))
	f := serveFlooded(t, Options{Worker: countingWorker{}}, &floodJobs{}, nil)
	stream, err := fermatav1.NewWorkerServiceClient(f.dial(t)).Work(as(t.Context(), "admin"))
	if err != nil {
		t.Fatal(err)
	}
	q := &fermatav1.WorkRequest{}
	q.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, 8<<20)))
	for range 10 {
		if err := stream.Send(q); err != nil {
			break // Recv has the reason
		}
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !strings.Contains(fmt.Sprint(err), "10 messages, then EOF") {
		t.Error(err)
	}
}
