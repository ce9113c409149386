package workerstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	"github.com/fermata-io/fermata/internal/test/sessiontest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// workBench serves sessions over an in-memory connection and opens one stream.
func workBench(t *testing.T, r *sessiontest.Recorder) sessiontest.Stream {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	listener := bufconn.Listen(1 << 20)
	worker := NewServer(r, nil)
	g := guard.NewReporter(worker.logger, nil)
	server := grpc.NewServer(grpc.StreamInterceptor(g.StreamInterceptor), grpc.ForceServerCodecV2(grpccodec.Codec()))
	fermatav1.RegisterWorkerServiceServer(server, worker)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	conn, err := grpc.NewClient("passthrough:///bench", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(func() {
		cancel()
		_ = conn.Close()
		server.Stop()
		worker.Wait()
		serving.Wait()
		goleak.VerifyNone(t, leaks)
	})
	stream, err := fermatav1.NewWorkerServiceClient(conn).Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func TestWorkerMessagesReachTheSession(t *testing.T) {
	r := sessiontest.NewRecorder()
	s := workBench(t, r)
	sessiontest.ExpectWelcome(t, s)
	if h := r.Hello; h.WorkerID != "w-1" || h.Namespace != "default" || h.Slots != 4 || h.Epoch != 1 || len(h.Live) != 1 {
		t.Errorf("hello is %+v", h)
	}
	long := strings.Repeat("x", 10_000)
	for _, m := range []*fermatav1.WorkRequest{
		{Message: &fermatav1.WorkRequest_Started{Started: &fermatav1.Started{LeaseIds: []string{"a", "b"}}}},
		{Message: &fermatav1.WorkRequest_Results{Results: &fermatav1.Results{Results: []*fermatav1.Result{
			{LeaseId: "a", Outcome: fermatav1.Result_OUTCOME_SUCCEEDED, Output: []byte(long), Duration: durationpb.New(time.Second)},
			{LeaseId: "b", Outcome: fermatav1.Result_OUTCOME_FAILED_PERMANENTLY, Error: "bad", RetryAfter: durationpb.New(-time.Second)},
			{LeaseId: "c", Outcome: 99, RetryAfter: durationpb.New(time.Minute)},
		}}}},
		{Message: &fermatav1.WorkRequest_Returned{Returned: &fermatav1.Returned{LeaseIds: []string{"d"}}}},
		{Message: &fermatav1.WorkRequest_Lost{Lost: &fermatav1.Lost{LeaseIds: []string{"e", "f"}}}},
		{}, // of a later version
		{Message: &fermatav1.WorkRequest_Heartbeat{Heartbeat: &fermatav1.Heartbeat{Seq: 3}}},
		{Message: &fermatav1.WorkRequest_Draining{Draining: &fermatav1.Draining{}}},
	} {
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	r.Want(t,
		"started a,b",
		`result a succeeded permanent=false error="" output=4096 retry=0s took=1s`,
		`result b failed permanent=true error="bad" output=0 retry=0s took=0s`,
		`result c failed permanent=false error="worker reported no outcome" output=0 retry=1m0s took=0s`,
		"returned d", "lost e,f", "heartbeat 3", "draining", "left", "close worker left")
	if err := sessiontest.ReadToEnd(t, s); !errors.Is(err, io.EOF) {
		t.Errorf("stream ended with %v", err)
	}
}

func TestSessionMessagesReachTheWorker(t *testing.T) {
	r := sessiontest.NewRecorder()
	s := workBench(t, r)
	sessiontest.ExpectWelcome(t, s)
	key := job.Key{Namespace: "default", ID: "report"}
	d := job.Definition{Key: key, Queue: "mail", Handler: "send", Payload: []byte("p"), Timeout: 30 * time.Second, Labels: map[string]string{"a": "b"}}
	d.Retry.MaxAttempts = 3
	state := job.State{Lane: d.Lane(), Nominal: 1_000, Due: 2_000, Attempt: 1, Generation: 4}.Leased(7)
	for _, m := range []job.WorkerMessage{
		job.Assignments{{LeaseID: "7@default/report", Record: &job.Record{Definition: &d, State: state}}},
		job.ResultAcks{{LeaseID: "x", Status: job.AckStale}},
		job.Cancellation{LeaseIDs: []string{"y"}, Reason: job.CancelTimedOut},
		job.Addresses{"n2:1", "n3:1"},
		job.Redirect{Addresses: []string{"n2:1"}},
	} {
		if err := r.Out.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	var leases []*fermatav1.Lease
	var acks []*fermatav1.ResultAck // which come along with what is next, whatever that is
	var cancel *fermatav1.Cancel
	var drain *fermatav1.Drain
	var others []string
	for range 5 {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.GetMessage().(type) {
		case *fermatav1.WorkResponse_Leases:
			leases = m.Leases.GetLeases()
		case *fermatav1.WorkResponse_ResultAcks:
			acks = m.ResultAcks.GetAcks()
		case *fermatav1.WorkResponse_Cancel:
			cancel = m.Cancel
		case *fermatav1.WorkResponse_Drain:
			drain = m.Drain
		case *fermatav1.WorkResponse_Addresses:
			others = m.Addresses.GetAddresses()
		}
	}
	if !slices.Equal(others, []string{"n2:1", "n3:1"}) {
		t.Errorf("addresses are %v", others)
	}
	if len(leases) != 1 || len(acks) != 1 || len(cancel.GetLeaseIds()) != 1 {
		t.Fatalf("leases %v, acknowledgements %v, cancelled %v", leases, acks, cancel)
	}
	l := leases[0]
	if l.GetRun() != "namespaces/default/jobs/report/runs/4-1000" || l.GetAttempt() != 2 || l.GetMaxAttempts() != 3 || l.GetToken() != 7 ||
		l.GetQueue() != "mail" || l.GetHandler() != "send" || l.GetDueTime().AsTime().UnixMilli() != 2_000 || l.GetCorrelationId() == "" ||
		l.GetTimeout().AsDuration() != 30*time.Second || l.GetLabels()["a"] != "b" || string(l.GetPayload()) != "p" || l.GetLeaseId() != "7@default/report" {
		t.Errorf("lease is %v", l)
	}
	if a := acks[0]; a.GetLeaseId() != "x" || a.GetStatus() != fermatav1.ResultAck_STATUS_STALE {
		t.Errorf("ack is %v", a)
	}
	if c := cancel; c.GetLeaseIds()[0] != "y" || c.GetReason() != fermatav1.Cancel_REASON_TIMED_OUT {
		t.Errorf("cancel is %v", c)
	}
	if a := drain.GetAddresses(); !slices.Equal(a, []string{"n2:1"}) {
		t.Errorf("drain is %v", a)
	}
	// The session has begun when it hears something.
	if err := s.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Returned{Returned: &fermatav1.Returned{LeaseIds: []string{"d"}}}}); err != nil {
		t.Fatal(err)
	}
	r.Want(t, "returned d")
	r.Out.Stop(job.ErrDraining)
	r.Out.Stop(job.ErrSuperseded)
	if err := sessiontest.ReadToEnd(t, s); status.Code(err) != codes.Unavailable {
		t.Errorf("stream ended with %v", err)
	}
	r.Want(t, "close Unavailable: this node stops; connect to another one")
	if err := r.Out.Send(job.Redirect{}); err == nil {
		t.Error("a stream that has ended takes messages")
	}
}

// What a node that stops has said before reaches the worker: the addresses may be the only
// ones that still lead anywhere, and acknowledgements spare it to report once more.
func TestLastWordsOfANodeThatStops(t *testing.T) {
	for range 20 { // who is quicker is a matter of luck
		t.Run("", testLastWords)
	}
}

func testLastWords(t *testing.T) {
	r := sessiontest.NewRecorder()
	s := workBench(t, r)
	sessiontest.ExpectWelcome(t, s)
	for _, m := range []job.WorkerMessage{
		job.ResultAcks{{LeaseID: "x"}}, job.Redirect{Addresses: []string{"n2:1"}}, job.ResultAcks{{LeaseID: "y"}},
	} {
		if err := r.Out.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	r.Out.Stop(job.ErrDraining)
	acks, addresses := 0, []string(nil)
	m, err := s.Recv()
	for ; err == nil; m, err = s.Recv() {
		acks += len(m.GetResultAcks().GetAcks())
		addresses = append(addresses, m.GetDrain().GetAddresses()...)
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("stream ended with %v", err)
	}
	if acks != 2 || !slices.Equal(addresses, []string{"n2:1"}) {
		t.Errorf("the worker heard %d acknowledgements and was sent to %v", acks, addresses)
	}
	if unsent := <-r.Unsent; len(unsent) > 0 {
		t.Errorf("unsent are %v", unsent)
	}
}

func TestHelloIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*fermatav1.Hello)
		field string
	}{
		"worker":         {func(h *fermatav1.Hello) { h.WorkerId = "no spaces" }, "hello.worker_id"},
		"namespace":      {func(h *fermatav1.Hello) { h.Namespace = "a/b" }, "hello.namespace"},
		"queues":         {func(h *fermatav1.Hello) { h.Queues = nil }, "hello.queues"},
		"queue":          {func(h *fermatav1.Hello) { h.Queues = []string{"a", ""} }, "hello.queues[1]"},
		"twice":          {func(h *fermatav1.Hello) { h.Queues = []string{"a", "a"} }, "hello.queues[1]"},
		"slots":          {func(h *fermatav1.Hello) { h.Slots = 0 }, "hello.slots"},
		"many":           {func(h *fermatav1.Hello) { h.Slots = job.MaxSlots + 1 }, "hello.slots"},
		"epoch":          {func(h *fermatav1.Hello) { h.SessionEpoch = -1 }, "hello.session_epoch"},
		"live_lease_ids": {func(h *fermatav1.Hello) { h.LiveLeaseIds = make([]string, 1033) }, "hello.live_lease_ids"},
		"version":        {func(h *fermatav1.Hello) { h.Version = strings.Repeat("v", 129) }, "hello.version"},
	} {
		t.Run(name, func(t *testing.T) {
			s := workBench(t, sessiontest.NewRecorder())
			h := sessiontest.GoodHello()
			c.spoil(h)
			sessiontest.SayHello(t, s, h)
			wantBadRequest(t, sessiontest.ReadToEnd(t, s), c.field)
		})
	}
}

