package worker

import (
	"context"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// script is a stream whose node says what a test wrote down.
type script struct {
	fermatav1.WorkerService_WorkClient
	said [][]byte
}

func (s *script) RecvMsg(m any) error {
	if len(s.said) == 0 {
		return io.EOF
	}
	data := mem.BufferSlice{mem.SliceBuffer(s.said[0])}
	s.said = s.said[1:]
	return grpccodec.Codec().Unmarshal(data, m)
}

// FuzzWorkResponses: whatever a node says, in whatever order, no handler is called
// twice for a lease that is kept, and all slots are free in the end.
func FuzzWorkResponses(f *testing.F) {
	lease := &fermatav1.Lease{LeaseId: "1@ns/a", Run: "namespaces/ns/jobs/a/runs/r", Handler: "h",
		Payload: []byte("{}")}
	seeds := []*fermatav1.WorkResponse{
		{Message: &fermatav1.WorkResponse_Leases{Leases: &fermatav1.Leases{Leases: []*fermatav1.Lease{lease, lease,
			{}}}}},
		{Message: &fermatav1.WorkResponse_Leases{Leases: &fermatav1.Leases{Leases: []*fermatav1.Lease{{
			LeaseId: "2", Run: "/jobs//runs/", Handler: "absent", Attempt: -1, MaxAttempts: -1, Token: -1,
			Timeout:     &durationpb.Duration{Seconds: -1 << 62},
			NominalTime: &timestamppb.Timestamp{Seconds: 1 << 62, Nanos: -1},
		}}}}},
		{Message: &fermatav1.WorkResponse_ResultAcks{ResultAcks: &fermatav1.ResultAcks{Acks: []*fermatav1.ResultAck{{LeaseId: "1@ns/a", Status: 99}, nil}}}},
		{Message: &fermatav1.WorkResponse_Cancel{Cancel: &fermatav1.Cancel{LeaseIds: []string{"1@ns/a", "x"},
			Reason: fermatav1.Cancel_REASON_LEASE_LOST}}},
		{Message: &fermatav1.WorkResponse_Drain{Drain: &fermatav1.Drain{Addresses: []string{"", "::::"}}}},
		{Message: &fermatav1.WorkResponse_Welcome{Welcome: &fermatav1.Welcome{LeaseTtl: &durationpb.Duration{Seconds: -1}}}}, {},
	}
	var wires [][]byte
	for _, m := range seeds {
		wire, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		wires = append(wires, wire)
	}
	for i := range wires {
		f.Add(wires[0], wires[i])
		f.Add(wires[i], wires[len(wires)-1-i])
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		stream := &script{}
		for _, wire := range [][]byte{first, second, first} {
			if proto.Unmarshal(wire, &fermatav1.WorkResponse{}) != nil {
				return
			}
			stream.said = append(stream.said, wire)
		}
		w, err := New(Options{Addresses: []string{"nowhere:1"}, Slots: 2})
		if err != nil {
			t.Fatal(err)
		}
		w.Handle("h", func(_ context.Context, task *Task) error {
			task.SetOutput(task.Payload)
			return nil
		})
		w.baseContext = t.Context()
		ctx, cancel := context.WithCancelCause(t.Context())
		s := &session{
			w: w, welcome: &fermatav1.Welcome{}, epoch: 1, stream: stream, ctx: ctx, cancel: cancel,
			contact: &contactTime{},
			wake:    make(chan struct{}, 1), closing: make(chan struct{}), drainAddresses: make(chan []string, 1),
			done:         make(chan struct{}),
			unresponsive: make(chan struct{}), helloAt: time.Now(),
		}
		w.attachSession(s)
		if err := s.receiveLoop(); err != io.EOF {
			t.Fatalf("got %v", err)
		}
		cancel(errSessionClosed)
		w.stopRunners()
		w.runners.Wait()
		for _, m := range w.takeMessages(s) {
			data, err := grpccodec.Codec().Marshal(m)
			if err == nil {
				err = grpccodec.Codec().Unmarshal(data, &fermatav1.WorkRequest{})
			}
			if err != nil {
				t.Fatalf("cannot be said: %v", err)
			}
		}
		w.detachSession(s)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.trustTimer.Stop()
		w.heartbeatTimer.Stop()
		w.lateTimer.Stop()
		w.flushTimer.Stop()
		if ready := !w.table.ready.isEmpty(); w.table.slotsTaken < 0 || w.table.slotsTaken > 0 && !ready {
			t.Fatalf("%d slots are taken", w.table.slotsTaken)
		}
	})
}
