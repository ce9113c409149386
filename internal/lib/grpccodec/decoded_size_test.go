package grpccodec

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
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

// decodedBytes decodes a message and returns what that has allocated.
func decodedBytes(t *testing.T, data []byte, into proto.Message) int {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := proto.Unmarshal(data, into)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(into)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// TestDecodedSizeOfManyParts: it is no less than what decoding allocates, but for what a slice leaves behind when it
// grows, for each kind of field that takes many times its size.
func TestDecodedSizeOfManyParts(t *testing.T) {
	const n = 64 << 10
	many := func(part []byte) []byte { return bytes.Repeat(part, n/len(part)) }
	job := fieldNumber(t, &fermatav1.DesiredJob{}, "job")
	numbers := protowire.AppendTag(nil, fieldNumber(t, &fermatav1.CalendarSchedule{}, "month_days"), protowire.BytesType)
	numbers = protowire.AppendBytes(numbers, bytes.Repeat([]byte{0}, n))
	labels := []byte{}
	for i := range n / 10 {
		entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), fmt.Sprintf("%05d", i))
		labels = append(labels, nested(entry, fieldNumber(t, &fermatav1.Job{}, "labels"))...)
	}
	list := fieldNumber(t, &structpb.Value{}, "list_value")
	for name, tt := range map[string]struct {
		data []byte
		into proto.Message
	}{
		"nested messages": {many(nested(nil, fieldNumber(t, &fermatav1.Job{}, "status"), job,
			fieldNumber(t, &fermatav1.PlanJobsRequest{}, "desired_jobs"))), &fermatav1.PlanJobsRequest{}},
		"empty messages": {many(nested(nil, fieldNumber(t, &fermatav1.BatchCreateJobsRequest{}, "requests"))),
			&fermatav1.BatchCreateJobsRequest{}},
		"empty results": {nested(many(nested(nil, fieldNumber(t, &fermatav1.Results{}, "results"))),
			fieldNumber(t, &fermatav1.WorkRequest{}, "results")), &fermatav1.WorkRequest{}},
		"empty texts":    {many(nested(nil, fieldNumber(t, &fermatav1.WatchEventsRequest{}, "queues"))), &fermatav1.WatchEventsRequest{}},
		"short texts":    {many(nested([]byte("q"), fieldNumber(t, &fermatav1.WatchEventsRequest{}, "queues"))), &fermatav1.WatchEventsRequest{}},
		"entries":        {labels, &fermatav1.Job{}},
		"unknown fields": {many([]byte{0xf8, 0x7f, 0}), &durationpb.Duration{}},
		"nulls":          {nested(many(nested([]byte{8, 0}, 1)), list), &structpb.Value{}},
		"numbers":        {numbers, &fermatav1.CalendarSchedule{}},
	} {
		proto.Unmarshal(tt.data, proto.Clone(tt.into)) // what is made once for a type is not counted
		size := EstimateDecoded(tt.data, tt.into, math.MaxInt).Size
		if took := decodedBytes(t, tt.data, tt.into); size*3/2 < took {
			t.Errorf("%s: %d bytes take %d, estimated as %d", name, len(tt.data), took, size)
		}
	}
}

// TestDecodedSizeOfDeepMessages: the stack of the decoder counts, and more than maxDepth levels are reported.
func TestDecodedSizeOfDeepMessages(t *testing.T) {
	deep := []byte{}
	for range maxDepth / 2 {
		deep = nested(deep, 1, fieldNumber(t, &structpb.Value{}, "list_value"))
	}
	e := EstimateDecoded(deep, &structpb.Value{}, math.MaxInt)
	if e.Size < maxDepth*bytesPerLevel || e.TooDeep {
		t.Errorf("%d levels: %+v", maxDepth, e)
	}
	if e = EstimateDecoded(nested(deep, 1), &structpb.ListValue{}, math.MaxInt); !e.TooDeep {
		t.Errorf("%d levels: %+v", maxDepth+1, e)
	}
}

// TestDecodedSizeEnds: the estimate of a request that takes too much ends soon, and that of what is no message ends.
func TestDecodedSizeEnds(t *testing.T) {
	const most = 1 << 20
	desired, job := fieldNumber(t, &fermatav1.PlanJobsRequest{}, "desired_jobs"), fieldNumber(t, &fermatav1.DesiredJob{}, "job")
	for name, data := range map[string][]byte{
		"many parts":  bytes.Repeat(nested(nil, desired), 8<<20),
		"nested ones": nested(bytes.Repeat(nested(nil, job), 8<<20), desired),
		"no message":  append(bytes.Repeat(nested(nil, desired), 1<<20), 0xff),
	} {
		if size := EstimateDecoded(data, &fermatav1.PlanJobsRequest{}, most).Size; size <= most || size > most+most/10 {
			t.Errorf("%s: %d bytes, of %d", name, size, most)
		}
	}
	if size := EstimateDecoded([]byte{10, 200}, &fermatav1.PlanJobsRequest{}, most).Size; size > 1000 {
		t.Errorf("a fault is %d bytes", size)
	}
}