func wantBadRequest(t *testing.T, err error, field string) {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != codes.InvalidArgument || len(st.Details()) != 1 {
		t.Fatalf("stream ended with %v", err)
	}
	if f := st.Details()[0].(*errdetails.BadRequest).GetFieldViolations()[0].GetField(); f != field {
		t.Errorf("violation of %q, want %q", f, field)
	}
}

func TestStreamsOutOfOrder(t *testing.T) {
	t.Run("no hello", func(t *testing.T) {
		s := workBench(t, sessiontest.NewRecorder())
		if err := s.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Draining{}}); err != nil {
			t.Fatal(err)
		}
		wantBadRequest(t, sessiontest.ReadToEnd(t, s), "hello")
	})
	t.Run("two hellos", func(t *testing.T) {
		r := sessiontest.NewRecorder()
		s := workBench(t, r)
		sessiontest.ExpectWelcome(t, s)
		sessiontest.SayHello(t, s, sessiontest.GoodHello())
		wantBadRequest(t, sessiontest.ReadToEnd(t, s), "hello")
		r.Want(t, "close InvalidArgument: a stream must not send Hello twice")
	})
	t.Run("silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			if err := sessiontest.ReadToEnd(t, workBench(t, sessiontest.NewRecorder())); status.Code(err) != codes.DeadlineExceeded || time.Since(began) != helloTimeout {
				t.Errorf("after %v the stream ended with %v", time.Since(began), err)
			}
		})
	})
	t.Run("refused", func(t *testing.T) {
		r := sessiontest.NewRecorder()
		r.Err = job.ErrSuperseded
		s := workBench(t, r)
		sessiontest.SayHello(t, s, sessiontest.GoodHello())
		if err := sessiontest.ReadToEnd(t, s); status.Code(err) != codes.Aborted {
			t.Errorf("stream ended with %v", err)
		}
	})
	t.Run("panic", func(t *testing.T) {
		r := sessiontest.NewRecorder()
		r.Panics = true
		s := workBench(t, r)
		sessiontest.ExpectWelcome(t, s)
		if err := s.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Started{}}); err != nil {
			t.Fatal(err)
		}
		if err := sessiontest.ReadToEnd(t, s); status.Code(err) != codes.Internal {
			t.Errorf("stream ended with %v", err)
		}
		r.Want(t, "close Unknown: panic: boom")
	})
}

