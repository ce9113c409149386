package rpc

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/api/workerstream"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/sessiontest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// leasingSessions give each worker leases as it connects, as many as it has slots, and acknowledge all that it says of
// them.
type leasingSessions struct {
	mu       sync.Mutex
	returned map[string]int // leases, by worker
	live     map[string]int
}

func newLeasingSessions() *leasingSessions {
	return &leasingSessions{returned: map[string]int{}, live: map[string]int{}}
}

func (l *leasingSessions) Connect(h job.Hello, out job.WorkerStream) (job.WorkerSession, error) {
	if err := out.Send(job.Welcome{Node: "n1", LeaseTTL: 30 * time.Second}); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.live[h.WorkerID] = len(h.Live)
	l.mu.Unlock()
	s := &leasingSession{all: l, worker: h.WorkerID, out: out}
	if len(h.Live) > 0 || !strings.HasPrefix(h.WorkerID, "honest") {
		return s, nil
	}
	record := &job.Record{Definition: &job.Definition{Key: key}}
	leases := make(job.Assignments, h.Slots)
	for i := range leases {
		leases[i] = job.Assignment{LeaseID: fmt.Sprintf("%d@namespace/a-job-with-a-name-of-the-usual-length", 1_800_000_000_000_000+i), Record: record}
	}
	return s, out.Send(leases)
}

type leasingSession struct {
	job.WorkerSession
	all    *leasingSessions
	worker string
	out    job.WorkerStream
}

func (s *leasingSession) ack(id string) {
	if err := s.out.Send(job.ResultAcks{{LeaseID: id}}); err != nil {
		s.out.Stop(errors.Join(job.ErrWorkerTooSlow, err))
	}
}

func (s *leasingSession) HandleResults(list []job.Result) {
	for _, r := range list {
		s.ack(r.LeaseID)
	}
}

func (s *leasingSession) HandleLost(ids []string) {
	for _, id := range ids {
		s.ack(id)
	}
}

func (s *leasingSession) HandleReturned(ids []string) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.all.returned[s.worker] += len(ids)
}

func (s *leasingSession) HandleStarted([]string)            {}
func (s *leasingSession) Close(string, []job.WorkerMessage) {}
func (s *leasingSession) HandleHeartbeat(seq int64) {
	if err := s.out.Send(job.HeartbeatAck{Seq: seq}); err != nil {
		s.out.Stop(errors.Join(job.ErrWorkerTooSlow, err))
	}
}

// serveWorkers serves workers of these names, each an identity.
func serveWorkers(t *testing.T, sessions workerstream.Sessions, names ...string) *flooded {
	t.Helper()
	worker := workerstream.NewServer(sessions, nil)
	t.Cleanup(worker.Wait)
	return serveFlooded(t, Options{Worker: worker, Authority: newAuthority(t, authz.Limits{},
		allow(authz.Worker, "*", names...), allow(authz.Viewer, "*", "healthy"))}, &floodJobs{}, nil)
}

// work opens the stream of a worker, which reads nothing after its Welcome.
func (f *flooded) work(t *testing.T, token, worker string, slots int, live ...string) sessiontest.Stream {
	t.Helper()
	s, err := fermatav1.NewWorkerServiceClient(f.dial(t)).Work(as(t.Context(), token))
	if err != nil {
		t.Fatal(err)
	}
	sessiontest.SayHello(t, s, &fermatav1.Hello{WorkerId: worker, Queues: []string{"mail"}, Slots: int32(slots), SessionEpoch: 1, LiveLeaseIds: live})
	if m, err := s.Recv(); err != nil || m.GetWelcome() == nil {
		t.Fatalf("%v %v", m, err)
	}
	return s
}

func resultsOf(ids ...string) *fermatav1.WorkRequest {
	list := make([]*fermatav1.Result, len(ids))
	for i, id := range ids {
		list[i] = &fermatav1.Result{LeaseId: id}
	}
	return &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Results{Results: &fermatav1.Results{Results: list}}}
}

func lostOf(ids ...string) *fermatav1.WorkRequest {
	return &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Lost{Lost: &fermatav1.Lost{LeaseIds: ids}}}
}

