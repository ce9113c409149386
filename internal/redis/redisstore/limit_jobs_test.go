package redisstore_test

import (
	"context"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// jobsBed is a store with records that nobody wrote through it.
func jobsBed(t *testing.T) (*redisstore.Store, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	client, err := conn.NewClient(conn.ClientOptions{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisstore.Open(t.Context(), redisstore.Options{Client: client, Shards: 4, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	return s, server.Client()
}

// lanesOf puts so many jobs, and twice as many dead letters and runs, into a lane.
func lanesOf(t *testing.T, s *redisstore.Store, admin *redis.Client, shard int, namespace string, n int) {
	t.Helper()
	lane := job.Lane{Namespace: namespace, Queue: "q", Priority: 5}
	base := s.LockKey(shard)[:len(s.LockKey(shard))-len("lock")]
	var members []redis.Z
	for i := range n {
		id := namespace + "/j" + strconv.Itoa(i)
		for k, record := range []string{id, id + "#d0", id + "#r1"} {
			members = append(members, redis.Z{Score: float64(i + k<<40), Member: record})
		}
	}
	if err := admin.ZAdd(t.Context(), base+"l:"+lane.String(), members...).Err(); err != nil {
		t.Fatal(err)
	}
	if err := admin.ZAdd(t.Context(), base+"lanes", redis.Z{Score: 1, Member: lane.String()}).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestJobsAreCounted: what is taken counts until the limit, what is given does not, and a
// census puts right what was taken for nothing, with what was taken while it counted.
func TestJobsAreCounted(t *testing.T) {
	s, admin := jobsBed(t)
	ctx := t.Context()
	for _, step := range []struct{ n, limit, granted, jobs int }{{3, 5, 3, 3}, {3, 5, 2, 5}, {1, 5, 0, 5}, {1, 4, 0, 5}, {1, 6, 1, 6}} {
		granted, jobs, err := s.JobCounts().Reserve(ctx, "a", step.n, step.limit)
		if err != nil || granted != step.granted || jobs != step.jobs {
			t.Errorf("%+v: granted %d, jobs %d, %v", step, granted, jobs, err)
		}
	}
	counts := func(want map[string]int, wantCounted bool) {
		t.Helper()
		jobs, counted, err := s.JobCounts().Counts(ctx)
		if err != nil || !maps.Equal(jobs, want) || counted != wantCounted {
			t.Errorf("counts %v, counted %t (%v), want %v", jobs, counted, err, want)
		}
	}
	if err := s.JobCounts().Return(ctx, "a", 4); err != nil {
		t.Fatal(err)
	}
	counts(map[string]int{"a": 2}, false)
	if err := s.JobCounts().Return(ctx, "a", 40); err != nil {
		t.Fatal(err)
	}
	counts(map[string]int{"a": 0}, false)

	// More than one call counts.
	lanesOf(t, s, admin, 0, "a", 2000)
	lanesOf(t, s, admin, 3, "a", 7)
	lanesOf(t, s, admin, 1, "b", 2)
	lanesOf(t, s, admin, 1, "free", 1)
	wanted := func(namespace string) bool { return namespace != "free" }
	if _, _, err := s.JobCounts().Reserve(ctx, "gone", 3, 9); err != nil { // whose node dies now
		t.Fatal(err)
	}
	census := func(every time.Duration, want func(string) bool) bool {
		t.Helper()
		began, err := s.JobCounts().Census(ctx, every, want)
		if err != nil {
			t.Fatal(err)
		}
		return began
	}
	if !census(time.Hour, wanted) {
		t.Fatal("the first census was not taken")
	}
	counts(map[string]int{"a": 2007, "b": 2}, true)
	if census(time.Hour, wanted) {
		t.Error("a census was taken before it was due")
	}
	asked := false
	census(0, func(namespace string) bool {
		if !asked {
			asked = true
			for range 2 { // the second time nobody has heard the answer
				if _, _, err := s.JobCounts().Reserve(ctx, "b", 1, 9); err != nil {
					t.Fatal(err)
				}
			}
			if _, _, err := s.JobCounts().Reserve(ctx, "c", 1, 9); err != nil {
				t.Fatal(err)
			}
			if err := s.JobCounts().Return(ctx, "c", 1); err != nil { // which may be an older one
				t.Fatal(err)
			}
		}
		return wanted(namespace)
	})
	counts(map[string]int{"a": 2007, "b": 4, "c": 1}, true)
	overtaken := false
	census(0, func(namespace string) bool {
		if !overtaken {
			overtaken = true
			lanesOf(t, s, admin, 2, "d", 5)
			census(0, wanted) // whose counts stay
			lanesOf(t, s, admin, 2, "e", 5)
		}
		return wanted(namespace)
	})
	counts(map[string]int{"a": 2007, "b": 2, "d": 5}, true)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.JobCounts().Census(ended, 0, wanted); err == nil {
		t.Error("a census that was given up is none")
	}
}