// A worker hears of heartbeats, and that these are acknowledged ahead of leases, which may be
// large; what was refused it hears of before.
func TestHeartbeatsAreAcknowledgedAheadOfLeases(t *testing.T) {
	r := sessiontest.NewRecorder()
	s := workBench(t, r)
	hello := sessiontest.GoodHello()
	hello.SupportsHeartbeats = true
	sessiontest.SayHello(t, s, hello)
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	if !r.Hello.Heartbeats {
		t.Error("the session does not know that there are heartbeats")
	}
	if w := messageToPB(job.Welcome{SessionTTL: 8 * time.Second}).GetWelcome(); w.GetSessionTtl().AsDuration() != 8*time.Second {
		t.Errorf("welcome is %v", w)
	}
	if w := messageToPB(job.Welcome{}).GetWelcome(); w.GetSessionTtl() != nil {
		t.Errorf("welcome is %v", w)
	}
	if err := r.Out.Send(job.HeartbeatAck{Seq: 7, Confirmed: true}); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); err != nil || m.GetHeartbeatAck().GetSeq() != 7 || !m.GetHeartbeatAck().GetConfirmed() {
		t.Errorf("got %v, %v", m, err)
	}

	o := newOutbox(func() {})
	o.setLimit(job.Hello{Slots: 4})
	d := &job.Definition{}
	lease := job.Assignments{{LeaseID: "1@ns/a", Record: &job.Record{Definition: d}}}
	for _, m := range []job.WorkerMessage{
		lease, job.Cancellation{LeaseIDs: []string{"y"}, Reason: job.CancelLeaseLost}, lease, job.HeartbeatAck{Seq: 1}, job.HeartbeatAck{Seq: 2},
	} {
		if err := o.enqueue(m); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for m := o.dequeue(); m != nil; m = o.dequeue() {
		got = append(got, fmt.Sprintf("%T", m)[len("job."):])
	}
	if want := []string{"Assignments", "Cancellation", "HeartbeatAck", "HeartbeatAck", "Assignments"}; !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// A worker that does not read: the queue fills up, Send says so, and the stream
// ends although its writer is stuck. What never left comes back.
func TestSlowWorkerDoesNotHoldTheSession(t *testing.T) {
	for reason, closed := range map[error]string{
		job.ErrWorkerTooSlow: "close ResourceExhausted: the worker does not keep up with its stream",
		job.ErrDraining:      "close Unavailable: this node stops; connect to another one",
	} {
		t.Run(reason.Error(), func(t *testing.T) { testSlowWorker(t, reason, closed) })
	}
}

func testSlowWorker(t *testing.T, reason error, closed string) {
	r := sessiontest.NewRecorder()
	s := workBench(t, r)
	sessiontest.ExpectWelcome(t, s)
	payload := make([]byte, 256<<10)
	sent := 0
	for ; sent < 1_000_000; sent++ {
		l := job.Assignment{LeaseID: fmt.Sprint(sent), Record: &job.Record{Definition: &job.Definition{Payload: payload}}}
		if err := r.Out.Send(job.Assignments{l}); err != nil {
			break
		}
	}
	if sent == 1_000_000 {
		t.Fatal("queue is not bounded")
	}
	r.Out.Stop(reason)
	r.Want(t, closed)
	unsent := <-r.Unsent
	n := 0
	for _, m := range unsent {
		n += len(m.(job.Assignments))
	}
	if n == 0 || n >= sent {
		t.Errorf("%d of %d came back", n, sent)
	}
	received := 0
	for {
		m, err := s.Recv()
		if err != nil {
			break
		}
		received += len(m.GetLeases().GetLeases())
	}
	if received+n > sent {
		t.Errorf("%d received and %d returned of %d sent", received, n, sent)
	}
}

func TestOutboxJoinsAndSplits(t *testing.T) {
	o := newOutbox(func() {})
	o.setLimit(job.Hello{Slots: 10_000})
	big := make([]byte, maxMessageBytes*2/5)
	put := func(m job.WorkerMessage) {
		t.Helper()
		if err := o.enqueue(m); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		put(job.Assignments{{Record: &job.Record{Definition: &job.Definition{Payload: big}}}})
	}
	for range 700 {
		put(job.ResultAcks{{}})
	}
	put(job.Cancellation{LeaseIDs: []string{"a"}})
	put(job.Cancellation{LeaseIDs: []string{"b"}})
	put(job.Cancellation{LeaseIDs: []string{"c"}, Reason: job.CancelTimedOut})
	put(job.Redirect{})
	put(job.Redirect{})
	var got []string
	for m := o.dequeue(); m != nil; m = o.dequeue() {
		got = append(got, fmt.Sprintf("%T:%d", m, loadOf(m).items)[4:])
	}
	want := []string{
		"ResultAcks:300", "ResultAcks:300", "ResultAcks:100", "Assignments:2", "Assignments:2", "Assignments:1",
		"Cancellation:2", "Cancellation:1", "Redirect:1", "Redirect:1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("took %v, want %v", got, want)
	}
	if o.waiting != (load{}) {
		t.Errorf("%+v is left", o.waiting)
	}
}

// Acknowledgements go along with what is sent anyway, or after a moment; never later,
// however much else there is.
func TestAcknowledgementsWaitForCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Bool
		o := newOutbox(func() { writes.Store(true) })
		o.setLimit(job.Hello{Slots: 100})
		lease := func() job.Assignments {
			return job.Assignments{{Record: &job.Record{Definition: &job.Definition{}}}}
		}
		put := func(list ...job.WorkerMessage) {
			for _, m := range list {
				if err := o.enqueue(m); err != nil {
					t.Fatal(err)
				}
			}
		}
		took := func(want ...string) {
			t.Helper()
			var got []string
			for m := o.dequeue(); m != nil; m = o.dequeue() {
				got = append(got, fmt.Sprintf("%T:%d", m, loadOf(m).items)[4:])
			}
			if !slices.Equal(got, want) {
				t.Errorf("took %v, want %v", got, want)
			}
		}
		woken := func() bool { return writes.Swap(false) }
		for range 2 { // the timer is used again
			put(job.ResultAcks{{}}, job.ResultAcks{{}})
			time.Sleep(maxAckDelay - time.Microsecond)
			synctest.Wait()
			if took(); woken() {
				t.Error("woken for acknowledgements alone")
			}
			time.Sleep(time.Microsecond)
			synctest.Wait()
			if !woken() {
				t.Error("not woken after the pause")
			}
			took("ResultAcks:2")
		}
		put(job.ResultAcks{{}}, lease())
		took("Assignments:1", "ResultAcks:1")
		// Where they are frequent they wait longer.
		for range frequentAcks {
			put(job.ResultAcks{{}}, lease())
			time.Sleep(time.Millisecond)
			for o.dequeue() != nil {
			}
		}
		time.Sleep(maxFrequentAckDelay) // the timer of an acknowledgement that had company
		synctest.Wait()
		woken()
		took()
		put(job.ResultAcks{{}})
		time.Sleep(maxFrequentAckDelay - time.Microsecond)
		synctest.Wait()
		if took(); woken() {
			t.Error("woken for frequent acknowledgements too early")
		}
		time.Sleep(time.Microsecond)
		synctest.Wait()
		if !woken() {
			t.Error("not woken after the longer pause")
		}
		took("ResultAcks:1")
		put(lease(), job.Redirect{}, job.ResultAcks{{}}, job.ResultAcks{{}})
		took("Assignments:1", "ResultAcks:2", "Redirect:1")
		woken()
		put(make(job.ResultAcks, maxMessageItems))
		if !woken() {
			t.Error("not woken for a full message")
		}
		put(job.ResultAcks{{}})
		took("ResultAcks:300", "ResultAcks:1")
		put(job.ResultAcks{{LeaseID: "a"}})
		if left := o.closeAndDrain(); len(left) != 1 || o.waiting.items != 1 {
			t.Errorf("closed with %v", left)
		}
		time.Sleep(time.Second) // rings in vain, or not at all
	})
}
