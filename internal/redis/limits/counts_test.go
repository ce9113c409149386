package limits

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
)

// lanesOf puts so many jobs, and twice as many dead letters and runs, into a lane.
func lanesOf(t *testing.T, s limitBed, admin *redis.Client, shard int, namespace string, n int) {
	t.Helper()
	lane := job.Lane{Namespace: namespace, Queue: "q", Priority: 5}
	keys := s.shards[shard]
	var members []redis.Z
	for i := range n {
		id := namespace + "/j" + strconv.Itoa(i)
		for k, record := range []string{id, id + "#d0", id + "#r1"} {
			members = append(members, redis.Z{Score: float64(i + k<<40), Member: record})
		}
	}
	if err := admin.ZAdd(t.Context(), keys.LaneKey(lane), members...).Err(); err != nil {
		t.Fatal(err)
	}
	if err := admin.ZAdd(t.Context(), keys.Lanes, redis.Z{Score: 1, Member: lane.String()}).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestJobsAreCounted: what is taken counts until the limit, what is given does not, and a
// census puts right what was taken for nothing, with what was taken while it counted.
func TestJobsAreCounted(t *testing.T) {
	s, admin := censusStore(t, 4)
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

// TestCountsAreReadInParts: one command reads a bounded number of counts, all together read all.
func TestCountsAreReadInParts(t *testing.T) {
	t.Parallel()
	s, admin := censusStore(t, 1)
	counts := s.JobCounts()
	want := 5 * countsPerRead
	for i := range want {
		admin.HSet(t.Context(), counts.key, fmt.Sprint("ns", i), i)
	}
	admin.ConfigResetStat(t.Context())
	got, _, err := counts.Counts(t.Context())
	if err != nil || len(got) != want || got["ns7"] != 7 {
		t.Errorf("%d counts, ns7 has %d (%v), want %d", len(got), got["ns7"], err, want)
	}
	text, err := admin.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if n := commandCalls(t, text, "hscan"); n < 4 || n > 10 || commandCalls(t, text, "hgetall") != 0 {
		t.Errorf("%d parts:\n%s", n, text)
	}
}

// commandCalls is how often Redis carried out a command, by its statistics.
func commandCalls(t *testing.T, stats, command string) (n int) {
	t.Helper()
	_, after, found := strings.Cut(stats, "cmdstat_"+command+":calls=")
	if !found {
		return 0
	}
	if _, err := fmt.Sscanf(after, "%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}
