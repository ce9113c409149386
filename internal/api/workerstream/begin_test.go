package workerstream

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/memorybudget"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/sessiontest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// quick is a session that has a lease as soon as it is known, while its stream ends.
type quick struct {
	*sessiontest.Recorder
	put, over chan struct{}
}

func (q *quick) Connect(h job.Hello, out job.WorkerStream) (job.WorkerSession, error) {
	s, err := q.Recorder.Connect(h, out)
	if err != nil {
		return nil, err
	}
	d := job.Definition{Key: job.Key{Namespace: "default", ID: "report"}, Queue: "mail", Handler: "send"}
	if err := out.Send(job.Assignments{{LeaseID: "7@default/report", Record: &job.Record{Definition: &d, State: job.State{Lane: d.Lane()}.Leased(7)}}}); err != nil {
		return nil, err
	}
	close(q.put)
	<-q.over // Connect has more to do: it tells of demand and logs
	return s, nil
}

// stuckWorker is a server stream on which nothing can be sent.
type stuckWorker struct {
	fermatav1.WorkerService_WorkServer
	ctx   context.Context
	hello chan *fermatav1.WorkRequest
}

func (s stuckWorker) Context() context.Context { return s.ctx }
func (s stuckWorker) Recv() (*fermatav1.WorkRequest, error) {
	select {
	case m := <-s.hello:
		return m, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}
func (s stuckWorker) SendMsg(any) error { <-s.ctx.Done(); return s.ctx.Err() }
func (s stuckWorker) RecvMsg(any) error { <-s.ctx.Done(); return s.ctx.Err() }

// Leases that never left this process come back to the session, also when the stream ends
// while the session begins.
func TestLeasesOfAStreamThatEndsAsItBegins(t *testing.T) {
	r := sessiontest.NewRecorder()
	q := &quick{Recorder: r, put: make(chan struct{}), over: make(chan struct{})}
	w := NewServer(q, nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream := stuckWorker{ctx: ctx, hello: make(chan *fermatav1.WorkRequest, 1)}
	stream.hello <- &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: sessiontest.GoodHello()}}
	done := make(chan error, 1)
	go func() { done <- w.Work(stream) }()
	<-q.put
	cancel() // the connection breaks
	<-done   // and Work has ended the stream
	close(q.over)
	w.Wait()
	select {
	case unsent := <-r.Unsent:
		leases := 0
		for _, m := range unsent {
			if a, is := m.(job.Assignments); is {
				leases += len(a)
			}
		}
		if leases != 1 {
			t.Errorf("%d leases were given back, want the one that was never sent", leases)
		}
	case <-time.After(redistest.Patience):
		t.Fatal("never closed")
	}
}

// TestSessionCountsTheStream: once a session has begun, its memory is that of sessions, and not that of open streams as
// well.
func TestSessionCountsTheStream(t *testing.T) {
	budget := memorybudget.New(1 << 20)
	memory, ok := guard.TakeStreamMemory(budget, "token:worker")
	if !ok {
		t.Fatal("there is no memory")
	}
	ctx, cancel := context.WithCancel(guard.WithStreamMemory(t.Context(), memory))
	defer cancel()
	w := NewServer(sessiontest.NewRecorder(), nil)
	stream := stuckWorker{ctx: ctx, hello: make(chan *fermatav1.WorkRequest, 1)}
	done := make(chan error, 1)
	go func() { done <- w.Work(stream) }()
	if budget.InUse() == 0 {
		t.Error("a stream without a session takes nothing")
	}
	stream.hello <- &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: sessiontest.GoodHello()}}
	redistest.Eventually(t, redistest.Patience, "the stream takes nothing", func(context.Context) error {
		if n := budget.InUse(); n != 0 {
			return fmt.Errorf("%d bytes", n)
		}
		return nil
	})
	cancel()
	<-done
	w.Wait()
}
