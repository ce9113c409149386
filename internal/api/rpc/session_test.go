package rpc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// recorder is a session that records the calls of the stream.
type recorder struct {
	hello  job.Hello
	out    job.WorkerStream
	err    error
	events chan string
	unsent chan []job.WorkerMessage
	panics bool
}

func (r *recorder) Connect(h job.Hello, out job.WorkerStream) (job.WorkerSession, error) {
	if r.err != nil {
		return nil, r.err
	}
	r.hello, r.out = h, out
	return r, out.Send(job.Welcome{Node: "n1", LeaseTTL: 30 * time.Second, Addresses: []string{"n2:1"}})
}

func (r *recorder) HandleStarted(ids []string) {
	if r.panics {
		panic("boom")
	}
	r.events <- "started " + strings.Join(ids, ",")
}

func (r *recorder) HandleResults(list []job.Result) {
	for _, x := range list {
		r.events <- fmt.Sprintf("result %s %s permanent=%v error=%q output=%d retry=%v took=%v",
			x.LeaseID, x.Outcome, x.Permanent, x.Error, len(x.Output), x.RetryAfter, x.Duration)
	}
}
func (r *recorder) HandleReturned(ids []string) { r.events <- "returned " + strings.Join(ids, ",") }
func (r *recorder) HandleLost(ids []string)     { r.events <- "lost " + strings.Join(ids, ",") }
func (r *recorder) HandleDraining()             { r.events <- "draining" }
func (r *recorder) HandleHeartbeat(seq int64)   { r.events <- fmt.Sprint("heartbeat ", seq) }
func (r *recorder) RequestReconnect() {
	r.events <- "sent away"
	_ = r.out.Send(job.Redirect{}) // its error is the stream's end
}
func (r *recorder) MarkDrained() { r.events <- "left" }
func (r *recorder) Close(reason string, unsent []job.WorkerMessage) {
	r.events <- "close " + reason
	r.unsent <- unsent
}

type workStream = grpc.BidiStreamingClient[fermatav1.WorkRequest, fermatav1.WorkResponse]

func goodHello() *fermatav1.Hello {
	return &fermatav1.Hello{WorkerId: "w-1", Queues: []string{"mail"}, Slots: 4, SessionEpoch: 1, Version: "1.0", LiveLeaseIds: []string{"1@ns/a"}}
}

func sayHello(t *testing.T, s workStream, h *fermatav1.Hello) {
	t.Helper()
	if err := s.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: h}}); err != nil {
		t.Fatal(err)
	}
}

func welcome(t *testing.T, s workStream) {
	t.Helper()
	sayHello(t, s, goodHello())
	m, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if w := m.GetWelcome(); w.GetNode() != "n1" || w.GetLeaseTtl().AsDuration() != 30*time.Second || len(w.GetAddresses()) != 1 {
		t.Fatalf("first message is %v", m)
	}
}

// finish reads until the stream ends.
func finish(t *testing.T, s workStream) error {
	t.Helper()
	for {
		if _, err := s.Recv(); err != nil {
			return err
		}
	}
}

func (r *recorder) want(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-r.events:
			if got != w {
				t.Errorf("session was told %q, want %q", got, w)
			}
		case <-time.After(patience):
			t.Fatalf("session was never told %q", w)
		}
	}
}