// pour sends a message so many times, or until its stream has ended, which a worker that does not read may not hear.
// What it returns closes the worker's side, so that the stream ends in any case, after all that was sent.
func pour(t *testing.T, s sessiontest.Stream, m *fermatav1.WorkRequest, times int) (finish func()) {
	var sending sync.WaitGroup
	finished := make(chan struct{})
	sending.Go(func() {
		for range times {
			if s.Send(m) != nil {
				break
			}
		}
		<-finished
		_ = s.CloseSend() // it has ended, or ends without a reason
	})
	finish = sync.OnceFunc(func() { close(finished) })
	t.Cleanup(func() {
		finish()
		sending.Wait()
	})
	return finish
}

// foreignIDs are so many ids of so many bytes that no node has given to anybody.
func foreignIDs(n, length int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%0*d", length, i)
	}
	return ids
}

// wantEnd expects that a stream has ended for a reason, once its worker reads.
func wantEnd(t *testing.T, s sessiontest.Stream, code codes.Code, reason string) {
	t.Helper()
	st := status.Convert(sessiontest.ReadToEnd(t, s))
	got := ""
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			got = info.GetReason()
		}
	}
	if st.Code() != code || got != reason {
		t.Errorf("the stream ended with %v, reason %q; want %v, %q", st, got, code, reason)
	}
}

// TestFloodOfForeignResults: a worker with one slot sends results of leases that it was not given, and reads no answer.
// It costs the node little, and the worker its stream.
func TestFloodOfForeignResults(t *testing.T) {
	const most = 24 << 20 // with what the connection and its client hold
	for name, c := range map[string]struct {
		message *fermatav1.WorkRequest
		times   int
		code    codes.Code
		reason  string
	}{
		"empty results":      {resultsOf(make([]string, 7500)...), 300, codes.ResourceExhausted, "TOO_MANY_LEASES"},
		"as many as allowed": {resultsOf(make([]string, 3000)...), 700, codes.ResourceExhausted, "WORKER_TOO_SLOW"},
		"one by one":         {resultsOf(foreignIDs(1, 100)...), 20_000, codes.ResourceExhausted, "WORKER_TOO_SLOW"},
		"long ids":           {resultsOf(foreignIDs(1000, 500)...), 200, codes.ResourceExhausted, "WORKER_TOO_SLOW"},
		"ids too long":       {resultsOf(strings.Repeat("x", 1<<20)), 100, codes.InvalidArgument, "LEASE_ID_TOO_LONG"},
		"lost leases":        {lostOf(make([]string, 7500)...), 10, codes.ResourceExhausted, "TOO_MANY_LEASES"},
		"heartbeats": {&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Heartbeat{Heartbeat: &fermatav1.Heartbeat{Seq: 1}}},
			40_000, codes.ResourceExhausted, "WORKER_TOO_SLOW"},
	} {
		t.Run(name, func(t *testing.T) {
			f := serveWorkers(t, newLeasingSessions(), "eve")
			defer f.others(t)()
			before := heap()
			s := f.work(t, "eve", "w-1", 1)
			finish := pour(t, s, c.message, c.times)
			more := settledHeap(t) - before
			if t.Logf("%d KiB are kept", more>>10); more > most {
				t.Errorf("%d MiB are kept", more>>20)
			}
			finish()
			wantEnd(t, s, c.code, c.reason)
		})
	}
}

