package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// TestWalksReadFewBytes: one page of a walk reads a few megabytes at most, however large the definitions are, and the
// pages together list every job.
func TestWalksReadFewBytes(t *testing.T) {
	s, _ := jobsBed(t)
	const jobs, size, most = 120, 255_000, 6 << 20
	for i := range jobs {
		d := job.WithDefaults(job.Definition{
			Key: job.Key{Namespace: "ns", ID: fmt.Sprint("j", i)}, Handler: "h", AnchorMS: 1_800_000_000_000,
			Payload: make([]byte, size), Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
		})
		state := job.State{Revision: 1, Lane: job.Lane{Namespace: "ns", Queue: "q"}, Due: 1_900_000_000_000}
		batch := job.CreateBatch{Shard: s.ShardOf(d.Key), Records: []job.Record{{Definition: &d, State: state}}}
		if reply := s.Create(t.Context(), []job.CreateBatch{batch})[0]; reply.Err != nil {
			t.Fatal(reply.Err)
		}
	}
	seen, cursor := map[string]bool{}, ""
	for {
		page, next, err := s.List(t.Context(), "ns", cursor, 5000)
		if err != nil {
			t.Fatal(err)
		}
		if len(page)*size > most {
			t.Errorf("a page read %d jobs of %d bytes", len(page), size)
		}
		for _, r := range page {
			seen[r.Definition.ID] = true
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if len(seen) != jobs {
		t.Errorf("%d jobs are listed, want %d", len(seen), jobs)
	}
}
