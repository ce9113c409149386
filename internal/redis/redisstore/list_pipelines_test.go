package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// replyCounts is a hook that keeps the greatest number of values which the replies of one pipeline had.
type replyCounts struct{ most int }

func (h *replyCounts) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *replyCounts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.note([]redis.Cmder{cmd})
		return err
	}
}
func (h *replyCounts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.note(cmds)
		return err
	}
}

func (h *replyCounts) note(cmds []redis.Cmder) {
	values := 0
	for _, cmd := range cmds {
		if c, ok := cmd.(*redis.Cmd); ok {
			values += countValues(c.Val())
		}
	}
	h.most = max(h.most, values)
}

func countValues(v any) int {
	list, ok := v.([]any)
	if !ok {
		return 1
	}
	n := 0
	for _, part := range list {
		n += countValues(part)
	}
	return n
}

var laneOfJobs = job.Lane{Namespace: "ns", Queue: "q"}

// openWithJobs opens a store in a new server, and registers so many jobs.
func openWithJobs(t *testing.T, jobs int) (*redisstore.Store, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	client, err := conn.NewClient(conn.ClientOptions{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisstore.Open(t.Context(), redisstore.Options{Client: client, Shards: 8, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	batches := make([]job.CreateBatch, s.Shards())
	for i := range jobs {
		d := job.WithDefaults(job.Definition{Key: job.Key{Namespace: "ns", ID: fmt.Sprint("j", i)}, Queue: "q", Handler: "h"})
		due := unixtime.Milli(1_900_000_000_000 + i)
		state := job.State{Revision: 1, Lane: laneOfJobs, Nominal: due, Due: due}
		b := &batches[s.ShardOf(d.Key)]
		b.Shard = s.ShardOf(d.Key)
		b.Records = append(b.Records, job.Record{Definition: &d, State: state})
	}
	for _, reply := range s.Create(t.Context(), batches) {
		if reply.Err != nil {
			t.Fatal(reply.Err)
		}
	}
	return s, client.(*redis.Client)
}

// TestListsReadInSmallPipelines: leases wait for at most one pipeline of a list, and that is small however many records
// the list reads.
func TestListsReadInSmallPipelines(t *testing.T) {
	const jobs, mostValues = 2000, 800
	s, client := openWithJobs(t, jobs)
	lane := laneOfJobs
	var ranges []job.IndexRange
	for shard := range s.Shards() {
		for range 20 { // of the same lane, so that there are many ranges
			ranges = append(ranges, job.IndexRange{Shard: shard, Lane: lane, Max: job.Score(job.RegionDone, job.NeverMS),
				Limit: 100})
		}
		ranges = append(ranges, job.IndexRange{Shard: shard, Lane: lane, Max: job.Score(job.RegionDone, job.NeverMS),
			Skip: 100, Limit: jobs})
	}
	counts := &replyCounts{}
	client.AddHook(counts)
	parts, err := s.ReadIndex(t.Context(), ranges)
	if err != nil {
		t.Fatal(err)
	}
	var entries []job.IndexEntry
	for i := range s.Shards() {
		entries = append(append(entries, parts[i*21]...), parts[i*21+20]...)
	}
	records, err := s.ReadEntries(t.Context(), entries)
	if err != nil {
		t.Fatal(err)
	}
	states, err := s.ReadStates(t.Context(), entries)
	if err != nil {
		t.Fatal(err)
	}
	scores, err := s.ReadScores(t.Context(), entries, states)
	if err != nil || len(entries) != jobs {
		t.Fatalf("%d entries, want %d: %v", len(entries), jobs, err)
	}
	for i, e := range entries {
		if records[i] == nil || records[i].Definition.Record() != e.Record || states[i] == nil || scores[i] != e.Score {
			t.Fatalf("%s was read as %v with state %v and score %d", e.Record, records[i], states[i], scores[i])
		}
	}
	if counts.most == 0 || counts.most > mostValues {
		t.Errorf("one pipeline read %d values, want at most %d", counts.most, mostValues)
	}
	for cursor := ""; ; {
		_, next, err := s.List(t.Context(), "ns", cursor, jobs)
		if err != nil {
			t.Fatal(err)
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if counts.most > mostValues {
		t.Errorf("a walk read %d values in one pipeline, want at most %d", counts.most, mostValues)
	}
}

// slowAnswers delays the answers of a server.
type slowAnswers struct{ replyCounts }

func (*slowAnswers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(20 * time.Millisecond)
		return next(ctx, cmds)
	}
}

// TestPagesOfASlowServerEndAtTheSamePlace: callers that hand out a part of a page read it again, and list jobs twice if
// it has another end then.
func TestPagesOfASlowServerEndAtTheSamePlace(t *testing.T) {
	s, client := openWithJobs(t, 1000)
	list := func() (cursor string, n int) {
		t.Helper()
		jobs, next, err := s.List(t.Context(), "ns", "", 500)
		if err != nil {
			t.Fatal(err)
		}
		return next, len(jobs)
	}
	cursor, n := list()
	client.AddHook(&slowAnswers{})
	if again, m := list(); again != cursor || m != n {
		t.Errorf("of a slow server %d jobs up to %q, want %d up to %q", m, again, n, cursor)
	}
}