// TestDecodedSizeOfUsualRequests: it is at most three times what they take.
func TestDecodedSizeOfUsualRequests(t *testing.T) {
	payload, err := structpb.NewValue(map[string]any{"to": "someone@example.org", "items": []any{1.0, 2.0, "three"}})
	if err != nil {
		t.Fatal(err)
	}
	job := func() *fermatav1.Job {
		return &fermatav1.Job{Queue: "mail", Handler: "send", Labels: map[string]string{"team": "a", "tier": "2"},
			RetryPolicy: &fermatav1.RetryPolicy{MaxAttempts: 5, BaseDelay: durationpb.New(1e9), MaxDelay: durationpb.New(1e12)},
			Payload:     bytes.Repeat([]byte("p"), 200)}
	}
	batch := &fermatav1.BatchCreateJobsRequest{}
	for i := range 1000 {
		batch.Requests = append(batch.Requests, &fermatav1.CreateJobRequest{JobId: fmt.Sprint("job-", i), Job: job()})
	}
	withJSON := job()
	withJSON.Payload, withJSON.PayloadJson = nil, payload
	for name, m := range map[string]proto.Message{
		"a job":           &fermatav1.CreateJobRequest{JobId: "x", Job: job()},
		"a job with JSON": &fermatav1.CreateJobRequest{JobId: "x", Job: withJSON},
		"many jobs":       batch,
		"a large payload": &fermatav1.CreateJobRequest{Job: &fermatav1.Job{Payload: bytes.Repeat([]byte{10, 0}, 100<<10)}},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		into := m.ProtoReflect().New().Interface()
		size, took := EstimateDecoded(data, into, math.MaxInt).Size, decodedBytes(t, data, into)
		t.Logf("%s: %d bytes take %d, estimated as %d", name, len(data), took, size)
		if size > 3*took+8*bytesPerLevel || size*3/2 < took {
			t.Errorf("%s: %d bytes take %d, estimated as %d", name, len(data), took, size)
		}
	}
}

func BenchmarkEstimate(b *testing.B) {
	data, err := proto.Marshal(&fermatav1.CreateJobRequest{JobId: "job-1", Job: &fermatav1.Job{Queue: "mail", Handler: "send",
		Labels: map[string]string{"team": "a"}, RetryPolicy: &fermatav1.RetryPolicy{MaxAttempts: 5, BaseDelay: durationpb.New(1e9)},
		Payload: bytes.Repeat([]byte("p"), 200)}})
	if err != nil {
		b.Fatal(err)
	}
	m := &fermatav1.CreateJobRequest{}
	for b.Loop() {
		EstimateDecoded(data, m, math.MaxInt)
	}
}

// TestEstimateOfLists: the lists of a message itself, however many numbers of unknown fields there are.
func TestEstimateOfLists(t *testing.T) {
	desired, parent := fieldNumber(t, &fermatav1.PlanJobsRequest{}, "desired_jobs"), fieldNumber(t, &fermatav1.PlanJobsRequest{}, "parent")
	data := bytes.Repeat(nested(nil, desired), 700)
	data = append(data, bytes.Repeat(nested(nil, parent), 900)...)
	for number := range protowire.Number(5000) {
		data = append(data, nested(nil, number+300_000)...)
	}
	if e := EstimateDecoded(data, &fermatav1.PlanJobsRequest{}, math.MaxInt); e.List != "desired_jobs" || e.Length != 700 || e.HasGroup {
		t.Errorf("%+v", e)
	}
	if e := EstimateDecoded(nil, &fermatav1.PlanJobsRequest{}, math.MaxInt); e.Length != 0 {
		t.Errorf("%+v", e)
	}
}

// TestEstimateOfGroups: the estimate does not follow them.
func TestEstimateOfGroups(t *testing.T) {
	groups := bytes.Repeat(protowire.AppendTag(nil, 900, protowire.StartGroupType), 100)
	desired := fieldNumber(t, &fermatav1.PlanJobsRequest{}, "desired_jobs")
	for _, data := range [][]byte{groups, nested(groups, desired)} {
		if e := EstimateDecoded(data, &fermatav1.PlanJobsRequest{}, math.MaxInt); !e.HasGroup {
			t.Errorf("%+v", e)
		}
	}
}
