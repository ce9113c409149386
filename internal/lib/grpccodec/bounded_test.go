package grpccodec

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// nested wraps an encoded message as a field of other messages, the innermost first.
func nested(inner []byte, fields ...protowire.Number) []byte {
	for _, f := range fields {
		inner = protowire.AppendBytes(protowire.AppendTag(nil, f, protowire.BytesType), inner)
	}
	return inner
}

// fieldNumber is the number of a field.
func fieldNumber(t *testing.T, m proto.Message, name string) protowire.Number {
	t.Helper()
	return m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(name)).Number()
}

// TestRequestsOfManyPartsAreNotDecoded: requests whose small parts would take many times their size are refused before
// they take it.
func TestRequestsOfManyPartsAreNotDecoded(t *testing.T) {
	null := nested([]byte{8, 0}, 1) // an element of a ListValue
	nulls := bytes.Repeat(null, (4<<20)/len(null))
	payload := fieldNumber(t, &fermatav1.Job{}, "payload_json")
	job := fieldNumber(t, &fermatav1.CreateJobRequest{}, "job")
	list := fieldNumber(t, &structpb.Value{}, "list_value")
	requests := fieldNumber(t, &fermatav1.BatchCreateJobsRequest{}, "requests")
	for name, tt := range map[string]struct {
		data []byte
		into proto.Message
	}{
		"nulls in a payload": {nested(nulls, list, payload, job), &fermatav1.CreateJobRequest{}},
		"empty requests":     {bytes.Repeat(nested(nil, requests), 2<<20), &fermatav1.BatchCreateJobsRequest{}},
		"empty texts": {bytes.Repeat(nested(nil, fieldNumber(t, &fermatav1.WatchEventsRequest{}, "queues")), 2<<20),
			&fermatav1.WatchEventsRequest{}},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := BoundedCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(tt.data)}, tt.into)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "more than ") {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
			t.Errorf("%s: %d MiB were allocated", name, took>>20)
		}
	}
}

// TestLargeRequestsAreDecoded: bytes are not what is bounded here, nor are requests that people send.
func TestLargeRequestsAreDecoded(t *testing.T) {
	values := make([]any, 30_000)
	for i := range values {
		values[i] = map[string]any{"n": float64(i)}
	}
	json, err := structpb.NewValue(values)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]*fermatav1.CreateJobRequest{
		"a large payload":   {Job: &fermatav1.Job{Payload: bytes.Repeat([]byte{10, 0}, 4<<20)}},
		"a payload of JSON": {Job: &fermatav1.Job{PayloadJson: json}},
		"a small request":   {JobId: "x", Job: &fermatav1.Job{Labels: map[string]string{"a": "b"}}},
	} {
		data, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := &fermatav1.CreateJobRequest{}
		if err := BoundedCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := mem.BufferSlice{mem.SliceBuffer(bytes.Repeat([]byte{10, 200}, 64<<10))}
	if err := BoundedCodec().Unmarshal(broken, &fermatav1.CreateJobRequest{}); err == nil {
		t.Error("what is no message was decoded")
	}
}
