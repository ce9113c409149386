package guard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// sentStream is a stream that a client has sent some bytes of.
type sentStream struct {
	grpc.ServerTransportStream
	data  []byte
	ends  bool // the client has ended it
	over  chan struct{}
	given *status.Status

	method  string // "": one of a test
	largest int    // number of bytes that were read at once
}

func newSentStream(length uint32, ends bool, data ...byte) *sentStream {
	return &sentStream{data: append(binary.BigEndian.AppendUint32([]byte{0}, length), data...), ends: ends, over: make(chan struct{})}
}

func (s *sentStream) Method() string { return cmp.Or(s.method, "/test/Call") }

// sentMessage is a stream that a client has sent a message on.
func sentMessage(t *testing.T, m proto.Message) *sentStream {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return newSentStream(uint32(len(data)), true, data...)
}

func (s *sentStream) ReadMessageHeader(header []byte) error {
	data, err := s.Read(len(header))
	if err == nil {
		copy(header, data.Materialize())
	}
	return err
}

func (s *sentStream) Read(n int) (mem.BufferSlice, error) {
	s.largest = max(s.largest, n)
	if len(s.data) >= n {
		var out []byte
		out, s.data = s.data[:n], s.data[n:]
		return mem.BufferSlice{mem.SliceBuffer(out)}, nil
	}
	if s.ends {
		return nil, io.EOF
	}
	<-s.over
	return nil, status.Error(codes.Canceled, "over")
}

func (s *sentStream) WriteStatus(st *status.Status) error {
	if s.given == nil {
		s.given = st
		close(s.over)
	}
	return nil
}

// newReader is a reader of the messages of a server, and the context of a call.
func newReader(t *testing.T) (*messageReader, context.Context) {
	t.Helper()
	gate, err := New(Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	conn := &connection{host: "h"}
	conn.hasRole.Store(true)
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}, AuthInfo: conn})
	return &messageReader{gate: gate, codec: grpccodec.Codec(), maxBytes: MaxRequestBytes}, ctx
}

// TestRequestsTakeMemoryWhileTheyArrive: from when its length is known until it was served, and also if it never arrives.
func TestRequestsTakeMemoryWhileTheyArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ctx := newReader(t)
		const length = 1 << 20
		slow := &incoming{messageReader: r, wire: newSentStream(length, false), ctx: ctx}
		began, ended := time.Now(), make(chan error)
		go func() { ended <- slow.readOnly(&wrapperspb.BytesValue{}) }()
		synctest.Wait()
		if n := r.gate.requests.taken.InUse(); n != length {
			t.Errorf("%d bytes are taken for a request of %d", n, length)
		}
		if err := <-ended; status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a request that does not arrive: %v", err)
		}
		if took := time.Since(began); took != requestTime+4*time.Second {
			t.Errorf("it had %v", took)
		}
		slow.release()
		if n := r.gate.requests.taken.InUse(); n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	})
}

// TestRequestsWaitForMemory: a call waits until others give memory back, and is refused after a while. Few calls of an
// identity wait at a time.
func TestRequestsWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ctx := newReader(t)
		m := &r.gate.requests
		*m = newRequestMemory(0)
		m.taken.TakeAnyway("others", minRequestMemory)
		results := make(chan error)
		calls := 0
		for range 100 {
			calls++
			go func() {
				q := &incoming{messageReader: r, wire: newSentStream(4<<20, false), ctx: ctx}
				results <- q.read(&wrapperspb.BytesValue{})
			}()
		}
		synctest.Wait()
		if n := m.waiting.InUse(); n == 0 || n > minRequestMemory/8 {
			t.Errorf("waiting calls have %d bytes", n)
		}
		began := time.Now()
		for range calls {
			if err := <-results; status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != requestPatience {
			t.Errorf("they waited %v", took)
		}
		if n := m.waiting.InUse(); n != 0 {
			t.Errorf("%d bytes are left", n)
		}
		// One that waits is served when there is memory.
		value := make([]byte, 4<<20)
		data, err := grpccodec.Codec().Marshal(wrapperspb.Bytes(value))
		if err != nil {
			t.Fatal(err)
		}
		body := data.Materialize()
		q := &incoming{messageReader: r, wire: newSentStream(uint32(len(body)), true, body...), ctx: ctx}
		got := &wrapperspb.BytesValue{}
		go func() { results <- q.readOnly(got) }()
		synctest.Wait()
		m.taken.Give("others", minRequestMemory)
		if err := <-results; err != nil || len(got.GetValue()) != len(value) {
			t.Errorf("%d bytes, %v", len(got.GetValue()), err)
		}
		q.release()
		if n := m.taken.InUse(); n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	})
}

