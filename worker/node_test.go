package worker_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/test/nodetest"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// patience bounds every wait of a test: passing it is a failure.
const patience = redistest.Patience

// exampleNode is the node of the examples.
var exampleNode nodetest.Runner

func TestMain(m *testing.M) {
	exampleNode.M = m
	goleak.VerifyTestMain(&exampleNode)
}

// node speaks the server's side of the protocol, one step at a time, as the test
// says.
type node struct {
	options []grpc.ServerOption
	fermatav1.UnimplementedWorkerServiceServer
	t       *testing.T
	addr    string
	streams chan *stream
	lingers chan struct{} // not nil: a stream that the worker has closed ends when this is closed

	mu     sync.Mutex
	server *grpc.Server
}

// stream is one call of Work.
type stream struct {
	t     *testing.T
	hello *fermatav1.Hello
	grpc  fermatav1.WorkerService_WorkServer
	in    chan *fermatav1.WorkRequest // closed when the worker has closed its side
	end   chan error                  // ends the stream from the node's side
	again []*fermatav1.WorkRequest    // looked at, to come next
}

func newNode(t *testing.T, options ...grpc.ServerOption) *node {
	t.Helper()
	n := &node{t: t, options: options, streams: make(chan *stream, 16)}
	n.listen("127.0.0.1:0")
	t.Cleanup(n.kill)
	return n
}

func (n *node) listen(addr string) {
	n.t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addr, n.server = l.Addr().String(), grpc.NewServer(n.options...)
	fermatav1.RegisterWorkerServiceServer(n.server, n)
	go n.server.Serve(l)
}

// kill cuts all connections and stops listening.
func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.server.Stop()
}

func (n *node) Work(g fermatav1.WorkerService_WorkServer) error {
	first, err := g.Recv()
	if err != nil {
		return err
	}
	s := &stream{t: n.t, hello: first.GetHello(), grpc: g, in: make(chan *fermatav1.WorkRequest, 4096),
		end: make(chan error, 1)}
	select {
	case n.streams <- s:
	case <-g.Context().Done():
		return g.Context().Err()
	}
	halfClosed := make(chan struct{})
	go func() {
		defer close(halfClosed)
		defer close(s.in)
		for {
			m, err := g.Recv()
			if err != nil {
				return
			}
			s.in <- m
		}
	}()
	select {
	case err := <-s.end:
		return err
	case <-halfClosed:
	case <-g.Context().Done():
		return g.Context().Err()
	}
	if n.lingers == nil {
		return nil
	}
	select {
	case <-n.lingers:
		return nil
	case <-g.Context().Done():
		return g.Context().Err()
	}
}

// accept waits for a stream, and welcomes it.
func (n *node) accept(ttl time.Duration, addresses ...string) *stream {
	n.t.Helper()
	s := n.greeted()
	s.welcome(ttl, addresses...)
	return s
}

// greeted waits for a stream and leaves it without its Welcome.
func (n *node) greeted() *stream {
	n.t.Helper()
	return receive(n.t, n.streams, "a stream")
}

func (s *stream) welcome(ttl time.Duration, addresses ...string) {
	s.t.Helper()
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Welcome{Welcome: &fermatav1.Welcome{
		Node: "node", LeaseTtl: durationpb.New(ttl), Addresses: addresses,
	}}})
}

func (s *stream) send(m *fermatav1.WorkResponse) {
	s.t.Helper()
	if err := s.grpc.Send(m); err != nil {
		s.t.Fatalf("send %v: %v", m, err)
	}
}

func (s *stream) lease(leases ...*fermatav1.Lease) {
	s.t.Helper()
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Leases{Leases: &fermatav1.Leases{Leases: leases}}})
}

func (s *stream) ack(status fermatav1.ResultAck_Status, ids ...string) {
	s.t.Helper()
	acks := &fermatav1.ResultAcks{}
	for _, id := range ids {
		acks.Acks = append(acks.Acks, &fermatav1.ResultAck{LeaseId: id, Status: status})
	}
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_ResultAcks{ResultAcks: acks}})
}

func (s *stream) cancel(reason fermatav1.Cancel_Reason, ids ...string) {
	s.t.Helper()
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Cancel{Cancel: &fermatav1.Cancel{LeaseIds: ids,
		Reason: reason}}})
}

func (s *stream) drain(addresses ...string) {
	s.t.Helper()
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Drain{Drain: &fermatav1.Drain{Addresses: addresses}}})
}

func (s *stream) relocate(addresses ...string) {
	s.t.Helper()
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Relocate{Relocate: &fermatav1.Relocate{
		Addresses: addresses,
	}}})
}

