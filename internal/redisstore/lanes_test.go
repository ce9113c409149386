package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/redistest"
)

// TestAServerThatIsAwayHidesNoLanes: of three masters one stands still. What the others
// have is listed, also where nobody has heard of their clocks for long, or ever.
func TestAServerThatIsAwayHidesNoLanes(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	for _, node := range cluster.Nodes() {
		node.Client().ConfigSet(t.Context(), "cluster-require-full-coverage", "no")
	}
	s, err := Open(t.Context(), Options{Client: cluster.Granted(), Shards: 24, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	due, later := job.Lane{Namespace: "ns", Queue: "due"}, job.Lane{Namespace: "ns", Queue: "later"}
	away := make(map[int]bool)
	shards := make([]int, s.Shards())
	frozen := cluster.Master(1)
	for shard := range shards {
		shards[shard] = shard
		now, err := s.Now(t.Context(), shard)
		if err != nil {
			t.Fatal(err)
		}
		cluster.Client().ZAdd(t.Context(), s.shards[shard].lanes,
			redis.Z{Score: float64(now), Member: due.String()}, redis.Z{Score: float64(now + 3_600_000), Member: later.String()})
		master, err := cluster.Client().MasterForKey(t.Context(), s.shards[shard].lanes)
		if err != nil {
			t.Fatal(err)
		}
		away[shard] = master.Options().Addr == frozen.Addr()
	}
	s.now = func() time.Time { return time.Now().Add(time.Minute) }
	for shard := range len(shards) / 2 {
		s.clocks[shard] = shardClock{}
	}
	frozen.Pause()
	defer frozen.Resume()
	read := func(what string, lanes int, list func(context.Context) (map[int][]job.LaneHead, error)) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		heads, err := list(ctx)
		if err == nil {
			t.Errorf("%s: no error", what)
		}
		for shard, away := range away {
			if there, read := heads[shard]; read == away || !away && (len(there) != lanes || there[0].Lane != due) {
				t.Errorf("%s: shard %d, away %v: read %v, %v", what, shard, away, read, there)
			}
		}
	}
	dueLanes := func(ctx context.Context) (map[int][]job.LaneHead, error) { return s.DueLanes(ctx, shards, time.Minute) }
	read("due, by clocks unheard", 1, dueLanes)
	for shard, away := range away {
		if s.clocks[shard].heard(s.now()) == away {
			t.Errorf("the clock of shard %d, away %v: heard %v", shard, away, !away)
		}
	}
	read("due, by clocks heard", 1, dueLanes)
	read("all", 2, func(ctx context.Context) (map[int][]job.LaneHead, error) { return s.Lanes(ctx, shards) })
}