// TestUnreadAnswersToManyWorkers: the streams of an identity share what they may leave unread with its calls, however
// many slots they claim. Another identity still has its answers, and what has ended gives all back.
func TestUnreadAnswersToManyWorkers(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(160 << 20))
	const workers, messages = 60, 150
	f := serveWorkers(t, newLeasingSessions(), "eve", "ann")
	stop := f.others(t)
	before := heap()
	var flood []sessiontest.Stream
	var finish []func()
	m := resultsOf(foreignIDs(70, 400)...) // below the size from which gRPC takes buffers of 1 MiB
	for i := range workers {
		s := f.work(t, "eve", fmt.Sprint("w-", i), job.MaxSlots)
		flood = append(flood, s)
		finish = append(finish, pour(t, s, m, messages))
	}
	if more := settledHeap(t) - before; more > 48<<20 {
		t.Errorf("%d MiB are kept for %d MB of answers", more>>20, workers*messages*28/1000)
	}
	s := f.work(t, "ann", "w-1", 1)
	if err := s.Send(resultsOf(foreignIDs(1000, 400)...)); err != nil {
		t.Fatal(err)
	}
	for acks := 0; acks < 1000; {
		answer, err := s.Recv()
		if err != nil {
			t.Fatalf("another identity: %v", err)
		}
		acks += len(answer.GetResultAcks().GetAcks())
	}
	refused := 0
	for i, s := range flood {
		finish[i]()
		if err := sessiontest.ReadToEnd(t, s); !errors.Is(err, io.EOF) {
			// The connection of a stream that has ended is closed after a second unless it is read.
			isClosed := status.Code(err) == codes.Unavailable
			if !isClosed && (status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "unread")) {
				t.Errorf("a stream ended with %v", err)
			}
			refused++
		}
	}
	if refused == 0 {
		t.Error("no stream has ended")
	}
	again := f.work(t, "eve", "w-1", job.MaxSlots)
	pour(t, again, m, messages)()
	if err := sessiontest.ReadToEnd(t, again); !errors.Is(err, io.EOF) {
		t.Errorf("after all has been read: %v", err)
	}
	stop()
}

// settledHeap is what is in use when the server has handled what was sent.
func settledHeap(t *testing.T) int64 {
	t.Helper()
	last, same := heap(), 0
	redistest.Eventually(t, patience, "the memory settles", func() bool {
		before := last
		last, same = heap(), same+1
		if last-before > 1<<20 || before-last > 1<<20 {
			same = 0
		}
		return same == 5
	})
	return last
}

// TestWorkerWithMostSlotsComesBack: a worker that has as many leases as one may have loses its stream, names all on the
// next one, and returns them or sends their results. It reads only when it has said all that.
func TestWorkerWithMostSlotsComesBack(t *testing.T) {
	const slots = job.MaxSlots
	sessions := newLeasingSessions()
	f := serveWorkers(t, sessions, "ann", "other")
	first := f.work(t, "ann", "honest-1", slots)
	var live []string
	for len(live) < slots {
		m, err := first.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range m.GetLeases().GetLeases() {
			live = append(live, l.GetLeaseId())
		}
	}
	for _, c := range []struct {
		name, identity string
		cancelled      int // leases that it was not given
	}{{"the same identity", "ann", 0}, {"a new identity", "other", slots}} {
		t.Run(c.name, func(t *testing.T) {
			s := f.work(t, c.identity, "honest-1", slots, live...)
			for i := 0; i < slots; i += 300 {
				part := live[i:min(i+300, slots)]
				for _, m := range []*fermatav1.WorkRequest{resultsOf(part...), {Message: &fermatav1.WorkRequest_Returned{Returned: &fermatav1.Returned{LeaseIds: part}}}} {
					if err := s.Send(m); err != nil {
						t.Fatal(err, sessiontest.ReadToEnd(t, s))
					}
				}
			}
			// A worker that knows of no parts.
			if err := s.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Started{Started: &fermatav1.Started{LeaseIds: live}}}); err != nil {
				t.Fatal(err)
			}
			for acks, cancelled := 0, 0; acks < slots || cancelled < c.cancelled; {
				m, err := s.Recv()
				if err != nil {
					t.Fatalf("the stream ended with %v, after %d acknowledgements", err, acks)
				}
				acks += len(m.GetResultAcks().GetAcks())
				cancelled += len(m.GetCancel().GetLeaseIds())
			}
			if err := s.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if err := sessiontest.ReadToEnd(t, s); !errors.Is(err, io.EOF) {
				t.Errorf("the stream ended with %v", err)
			}
			sessions.mu.Lock()
			defer sessions.mu.Unlock()
			if n := sessions.live["honest-1"]; n != slots-c.cancelled {
				t.Errorf("the session has %d live leases, want %d", n, slots-c.cancelled)
			}
			if n := sessions.returned["honest-1"]; n != slots {
				t.Errorf("%d leases were returned, want those of the first of the two, %d", n, slots)
			}
		})
	}
}