func (s *stream) next() *fermatav1.WorkRequest {
	s.t.Helper()
	if len(s.again) > 0 {
		m := s.again[0]
		s.again = s.again[1:]
		return m
	}
	return receive(s.t, s.in, "a message")
}

// started expects that these, and only these, start. The word of it may be the
// result of a handler that has returned already, which stays to be read.
func (s *stream) started(ids ...string) {
	s.t.Helper()
	var got []string
	for len(got) < len(ids) {
		m := s.next()
		results := m.GetResults().GetResults()
		if m.GetStarted() == nil && results == nil {
			s.t.Fatalf("got %v, want Started", m)
		}
		got = append(got, m.GetStarted().GetLeaseIds()...)
		for _, r := range results {
			got = append(got, r.GetLeaseId())
		}
		if results != nil {
			s.again = append(s.again, m)
		}
	}
	if !slices.Equal(got, ids) {
		s.t.Fatalf("started %v, want %v", got, ids)
	}
}

// result expects one result and nothing before it.
func (s *stream) result(id string) *fermatav1.Result {
	s.t.Helper()
	m := s.next()
	results := m.GetResults().GetResults()
	if len(results) != 1 || results[0].GetLeaseId() != id {
		s.t.Fatalf("got %v, want one result of %s", m, id)
	}
	return results[0]
}

func (s *stream) returned(ids ...string) {
	s.t.Helper()
	m := s.next()
	if got := m.GetReturned().GetLeaseIds(); !slices.Equal(got, ids) {
		s.t.Fatalf("got %v, want %v returned", m, ids)
	}
}

// lost expects that these leases, and only these, are reported as lost.
func (s *stream) lost(ids ...string) {
	s.t.Helper()
	m := s.next()
	if got := m.GetLost().GetLeaseIds(); !slices.Equal(got, ids) {
		s.t.Fatalf("got %v, want %v lost", m, ids)
	}
}

// closed expects that the worker says nothing more and ends the stream.
func (s *stream) closed() {
	s.t.Helper()
	select {
	case m, open := <-s.in:
		if open {
			s.t.Fatalf("got %v, want the end of the stream", m)
		}
	case <-time.After(patience):
		s.t.Fatal("the worker did not end the stream")
	}
}

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v, open := <-from:
		if !open {
			t.Fatalf("closed, want %s", what)
		}
		return v
	case <-time.After(patience):
		t.Fatalf("no %s within %v", what, patience)
	}
	panic("unreachable")
}

var tokens = struct {
	sync.Mutex
	last int64
}{}

// leaseOf makes a lease whose id is id.
func leaseOf(id, handler string, edit ...func(*fermatav1.Lease)) *fermatav1.Lease {
	tokens.Lock()
	tokens.last++
	token := tokens.last
	tokens.Unlock()
	l := &fermatav1.Lease{
		LeaseId: id, Run: "namespaces/default/jobs/" + id + "/runs/r1", Queue: "default", Handler: handler,
		Attempt: 1, MaxAttempts: 3, Token: token, Timeout: durationpb.New(time.Minute),
		NominalTime: timestamppb.New(time.UnixMilli(1000)), DueTime: timestamppb.New(time.UnixMilli(2000)),
		CorrelationId: "c" + strconv.FormatInt(token, 10),
	}
	for _, e := range edit {
		e(l)
	}
	return l
}

// phaseRunning is a worker whose Run is under way.
type phaseRunning struct {
	*worker.Worker
	t    *testing.T
	stop context.CancelFunc // ends Run's context
	done chan error
}

// run runs a worker whose attempts wait for slots as long as the test lasts.
func run(t *testing.T, o worker.Options, handlers map[string]worker.Handler) *phaseRunning {
	t.Helper()
	return runAs(t, o, handlers, func(w *worker.Worker) { w.KeepWaiting(time.Hour) })
}

func runAs(t *testing.T, o worker.Options, handlers map[string]worker.Handler,
	change func(*worker.Worker)) *phaseRunning {
	t.Helper()
	w, err := worker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	change(w)
	for name, h := range handlers {
		w.Handle(name, h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &phaseRunning{Worker: w, t: t, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- w.Run(ctx) }()
	t.Cleanup(func() {
		w.Abort()
		cancel()
		select {
		case <-r.done:
		case <-time.After(patience):
			t.Error("Run did not return after Abort")
		}
	})
	return r
}

// returned waits for the end of Run.
func (r *phaseRunning) returned() error {
	r.t.Helper()
	err := receive(r.t, r.done, "end of Run")
	r.done <- err
	return err
}
