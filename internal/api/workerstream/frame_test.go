package workerstream

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func drawAssignment(t *rapid.T) job.Assignment {
	text := rapid.StringMatching(`[a-z0-9é]{0,20}`)
	key := job.Key{Namespace: rapid.StringMatching(`[a-z]{1,9}`).Draw(t, "ns"), ID: rapid.StringMatching(`[a-zA-Z0-9._-]{1,128}`).Draw(t, "id")}
	ms := rapid.OneOf(rapid.SampledFrom([]int64{0, 1, 999, 1000, int64(job.NeverMS - 1), int64(job.NeverMS)}), rapid.Int64Range(0, int64(job.NeverMS)))
	d := job.Definition{
		Key: key, Queue: text.Draw(t, "queue"), Handler: text.Draw(t, "handler"),
		Payload: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload"), Labels: rapid.MapOfN(text, text, 0, 5).Draw(t, "labels"),
		Retry:   backoff.Retry{MaxAttempts: rapid.IntRange(0, 1000).Draw(t, "attempts")},
		Timeout: time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "timeout")),
	}
	s := job.State{
		Lane: job.Lane{Namespace: key.Namespace, Queue: d.Queue}, Generation: rapid.Uint32().Draw(t, "generation"),
		Trigger: rapid.SampledFrom([]job.Trigger{job.TriggerSchedule, job.TriggerManual, job.TriggerBackfill}).Draw(t, "trigger"),
		Nominal: unixtime.Milli(ms.Draw(t, "nominal")), Due: unixtime.Milli(ms.Draw(t, "due")), ManualID: text.Draw(t, "manual"),
		Attempt: rapid.Uint32Range(0, 1000).Draw(t, "attempt"), Token: rapid.Uint64Range(0, 1<<53).Draw(t, "token"),
	}
	return job.Assignment{
		LeaseID: job.LeaseID(key.Record(), s.Token), Record: &job.Record{Definition: &d, State: s},
		StartAt: rapid.SampledFrom([]time.Time{{}, time.UnixMilli(1)}).Draw(t, "start"), // which have passed
	}
}

// plainLease is what the .proto file says a lease is.
func plainLease(a *job.Assignment, seal *leaseSigner, parent, traceState string) *fermatav1.Lease {
	d, s := a.Definition, &a.State
	at := func(ms unixtime.Milli) *timestamppb.Timestamp {
		if ms == 0 || ms >= job.NeverMS {
			return nil
		}
		return timestamppb.New(ms.Time())
	}
	l := &fermatav1.Lease{
		LeaseId: a.LeaseID, Run: fmt.Sprintf("namespaces/%s/jobs/%s/runs/%s", d.Namespace, d.ID, s.RunID()), Queue: s.Lane.Queue,
		Handler: d.Handler, Payload: d.Payload, Attempt: int32(s.Attempt + 1), MaxAttempts: int32(d.Retry.MaxAttempts),
		NominalTime: at(s.Nominal), DueTime: at(s.Due), Timeout: durationpb.New(d.Timeout), Token: int64(s.Token), Labels: d.Labels,
		CorrelationId: job.Correlation(d.Key, s.RunID()),
	}
	if seal != nil {
		l.LeaseId = seal.Sign(l.LeaseId)
	}
	if parent != "" {
		l.TraceContext = &fermatav1.TraceContext{Traceparent: parent, Tracestate: traceState}
	}
	return l
}

func wireOf(t *rapid.T, m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What writes itself is to the byte what protobuf would have written.
func TestFramesAreWhatTheirMessagesAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var own *leaseSigner
		if rapid.Bool().Draw(t, "sealed") {
			own = newLeaseSigner(bytes.Repeat([]byte("k"), MinKeyBytes), "subject", job.Hello{WorkerID: "w"})
		}
		parent := rapid.SampledFrom([]string{"", "00-1-2-01"}).Draw(t, "parent")
		leases := make(job.Assignments, rapid.IntRange(0, 5).Draw(t, "leases"))
		plain := &fermatav1.Leases{}
		var acks job.ResultAcks
		plainAcks := &fermatav1.ResultAcks{}
		for i := range leases {
			leases[i] = drawAssignment(t)
			l := plainLease(&leases[i], own, parent, "state")
			plain.Leases = append(plain.Leases, l)
			status := job.AckStatus(rapid.IntRange(0, int(job.AckNotFound)).Draw(t, "status"))
			acks = append(acks, job.ResultAck{LeaseID: leases[i].LeaseID, Status: status})
			plainAcks.Acks = append(plainAcks.Acks, &fermatav1.ResultAck{LeaseId: l.LeaseId, Status: ackStatuses[status]})
		}
		f := &leaseFrame{leases: leases, signer: own, trace: func(*job.Record) (string, string) { return parent, "state" }}
		want := wireOf(t, &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Leases{Leases: plain}})
		prefix := []byte("before")
		if have := f.AppendFrame(prefix); !bytes.Equal(have[len(prefix):], want) {
			t.Errorf("leases are\n%x, want\n%x", have[len(prefix):], want)
		}
		want = wireOf(t, &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_ResultAcks{ResultAcks: plainAcks}})
		s := &workerStream{signer: own}
		if have := wireOf(t, s.frameOf(acks).(proto.Message)); !bytes.Equal(have, want) {
			t.Errorf("acknowledgements are\n%x, want\n%x", have, want)
		}
	})
}

