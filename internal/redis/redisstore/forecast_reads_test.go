package redisstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// TestForecastReadsEveryJobOnce: with many records due at one instant too.
func TestForecastReadsEveryJobOnce(t *testing.T) {
	s, _ := jobsBed(t)
	const jobs, first = 5000, unixtime.Milli(1_900_000_000_000)
	lane := job.Lane{Namespace: "ns", Queue: "q"}
	var want []unixtime.Milli
	batches := map[int]*job.CreateBatch{}
	for i := range jobs {
		d := job.WithDefaults(job.Definition{
			Key: job.Key{Namespace: "ns", ID: fmt.Sprint("j", i)}, Queue: "q", Handler: "h", AnchorMS: 1_800_000_000_000,
			Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
		})
		state := job.State{Revision: 1, Lane: lane, Due: first + unixtime.Milli(max(0, i-3500))}
		want = append(want, state.Due)
		shard := s.ShardOf(d.Key)
		if batches[shard] == nil {
			batches[shard] = &job.CreateBatch{Shard: shard}
		}
		b := batches[shard]
		b.Records = append(b.Records, job.Record{Definition: &d, State: state, IndexMS: state.Due})
		if len(b.Records) == 400 || i == jobs-1 {
			for _, b := range batches {
				if reply := s.Create(t.Context(), []job.CreateBatch{*b})[0]; reply.Err != nil {
					t.Fatal(reply.Err)
				}
			}
			clear(batches)
		}
	}
	seen := map[string]int{}
	var got []unixtime.Milli
	for shard := range s.Shards() {
		for at, more := "", true; more; more = at != "" {
			page, next, err := s.WalkShard(t.Context(), shard, at)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page {
				seen[r.Definition.ID]++
			}
			at = next
		}
		for read, more := (job.DueRead{Shard: shard, Lane: lane}), true; more; {
			pages, err := s.DuePages(t.Context(), []job.DueRead{read}, first+jobs)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, pages[0].DueMS...)
			read, more = pages[0].Next, pages[0].More
		}
	}
	if len(seen) != jobs {
		t.Errorf("%d jobs were read, want %d", len(seen), jobs)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d due times from %d to %d were read, want %d from %d to %d", len(got), got[0], got[len(got)-1],
			len(want), want[0], want[len(want)-1])
	}
	if _, _, err := s.WalkShard(t.Context(), 0, "x"); err == nil {
		t.Error("an invalid cursor is accepted")
	}
}
