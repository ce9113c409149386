package client

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// everySharedField is a message with all shared fields.
func everySharedField() *Job {
	seconds := int64(0)
	duration := func() *durationpb.Duration { seconds++; return &durationpb.Duration{Seconds: seconds, Nanos: 5} }
	jitter := func(f float64) *Jitter { return &Jitter{Kind: fermatav1.Jitter_KIND_DOWN, Fraction: &f} }
	return &Job{
		Queue: "mail", Priority: new(int32(7)), HistoryLimit: new(int32(0)),
		Timeout: duration(), TimeoutGrace: duration(), Retention: duration(), DeadLetterTtl: duration(), MaxLag: duration(),
		OverlapPolicy: fermatav1.OverlapPolicy_OVERLAP_POLICY_ALLOW_ALL, OverlapLimit: 3, PauseAfterFailures: 4,
		MisfirePolicy: &MisfirePolicy{Policy: fermatav1.MisfirePolicy_POLICY_RUN_ALL, CatchUpWindow: duration(), MaxCatchUp: 9},
		RetryPolicy: &RetryPolicy{
			Strategy: fermatav1.RetryPolicy_STRATEGY_LINEAR, BaseDelay: duration(), Multiplier: 3, ExponentOffset: 1, MaxDelay: duration(),
			MaxAttempts: 5, MaxElapsed: duration(), Jitter: jitter(0.5), MaxDoublings: 6, Preset: "p", Sources: map[string]string{"*": "job"},
		},
		BackoffPolicy: &BackoffPolicy{
			Disabled: true, Multiplier: 4, MaxExponent: new(int32(2)), MaxDelay: duration(), MaxRatio: 8, Jitter: jitter(0.25),
			StaleAfter: duration(), StaleHalve: true, MinInterval: duration(), MaxInterval: duration(), WithinPeriod: true, Preset: "q",
			Sources: map[string]string{"*": "cluster"},
		},
	}
}

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestSharedFieldsAreCopied: jobs get all shared fields, and each its own: a caller may change its job.
func TestSharedFieldsAreCopied(t *testing.T) {
	later := protowire.AppendVarint(protowire.AppendTag(encode(t, everySharedField()), 1000, protowire.VarintType), 1)
	targeted := everySharedField()
	targeted.Target = "host"
	for name, data := range map[string][]byte{
		"all": encode(t, everySharedField()), "none": encode(t, &Job{}), "field of a later version": later, "other field": encode(t, targeted),
	} {
		s, err := decodeSharedFields(data)
		if err != nil {
			t.Fatal(err)
		}
		if s.isCopyable != (name == "all" || name == "none") {
			t.Errorf("%s: copyable %v", name, s.isCopyable)
		}
		want := &Job{Name: "n", Etag: "e"}
		proto.Merge(want, s.message)
		first, second := &Job{Name: "n", Etag: "e"}, &Job{Name: "n", Etag: "e"}
		s.addTo(first)
		s.addTo(second)
		if !proto.Equal(first, want) {
			t.Errorf("%s: got\n%v\nwant\n%v", name, first, want)
		}
		if name == "none" {
			continue
		}
		first.RetryPolicy.Sources["x"], first.BackoffPolicy.Jitter.Fraction, first.Timeout.Seconds = "y", nil, 99
		*first.Priority, first.MisfirePolicy.CatchUpWindow.Nanos = 1, 1
		*first.RetryPolicy.Jitter.Fraction = 1
		if !proto.Equal(second, want) {
			t.Errorf("%s: a change of one job shows in another", name)
		}
	}
	if _, err := decodeSharedFields([]byte{0xff}); err == nil {
		t.Error("an invalid message is accepted")
	}
}

// TestResultsAreCompleted: a job of a compact response gets the handler and the payload of its request, which stays the
// caller's.
func TestResultsAreCompleted(t *testing.T) {
	var cache sharedFieldsCache
	encoded := [][]byte{encode(t, everySharedField()), encode(t, &Job{Queue: "other"})}
	shared, err := cache.decodeAll(encoded)
	if err != nil {
		t.Fatal(err)
	}
	again, err := cache.decodeAll(encoded)
	if err != nil || again[0] != shared[0] || again[1] != shared[1] {
		t.Errorf("equal messages are decoded again (%v)", err)
	}
	sent := &Job{Handler: "h", Payload: []byte("data"), Queue: "ignored"}
	result := func(number int32, j *Job) *Job {
		r := &fermatav1.BatchCreateJobsResponse_Result{Job: j, Shared: number}
		w := &pendingCreate{result: encode(t, r), shared: shared}
		got := w.takeResult(&fermatav1.CreateJobRequest{Job: sent})
		if got == nil {
			return nil
		}
		return got.Job
	}
	if j := result(2, &Job{Name: "n"}); j.GetQueue() != "other" || j.GetHandler() != "h" || string(j.GetPayload()) != "data" || j.GetName() != "n" {
		t.Errorf("got %v", j)
	} else if j.Payload[0] = 'x'; string(sent.Payload) != "data" {
		t.Error("the payload of the answer is that of the caller")
	}
	if j := result(1, &Job{PayloadSealed: true}); j.GetQueue() != "mail" || j.GetPayload() != nil {
		t.Errorf("sealed: %v", j)
	}
	if j := result(0, &Job{Handler: "full"}); j.GetHandler() != "full" || j.GetQueue() != "" {
		t.Errorf("a complete job became %v", j)
	}
	for _, number := range []int32{3, -1} {
		if j := result(number, &Job{}); j != nil {
			t.Errorf("shared %d: %v", number, j)
		}
	}
}