// A lease in advance says how long its worker has to wait from when it is written down.
func TestLeasesInAdvanceSayWhenTheyStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &job.Definition{Key: job.Key{Namespace: "ns", ID: "j"}}
		f := &leaseFrame{leases: job.Assignments{{LeaseID: "1@ns/j", Record: &job.Record{Definition: d}, StartAt: time.Now().Add(12_345_678)}}}
		time.Sleep(345_678)
		var m fermatav1.WorkResponse
		if err := proto.Unmarshal(f.AppendFrame(nil), &m); err != nil {
			t.Fatal(err)
		}
		if got := m.GetLeases().GetLeases()[0].GetStartAfter().AsDuration(); got != 12*time.Millisecond {
			t.Errorf("it starts after %v", got)
		}
	})
}

func TestFramesKnowTheirSize(t *testing.T) {
	d := &job.Definition{
		Key: job.Key{Namespace: strings.Repeat("n", 63), ID: strings.Repeat("j", 128)}, Queue: strings.Repeat("q", 63),
		Handler: strings.Repeat("h", 100), Payload: make([]byte, 1000), Labels: map[string]string{"a": "b", strings.Repeat("k", 63): strings.Repeat("v", 200)},
		Timeout: 24*time.Hour - 1, Retry: backoff.Retry{MaxAttempts: 1000},
	}
	s := job.State{
		Lane: d.Lane(), Generation: 1<<32 - 1, Nominal: job.NeverMS - 1, Due: job.NeverMS - 1, Attempt: 999, Token: 1 << 53,
	}
	f := &leaseFrame{signer: newLeaseSigner(bytes.Repeat([]byte("k"), MinKeyBytes), "subject", job.Hello{})}
	for range 100 {
		f.leases = append(f.leases, job.Assignment{LeaseID: job.LeaseID(d.Record(), s.Token), Record: &job.Record{Definition: d, State: s}, StartAt: time.Now().Add(time.Hour)})
	}
	if n := len(f.AppendFrame(nil)); n > f.FrameSize() {
		t.Errorf("%d bytes, thought to be %d", n, f.FrameSize())
	}
}

// TestResultsAreReadAsWritten: negative durations become zero, unknown outcomes failures, and long texts are cut.
func TestResultsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		duration := rapid.Custom(func(t *rapid.T) *durationpb.Duration {
			if rapid.Bool().Draw(t, "nil") {
				return nil
			}
			return &durationpb.Duration{Seconds: rapid.Int64Range(-5, 1<<62).Draw(t, "s"), Nanos: rapid.Int32Range(-5, 1e9-1).Draw(t, "ns")}
		})
		m := &fermatav1.Results{}
		var want []job.Result
		for range rapid.IntRange(1, 5).Draw(t, "results") {
			r := &fermatav1.Result{
				LeaseId: rapid.String().Draw(t, "id"), Outcome: fermatav1.Result_Outcome(rapid.Int32Range(-1, 9).Draw(t, "outcome")),
				Error: rapid.String().Draw(t, "error"), Output: rapid.SliceOf(rapid.Byte()).Draw(t, "output"),
				RetryAfter: duration.Draw(t, "retry"), Duration: duration.Draw(t, "took"),
			}
			m.Results = append(m.Results, r)
			want = append(want, expectedResult(r))
		}
		b := wireOf(t, &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Results{Results: m}})
		b = append(b, 0xd2, 0x07, 1, 'x', 0xd8, 0x07, 5) // fields 122 and 123, of a later version
		var read fermatav1.WorkRequest
		if err := proto.Unmarshal(b, &read); err != nil {
			t.Fatal(err)
		}
		results := make([]job.Result, len(want))
		for i, r := range read.GetResults().GetResults() {
			results[i] = resultFromPB(r)
		}
		if !reflect.DeepEqual(results, want) {
			t.Errorf("read %+v, want %+v", results, want)
		}
	})
}

