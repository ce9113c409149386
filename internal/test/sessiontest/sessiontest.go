// Package sessiontest is both ends of the streams of workers, for tests of the API between them: a session that records
// what its stream reports ([Recorder]), and what a worker says first.
//
// The package is test support: no product package imports it.
package sessiontest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// patience is how long a test waits for an expected event.
const patience = time.Minute

// Recorder is a session that records the calls of its stream.
type Recorder struct {
	Hello    job.Hello
	Out      job.WorkerStream
	Err      error                    // refuses streams
	Panics   bool                     // in HandleStarted
	Reported chan string              // one text for each call
	Unsent   chan []job.WorkerMessage // of Close
}

// NewRecorder returns a recorder that nobody has to read while a test lasts.
func NewRecorder() *Recorder {
	return &Recorder{Reported: make(chan string, 1000), Unsent: make(chan []job.WorkerMessage, 100)}
}

// Connect welcomes a worker, or refuses it.
func (r *Recorder) Connect(h job.Hello, out job.WorkerStream) (job.WorkerSession, error) {
	if r.Err != nil {
		return nil, r.Err
	}
	r.Hello, r.Out = h, out
	return r, out.Send(job.Welcome{Node: "n1", LeaseTTL: 30 * time.Second, Addresses: []string{"n2:1"}})
}

// HandleStarted records the leases.
func (r *Recorder) HandleStarted(ids []string) {
	if r.Panics {
		panic("boom")
	}
	r.Reported <- "started " + strings.Join(ids, ",")
}

// HandleResults records each result.
func (r *Recorder) HandleResults(list []job.Result) {
	for _, x := range list {
		r.Reported <- fmt.Sprintf("result %s %s permanent=%v error=%q output=%d retry=%v took=%v",
			x.LeaseID, x.Outcome, x.Permanent, x.Error, len(x.Output), x.RetryAfter, x.Duration)
	}
}

// HandleReturned records the leases.
func (r *Recorder) HandleReturned(ids []string) { r.Reported <- "returned " + strings.Join(ids, ",") }

// HandleLost records the leases.
func (r *Recorder) HandleLost(ids []string) { r.Reported <- "lost " + strings.Join(ids, ",") }

// HandleDraining records the call.
func (r *Recorder) HandleDraining() { r.Reported <- "draining" }

// HandleHeartbeat records the number of the heartbeat.
func (r *Recorder) HandleHeartbeat(seq int64) { r.Reported <- fmt.Sprint("heartbeat ", seq) }

// RequestReconnect records the call and sends the worker away.
func (r *Recorder) RequestReconnect() {
	r.Reported <- "sent away"
	_ = r.Out.Send(job.Redirect{}) // its error is the stream's end
}

// MarkDrained records the call.
func (r *Recorder) MarkDrained() { r.Reported <- "left" }

// Close records the reason and what was not sent.
func (r *Recorder) Close(reason string, unsent []job.WorkerMessage) {
	r.Reported <- "close " + reason
	r.Unsent <- unsent
}

// Want expects these records next, in this order.
func (r *Recorder) Want(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-r.Reported:
			if got != w {
				t.Errorf("session was told %q, want %q", got, w)
			}
		case <-time.After(patience):
			t.Fatalf("session was never told %q", w)
		}
	}
}

// Stream is a worker's end of a stream.
type Stream = grpc.BidiStreamingClient[fermatav1.WorkRequest, fermatav1.WorkResponse]

// GoodHello is a Hello with nothing wrong.
func GoodHello() *fermatav1.Hello {
	return &fermatav1.Hello{
		WorkerId: "w-1", Queues: []string{"mail"}, Slots: 4, SessionEpoch: 1, Version: "1.0",
		LiveLeaseIds: []string{"1@ns/a"},
	}
}

// SayHello sends a Hello.
func SayHello(t *testing.T, s Stream, h *fermatav1.Hello) {
	t.Helper()
	if err := s.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: h}}); err != nil {
		t.Fatal(err)
	}
}

// ExpectWelcome sends a good Hello and expects the Welcome of a [Recorder].
func ExpectWelcome(t *testing.T, s Stream) {
	t.Helper()
	SayHello(t, s, GoodHello())
	m, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	w := m.GetWelcome()
	if w.GetNode() != "n1" || w.GetLeaseTtl().AsDuration() != 30*time.Second || len(w.GetAddresses()) != 1 {
		t.Fatalf("first message is %v", m)
	}
}

// ReadToEnd reads until the stream ends, and returns its error.
func ReadToEnd(t *testing.T, s Stream) error {
	t.Helper()
	for {
		if _, err := s.Recv(); err != nil {
			return err
		}
	}
}
