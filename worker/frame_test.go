package worker

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func drawLease(t *rapid.T) *fermatav1.Lease {
	text := rapid.StringMatching(`[a-zé/]{0,12}`)
	l := &fermatav1.Lease{
		LeaseId: text.Draw(t, "id"), Run: "namespaces/n/jobs/" + rapid.StringMatching(`[a-z]{1,9}`).Draw(t,
			"job") + "/runs/1-2",
		Queue: text.Draw(t, "queue"), Handler: text.Draw(t, "handler"),
		Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
		Attempt: rapid.Int32().Draw(t, "attempt"), MaxAttempts: rapid.Int32().Draw(t, "attempts"),
		Token:  rapid.Int64().Draw(t, "token"),
		Labels: rapid.MapOfN(text, text, 0, 4).Draw(t, "labels"), CorrelationId: text.Draw(t, "correlation"),
	}
	if rapid.Bool().Draw(t, "timed") {
		l.NominalTime = timestamppb.New(time.UnixMilli(rapid.Int64Range(-1e12, 1e13).Draw(t, "nominal")))
		l.DueTime = timestamppb.New(time.UnixMilli(rapid.Int64Range(0, 1e13).Draw(t, "due")))
		l.Timeout = &durationpb.Duration{Seconds: rapid.Int64Range(-9, 1<<60).Draw(t, "s"),
			Nanos: rapid.Int32Range(0, 1e9-1).Draw(t, "ns")}
	}
	if rapid.Bool().Draw(t, "in advance") {
		l.StartAfter = &durationpb.Duration{Seconds: rapid.Int64Range(-9, 1<<60).Draw(t, "start s"),
			Nanos: rapid.Int32Range(0, 1e9-1).Draw(t, "start ns")}
	}
	if rapid.Bool().Draw(t, "traced") {
		l.TraceContext = &fermatav1.TraceContext{Traceparent: text.Draw(t, "parent"), Tracestate: text.Draw(t, "state")}
	}
	return l
}

// Leases are read as protobuf reads them, whatever else is in the message.
func TestLeaseFramesMatchProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var leases []*fermatav1.Lease
		for range rapid.IntRange(1, 4).Draw(t, "leases") {
			leases = append(leases, drawLease(t))
		}
		b, err := proto.Marshal(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Leases{Leases: &fermatav1.Leases{Leases: leases}}})
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, 0xd2, 0x07, 1, 'x', 0xd8, 0x07, 5) // fields 122 and 123, of a later version
		var f responseFrame
		if err := f.ReadFrame(b); err != nil {
			t.Fatal(err)
		}
		clear(b) // nothing of it is kept
		if len(f.leases) != len(leases) || f.other.GetMessage() != nil {
			t.Fatalf("%d leases, want %d, and %v", len(f.leases), len(leases), f.other.GetMessage())
		}
		for i, a := range f.leases {
			compareTask(t, a, leases[i])
			if want := leases[i].StartAfter.AsDuration(); a.startAfter != want {
				t.Errorf("it starts after %v, want %v", a.startAfter, want)
			}
		}
	})
}

func compareTask(t *rapid.T, a *attempt, l *fermatav1.Lease) {
	want := &Task{
		Run: l.Run, Queue: l.Queue, Handler: l.Handler, Payload: l.Payload, Labels: l.Labels, Attempt: int(l.Attempt),
		MaxAttempts: int(l.MaxAttempts), Token: l.Token, CorrelationID: l.CorrelationId,
		Timeout: max(0, l.Timeout.AsDuration()),
	}
	want.Namespace, want.Job = splitRunName(l.Run)
	if l.NominalTime != nil {
		want.NominalTime, want.DueTime = l.NominalTime.AsTime(), l.DueTime.AsTime()
	}
	if len(l.Payload) == 0 {
		want.Payload = nil
	}
	if len(l.Labels) == 0 {
		want.Labels = nil
	}
	if a.id != l.LeaseId || !reflect.DeepEqual(&a.task, want) || !proto.Equal(a.trace, l.TraceContext) {
		t.Errorf("read %s %+v %v, want %v", a.id, &a.task, a.trace, l)
	}
}

// Acknowledgements are read as protobuf reads them.
func TestAckFramesMatchProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, want := &fermatav1.ResultAcks{}, []resultAck(nil)
		for range rapid.IntRange(0, 4).Draw(t, "acks") {
			a := resultAck{id: rapid.String().Draw(t, "id"),
				status: fermatav1.ResultAck_Status(rapid.Int32().Draw(t, "status"))}
			m.Acks, want = append(m.Acks, &fermatav1.ResultAck{LeaseId: a.id, Status: a.status}), append(want, a)
		}
		b, err := proto.Marshal(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_ResultAcks{ResultAcks: m}})
		if err != nil {
			t.Fatal(err)
		}
		var f responseFrame
		if err := f.ReadFrame(b); err != nil {
			t.Fatal(err)
		}
		clear(b) // nothing of it is kept
		if !reflect.DeepEqual(f.acks, want) || f.other.GetMessage() != nil {
			t.Errorf("%+v and %v, want %+v", f.acks, f.other.GetMessage(), want)
		}
	})
}

// Results are to the byte what protobuf would have written.
func TestResultFramesMatchProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &resultFrame{}
		m := &fermatav1.Results{}
		for range rapid.IntRange(0, 4).Draw(t, "results") {
			took := time.Duration(rapid.Int64Range(1, int64(48*time.Hour)).Draw(t, "took"))
			retry := time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "retry"))
			a := &attempt{id: rapid.String().Draw(t, "id"), result: result{
				outcome: fermatav1.Result_Outcome(rapid.Int32Range(0, 5).Draw(t, "outcome")),
				text:    rapid.String().Draw(t, "text"),
				output:  rapid.SliceOf(rapid.Byte()).Draw(t, "output"), retryAfter: retry, took: took,
			}}
			r := &fermatav1.Result{LeaseId: a.id, Outcome: a.result.outcome, Error: a.result.text,
				Output: a.result.output, Duration: durationpb.New(took)}
			if retry > 0 {
				r.RetryAfter = durationpb.New(retry)
			}
			f.attempts, m.Results = append(f.attempts, a), append(m.Results, r)
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Results{Results: m}})
		if err != nil {
			t.Fatal(err)
		}
		if have := f.AppendFrame(nil); !bytes.Equal(have, want) || len(have) > f.FrameSize() {
			t.Errorf("results are\n%x, want\n%x, in at most %d bytes", have, want, f.FrameSize())
		}
	})
}

// FuzzResponseFrame: whatever comes is read or refused.
func FuzzResponseFrame(f *testing.F) {
	b, err := proto.Marshal(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Leases{Leases: &fermatav1.Leases{
		Leases: []*fermatav1.Lease{{LeaseId: "1@ns/a", Labels: map[string]string{"a": "b"},
			Timeout: durationpb.New(time.Second), DueTime: timestamppb.New(time.Unix(1, 2))}},
	}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0x12, 0x03, 0x0a, 0x01, 0xff})
	f.Add([]byte{0x1a, 0x05, 0x0a, 0x03, 0x0a, 0x01, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var have responseFrame
		err := have.ReadFrame(b)
		var m fermatav1.WorkResponse
		if proto.Unmarshal(b, &m) == nil && err != nil {
			t.Errorf("%x is refused: %v", b, err)
		}
	})
}
