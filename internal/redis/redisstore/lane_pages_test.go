package redisstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// lanesBed is a store of one shard with lanes of these due times, in milliseconds from now.
func lanesBed(t *testing.T, dues []int64) (*Store, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t)
	s, err := Open(t.Context(), Options{Client: server.Granted(), Shards: 1, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	now, err := s.Now(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	entries := make([]redis.Z, len(dues))
	for i, due := range dues {
		entries[i] = redis.Z{Score: float64(now + unixtime.Milli(due)), Member: numberedLane(i).String()}
	}
	for len(entries) > 0 {
		n := min(5000, len(entries))
		server.Client().ZAdd(t.Context(), s.shards[0].Lanes, entries[:n]...)
		entries = entries[n:]
	}
	return s, server
}

func numberedLane(i int) job.Lane {
	return job.Lane{Namespace: "ns", Queue: fmt.Sprint("q", i/10), Priority: uint8(i % 10)}
}

// TestPagesListAllLanes: also where many lanes, or all, are due at one instant, as the jobs of one batch are.
func TestPagesListAllLanes(t *testing.T) {
	t.Parallel()
	for name, due := range map[string]func(i int) int64{
		"one instant":   func(int) int64 { return -5000 },
		"few instants":  func(i int) int64 { return int64(i / 9000 * 1000) },
		"many instants": func(i int) int64 { return int64(i) },
		"mixed":         func(i int) int64 { return rand.Int64N(1 << (i % 20)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const lanes = 33_000
			dues := make([]int64, lanes)
			for i := range dues {
				dues[i] = due(i)
			}
			s, _ := lanesBed(t, dues)
			seen, pages := map[job.Lane]bool{}, 0
			for page := (job.LanePage{More: true}); page.More; pages++ {
				got, err := s.LanePages(t.Context(), map[int]job.LaneCursor{0: page.Next})
				if err != nil {
					t.Fatal(err)
				}
				page = got[0]
				for _, h := range page.Heads {
					seen[h.Lane] = true
				}
			}
			if len(seen) != lanes || pages > 1+(lanes-job.LanesPerRead)/lanesPerPage+1 {
				t.Errorf("%d lanes are in %d pages, want %d", len(seen), pages, lanes)
			}
		})
	}
}

// TestPagesSurviveLanesThatGo: lanes of the same instant that go between two pages hide no others.
func TestPagesSurviveLanesThatGo(t *testing.T) {
	t.Parallel()
	const lanes = 20_000
	s, server := lanesBed(t, make([]int64, lanes))
	first, err := s.LanePages(t.Context(), map[int]job.LaneCursor{0: {}})
	if err != nil || !first[0].More {
		t.Fatalf("first page: more %v (%v)", first[0].More, err)
	}
	seen := map[job.Lane]bool{}
	for i, h := range first[0].Heads {
		if i < lanesPageOverlap {
			server.Client().ZRem(t.Context(), s.shards[0].Lanes, h.Lane.String())
		}
		seen[h.Lane] = true
	}
	for page := first[0]; page.More; {
		got, err := s.LanePages(t.Context(), map[int]job.LaneCursor{0: page.Next})
		if err != nil {
			t.Fatal(err)
		}
		page = got[0]
		for _, h := range page.Heads {
			seen[h.Lane] = true
		}
	}
	if len(seen) != lanes {
		t.Errorf("%d lanes were listed, want %d", len(seen), lanes)
	}
}

// TestLanesAreFoundByName: however many others are due before them.
func TestLanesAreFoundByName(t *testing.T) {
	t.Parallel()
	const lanes = 11_000
	dues := make([]int64, lanes)
	dues[lanes-1] = time.Hour.Milliseconds()
	s, _ := lanesBed(t, dues)
	now, err := s.Now(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []job.Lane
	for i := range namesPerLookup {
		names = append(names, numberedLane(lanes+i)) // there are none of these
	}
	found, err := s.FindLanes(t.Context(), map[int][]job.Lane{0: append(names, numberedLane(lanes-1), numberedLane(0))})
	heads := found[0]
	if err != nil || len(heads) != 2 || heads[0].Lane != numberedLane(lanes-1) || heads[1].Lane != numberedLane(0) {
		t.Fatalf("found %v (%v)", heads, err)
	}
	if in := int64(heads[0].DueMS - now); in < 3_000_000 || in > 3_600_000 || heads[1].DueMS > now {
		t.Errorf("found %v", heads)
	}
	if found, err := s.FindLanes(t.Context(), map[int][]job.Lane{0: nil}); err != nil || len(found[0]) != 0 {
		t.Errorf("found %v (%v)", found, err)
	}
}

// TestACensusCountsAllLanes: a namespace has what it has, however many lanes of others are due before its own.
func TestACensusCountsAllLanes(t *testing.T) {
	t.Parallel()
	const lanes = 53 * 200
	s, server := lanesBed(t, make([]int64, lanes))
	late := job.Lane{Namespace: "z", Queue: "q", Priority: 5}
	server.Client().ZAdd(t.Context(), s.shards[0].Lanes, redis.Z{Score: float64(job.NeverMS), Member: late.String()})
	for i := range 50 {
		server.Client().ZAdd(t.Context(), s.shards[0].LaneKey(late), redis.Z{Score: float64(job.NeverMS), Member: fmt.Sprint("z/j", i)})
	}
	counts := s.limits.JobCounts()
	if _, err := counts.Census(t.Context(), 0, func(namespace string) bool { return namespace == "z" }); err != nil {
		t.Fatal(err)
	}
	if granted, n, err := counts.Reserve(t.Context(), "z", 1, 50); err != nil || granted != 0 || n != 50 {
		t.Errorf("granted %d beyond 50 jobs, counted %d (%v)", granted, n, err)
	}
}