// TestMessagesAsTheyArrive: what gRPC refuses is refused.
func TestMessagesAsTheyArrive(t *testing.T) {
	r, ctx := newReader(t)
	for name, c := range map[string]struct {
		stream *sentStream
		want   codes.Code
	}{
		"a request":       {newSentStream(0, true), codes.OK},
		"no request":      {&sentStream{ends: true, over: make(chan struct{})}, codes.Internal},
		"half of one":     {newSentStream(10, true, 1, 2), codes.Internal},
		"half a header":   {&sentStream{data: []byte{0, 0}, ends: true, over: make(chan struct{})}, codes.Internal},
		"two requests":    {newSentStream(0, true, 0, 0, 0, 0, 0), codes.Internal},
		"too long":        {newSentStream(MaxRequestBytes+1, true), codes.ResourceExhausted},
		"compressed":      {&sentStream{data: []byte{1, 0, 0, 0, 0}, ends: true, over: make(chan struct{})}, codes.Internal},
		"of another form": {&sentStream{data: []byte{7, 0, 0, 0, 0}, ends: true, over: make(chan struct{})}, codes.Internal},
		"no message":      {newSentStream(1, true, 0xff), codes.Internal},
	} {
		q := &incoming{messageReader: r, wire: c.stream, ctx: ctx}
		if err := q.readOnly(&wrapperspb.BytesValue{}); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if got := c.stream.given.Code(); got != c.want {
			t.Errorf("%s: the client gets %s, want %s", name, got, c.want)
		}
	}
}