func expectedResult(r *fermatav1.Result) job.Result {
	out := job.Result{
		LeaseID: r.LeaseId, Outcome: resultOutcomes[r.Outcome], Permanent: r.Outcome == fermatav1.Result_OUTCOME_FAILED_PERMANENTLY,
		Error: job.Clip(r.Error, job.MaxError), RetryAfter: max(0, r.RetryAfter.AsDuration()), Duration: max(0, r.Duration.AsDuration()),
	}
	if len(r.Output) > 0 {
		out.Output = r.Output[:min(len(r.Output), job.MaxOutput)]
	}
	if _, known := resultOutcomes[r.Outcome]; !known {
		out.Outcome = job.OutcomeFailed
		if out.Error == "" {
			out.Error = "worker reported no outcome"
		}
	}
	return out
}

// benchmarkLeases are what one message carries to a busy worker.
func benchmarkLeases() job.Assignments {
	var leases job.Assignments
	for i := range 100 {
		d := &job.Definition{
			Key: job.Key{Namespace: "default", ID: fmt.Sprintf("bench-%018d", i)}, Queue: "default", Handler: "noop", Payload: make([]byte, 200),
			Timeout: 30 * time.Second, Retry: backoff.DefaultRetry(),
		}
		s := job.State{Lane: d.Lane(), Generation: 1, Nominal: 1_800_000_000_123, Due: 1_800_000_000_123, Token: 1_800_000_000_123_456}
		leases = append(leases, job.Assignment{LeaseID: job.LeaseID(d.Record(), s.Token), Record: &job.Record{Definition: d, State: s}})
	}
	return leases
}

func reportPerItem(b *testing.B, unit string) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, unit)
}

func BenchmarkLeaseFrame(b *testing.B) {
	f := &leaseFrame{leases: benchmarkLeases()}
	buf := make([]byte, 0, f.FrameSize())
	b.ReportAllocs()
	for b.Loop() {
		buf = f.AppendFrame(buf[:0])
	}
	reportPerItem(b, "ns/lease")
}

// BenchmarkLeaseFrameProtobuf is BenchmarkLeaseFrame with protobuf structs.
func BenchmarkLeaseFrameProtobuf(b *testing.B) {
	assignments := benchmarkLeases()
	buf := make([]byte, 0, (&leaseFrame{leases: assignments}).FrameSize())
	b.ReportAllocs()
	for b.Loop() {
		m := &fermatav1.Leases{Leases: make([]*fermatav1.Lease, len(assignments))}
		for i := range assignments {
			m.Leases[i] = plainLease(&assignments[i], nil, "", "")
		}
		var err error
		buf, err = proto.MarshalOptions{}.MarshalAppend(buf[:0], &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Leases{Leases: m}})
		if err != nil {
			b.Fatal(err)
		}
	}
	reportPerItem(b, "ns/lease")
}

func benchmarkResults(b *testing.B) []byte {
	m := &fermatav1.Results{}
	for i := range 100 {
		m.Results = append(m.Results, &fermatav1.Result{
			LeaseId: fmt.Sprintf("1800000000123456@default/bench-%018d", i), Outcome: fermatav1.Result_OUTCOME_SUCCEEDED, Duration: durationpb.New(1234),
		})
	}
	data, err := proto.Marshal(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Results{Results: m}})
	if err != nil {
		b.Fatal(err)
	}
	return data
}

// BenchmarkReadResults decodes a message of results into those of package job.
func BenchmarkReadResults(b *testing.B) {
	data := benchmarkResults(b)
	b.ReportAllocs()
	for b.Loop() {
		var m fermatav1.WorkRequest
		if err := proto.Unmarshal(data, &m); err != nil {
			b.Fatal(err)
		}
		s := workerStream{}
		if results, err := s.verifyResults(m.GetResults().GetResults()); err != nil || len(results) != 100 {
			b.Fatal(err)
		}
	}
	reportPerItem(b, "ns/result")
}
