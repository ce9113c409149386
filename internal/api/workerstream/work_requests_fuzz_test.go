package workerstream

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	"github.com/fermata-io/fermata/internal/test/sessiontest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// script is a stream whose worker says what a test wrote down.
type script struct {
	grpc.ServerStream
	ctx  context.Context
	said [][]byte
}

func (s *script) Context() context.Context { return s.ctx }

func (s *script) RecvMsg(m any) error {
	if len(s.said) == 0 {
		return io.EOF
	}
	data := mem.BufferSlice{mem.SliceBuffer(s.said[0])}
	s.said = s.said[1:]
	return grpccodec.Codec().Unmarshal(data, m)
}

func (s *script) Recv() (*fermatav1.WorkRequest, error) {
	m := &fermatav1.WorkRequest{}
	return m, s.RecvMsg(m)
}

func (s *script) Send(*fermatav1.WorkResponse) error { return nil } // nobody asks for it

// FuzzWorkRequests: whatever a worker says on its stream, in whatever order, ends
// the stream at most, and what is passed on is within bounds.
func FuzzWorkRequests(f *testing.F) {
	hello := &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: sessiontest.GoodHello()}}
	for _, m := range []*fermatav1.WorkRequest{
		hello, {}, {Message: &fermatav1.WorkRequest_Started{Started: &fermatav1.Started{LeaseIds: []string{"1@ns/a", "", "@", "1@"}}}},
		{Message: &fermatav1.WorkRequest_Results{Results: &fermatav1.Results{Results: []*fermatav1.Result{{LeaseId: "1@ns/a", Outcome: 99, Output: make([]byte, job.MaxOutput+1)}, nil}}}},
		{Message: &fermatav1.WorkRequest_Returned{Returned: &fermatav1.Returned{LeaseIds: []string{"18446744073709551616@ns/a#"}}}},
		{Message: &fermatav1.WorkRequest_Draining{}},
	} {
		first, err := proto.Marshal(hello)
		if err != nil {
			f.Fatal(err)
		}
		wire, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(first, wire)
		f.Add(wire, first)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		stream := &script{ctx: t.Context()}
		for _, wire := range [][]byte{first, second, second} {
			if proto.Unmarshal(wire, &fermatav1.WorkRequest{}) != nil {
				return
			}
			stream.said = append(stream.said, wire)
		}
		s := &workerStream{
			stream: stream, sessions: anySession{t}, out: newOutbox(func() {}), hello: make(chan struct{}), stopped: make(chan struct{}),
		}
		err := s.recoverPanic(s.receiveHello)
		if err == nil {
			err = s.recoverPanic(s.readMessages)
		}
		if err == nil || slices.Contains([]codes.Code{codes.Internal}, status.Code(err)) {
			t.Fatalf("got %v", err)
		}
		if p := (*apierror.Panic)(nil); errors.As(err, &p) {
			t.Fatalf("%v\n%s", p, p.Stack)
		}
	})
}

// anySession takes whatever a worker says.
type anySession struct{ t *testing.T }

func (a anySession) Connect(h job.Hello, out job.WorkerStream) (job.WorkerSession, error) {
	if v := h.Validate(); len(v) > 0 {
		a.t.Fatalf("passed on: %v", v)
	}
	return a, out.Send(job.Welcome{Node: "n", LeaseTTL: time.Second})
}

func (a anySession) ids(ids []string) {
	for _, id := range ids {
		record, token, ok := job.ParseLeaseID(id)
		if ok && (token == 0 || record.Key() == (job.Key{})) {
			a.t.Fatalf("lease %q is record %q, token %d", id, record, token)
		}
	}
}
func (a anySession) HandleStarted(ids []string)  { a.ids(ids) }
func (a anySession) HandleReturned(ids []string) { a.ids(ids) }
func (a anySession) HandleLost([]string)         {}
func (a anySession) HandleDraining()             {}
func (a anySession) MarkDrained()                {}
func (a anySession) HandleHeartbeat(int64)       {}
func (a anySession) RequestReconnect()           {}
func (a anySession) HandleResults(list []job.Result) {
	for _, r := range list {
		a.ids([]string{r.LeaseID})
		if len(r.Output) > job.MaxOutput || len(r.Error) > job.MaxError || r.RetryAfter < 0 || r.Duration < 0 {
			a.t.Fatalf("passed on: %+v", r)
		}
	}
}
func (a anySession) Close(string, []job.WorkerMessage) {}