// TestRequestsTakeMemoryOfTheirDecodedSize: requests whose parts take many times their size share a budget. A call
// waits until others give memory back, and is refused after a while.
func TestRequestsTakeMemoryOfTheirDecodedSize(t *testing.T) {
	nulls := &structpb.ListValue{Values: make([]*structpb.Value, 3000)}
	for i := range nulls.Values {
		nulls.Values[i] = structpb.NewNullValue()
	}
	synctest.Test(t, func(t *testing.T) {
		r, ctx := newReader(t)
		r.gate.requests = newRequestMemory(0)
		budget := r.gate.requests.decoded
		var served []*incoming
		for {
			q := &incoming{messageReader: r, ofStream: true, wire: sentMessage(t, nulls), ctx: ctx}
			began := time.Now()
			if err := q.read(&structpb.ListValue{}); err != nil {
				if status.Code(err) != codes.ResourceExhausted || time.Since(began) != requestPatience {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				break
			}
			served = append(served, q)
		}
		if n, each := len(served), budget.InUse()/len(served); n > budget.Largest()/(3000*64) || each < 3000*64 {
			t.Errorf("%d requests are decoded at once, which take %d bytes each", n, each)
		}
		for _, q := range served {
			q.release()
		}
		if n := budget.InUse(); n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	})
}

// TestRequestsThatAreNotDecoded: they are refused by what they would take, or by who may not send them.
func TestRequestsThatAreNotDecoded(t *testing.T) {
	r, ctx := newReader(t)
	plan := func(jobs int) *fermatav1.PlanJobsRequest {
		q := &fermatav1.PlanJobsRequest{}
		for range jobs {
			q.DesiredJobs = append(q.DesiredJobs, &fermatav1.DesiredJob{Job: &fermatav1.Job{}})
		}
		return q
	}
	const parts = 1 << 20
	many := append(binary.AppendUvarint([]byte{5<<3 | 2}, 2*parts), bytes.Repeat([]byte{1<<3 | 2, 0}, parts)...)
	nested := func(levels int) proto.Message {
		v := structpb.NewBoolValue(true)
		for range levels {
			v = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"": v}})
		}
		return &fermatav1.PlanJobsRequest{DesiredJobs: []*fermatav1.DesiredJob{{Job: &fermatav1.Job{PayloadJson: v}}}}
	}
	health := newSentStream(smallRequest+1, true, make([]byte, smallRequest+1)...)
	health.method = "/grpc.health.v1.Health/Check"
	for name, c := range map[string]struct {
		stream *sentStream
		into   proto.Message
		want   codes.Code
	}{
		"a list":                     {sentMessage(t, plan(maxListLength)), &fermatav1.PlanJobsRequest{}, codes.OK},
		"a long list":                {sentMessage(t, plan(maxListLength+1)), &fermatav1.PlanJobsRequest{}, codes.InvalidArgument},
		"a hundred levels":           {sentMessage(t, nested(100)), &fermatav1.PlanJobsRequest{}, codes.OK},
		"very many levels":           {sentMessage(t, nested(110)), &fermatav1.PlanJobsRequest{}, codes.InvalidArgument},
		"very many parts":            {newSentStream(uint32(len(many)), true, many...), &structpb.Value{}, codes.ResourceExhausted},
		"a large one of open method": {health, &wrapperspb.BytesValue{}, codes.ResourceExhausted},
	} {
		q := &incoming{messageReader: r, wire: c.stream, ctx: ctx}
		if err := q.readOnly(c.into); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if c.want != codes.OK && proto.Size(c.into) > 0 {
			t.Errorf("%s: it was decoded", name)
		}
		q.end()
	}
	if n := r.gate.requests.decoded.InUse() + r.gate.requests.taken.InUse(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// TestMessagesAreReadInParts: gRPC keeps each frame of what is read at once, and a frame may have one byte.
func TestMessagesAreReadInParts(t *testing.T) {
	r, ctx := newReader(t)
	for _, size := range []int{0, partBytes - 10, partBytes, partBytes + 1, 100 << 10} {
		sent := bytes.Repeat([]byte("x"), size)
		stream, got := sentMessage(t, wrapperspb.Bytes(sent)), &wrapperspb.BytesValue{}
		q := &incoming{messageReader: r, wire: stream, ctx: ctx}
		if err := q.readOnly(got); err != nil || !bytes.Equal(got.GetValue(), sent) || stream.largest > partBytes {
			t.Errorf("%d bytes: got %d by %d at once, %v", size, len(got.GetValue()), stream.largest, err)
		}
		q.end()
	}
}

// TestRequestsArriveInTime checks that a call ends when its request does not arrive within requestTime: when nothing
// arrives, or only a part. A message of a stream may begin at any time, but a large one has to arrive once it has begun.
func TestRequestsArriveInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ctx := newReader(t)
		for name, stream := range map[string]*sentStream{
			"nothing":         {over: make(chan struct{})},
			"a header":        newSentStream(10, false),
			"most of it":      newSentStream(10, false, 1, 2, 3),
			"all but its end": newSentStream(2, false, 10, 0),
		} {
			began := time.Now()
			q := &incoming{messageReader: r, wire: stream, ctx: ctx}
			if err := q.readOnly(&wrapperspb.BytesValue{}); status.Code(err) != codes.DeadlineExceeded || time.Since(began) != requestTime {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
			q.end()
		}
		began := time.Now()
		q := &incoming{messageReader: r, wire: newSentStream(4<<10, false, 1), ctx: ctx, ofStream: true}
		if err := q.read(&wrapperspb.BytesValue{}); status.Code(err) != codes.DeadlineExceeded || time.Since(began) != requestTime+time.Second/64 {
			t.Errorf("a message of a stream: %v after %v", err, time.Since(began))
		}
		q.end()
	})
}

// TestBegunCallsAreBounded: calls whose request has not arrived are as many as the identity of the connection may have
// calls.
func TestBegunCallsAreBounded(t *testing.T) {
	r, ctx := newReader(t)
	quota := r.gate.quotas.quotaFor("a", authz.Limits{MaxOpenCalls: 2})
	connectionFrom(ctx).quota = quota
	var begun []*incoming
	for i := range 3 {
		q := &incoming{messageReader: r, wire: newSentStream(0, true), ctx: ctx}
		if err := q.beginReading(); (err != nil) != (i == 2) {
			t.Errorf("call %d: %v", i, err)
		}
		begun = append(begun, q)
	}
	if err := begun[0].readOnly(&wrapperspb.BytesValue{}); err != nil {
		t.Error(err)
	}
	q := &incoming{messageReader: r, wire: newSentStream(0, true), ctx: ctx}
	if err := q.beginReading(); err != nil {
		t.Errorf("after a request has arrived: %v", err)
	}
	for _, q := range append(begun, q) {
		q.end()
	}
	if n := quota.reading.Load(); n != 0 {
		t.Errorf("%d calls are counted", n)
	}
}
