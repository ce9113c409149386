package redisstore_test

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// TestPayloadsOfExistingJobsAreBounded: the answer to a creation has the payload of a job that exists only within the
// bound of the call.
func TestPayloadsOfExistingJobsAreBounded(t *testing.T) {
	s, _ := jobsBed(t)
	record := func(payload int) job.Record {
		d := job.WithDefaults(job.Definition{
			Key: job.Key{Namespace: "ns", ID: "j"}, Handler: "h", AnchorMS: 1_800_000_000_000,
			Payload: make([]byte, payload), Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
		})
		state := job.State{Revision: 1, Lane: job.Lane{Namespace: "ns", Queue: "q"}, Due: 1_900_000_000_000}
		return job.Record{Definition: &d, State: state}
	}
	const size = 100_000
	create := func(payload int, bounds []int) job.CreateResult {
		t.Helper()
		r := record(payload)
		batch := job.CreateBatch{Shard: s.ShardOf(r.Definition.Key), Records: []job.Record{r}, PayloadBytes: bounds}
		reply := s.Create(t.Context(), []job.CreateBatch{batch})[0]
		if reply.Err != nil {
			t.Fatal(reply.Err)
		}
		return reply.Results[0]
	}
	create(size, nil)
	for name, c := range map[string]struct {
		bounds []int
		want   int
	}{"no bound": {nil, size}, "within": {[]int{size}, size}, "beyond": {[]int{size - 1}, 0}} {
		got := create(1, c.bounds)
		if got.Code != job.Exists || got.Existing == nil {
			t.Fatalf("%s: %+v", name, got)
		}
		if n := len(got.Existing.Definition.Payload); n != c.want || got.NoPayload != (c.want == 0) {
			t.Errorf("%s: %d bytes, left out %v", name, n, got.NoPayload)
		}
	}
}
