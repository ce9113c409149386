package redisstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/runner"
	"github.com/fermata-io/fermata/internal/test/redistest"
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
		cluster.Client().ZAdd(t.Context(), s.shards[shard].Lanes,
			redis.Z{Score: float64(now), Member: due.String()}, redis.Z{Score: float64(now + 3_600_000), Member: later.String()})
		master, err := cluster.Client().MasterForKey(t.Context(), s.shards[shard].Lanes)
		if err != nil {
			t.Fatal(err)
		}
		away[shard] = master.Options().Addr == frozen.Addr()
	}
	passed := time.Duration(0)
	replaceRunner(t, s, func(o *runner.Options) { o.Now = func() time.Time { return time.Now().Add(passed) } })
	for _, shard := range shards[len(shards)/2:] {
		if _, err := s.Now(t.Context(), shard); err != nil {
			t.Fatal(err)
		}
	}
	passed = time.Minute
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
		if _, recent := s.runner.RecentClock(shard); recent == away {
			t.Errorf("the clock of shard %d, away %v: heard %v", shard, away, !away)
		}
	}
	read("due, by clocks heard", 1, dueLanes)
	read("all", 2, func(ctx context.Context) (map[int][]job.LaneHead, error) { return s.Lanes(ctx, shards) })
}

// TestOverdueReadsFewLanes: however many lanes there are, with something due or without, only as many are read of a
// shard as records are asked for: nodes ask every few seconds.
func TestOverdueReadsFewLanes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, err := Open(t.Context(), Options{Client: server.Granted(), Shards: 1, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	now, err := s.Now(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		lane, due := job.Lane{Namespace: "ns", Queue: fmt.Sprintf("q%d", i)}, float64(now-5000+unixtime.Milli(i))
		server.Client().ZAdd(t.Context(), s.shards[0].LaneKey(lane), redis.Z{Score: due, Member: fmt.Sprintf("ns/j%d", i)})
		server.Client().ZAdd(t.Context(), s.shards[0].Lanes, redis.Z{Score: due, Member: lane.String()})
	}
	sent := func() (bytes int) {
		text, err := server.Client().Info(t.Context(), "stats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ = strings.Cut(text, "total_net_output_bytes:")
		if _, err := fmt.Sscan(text, &bytes); err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	before := sent()
	found, err := s.ListOverdue(t.Context(), []int{0}, 3)
	if err != nil || len(found) != 3 || found[0].Record != "ns/j0" || found[2].Record != "ns/j2" {
		t.Errorf("overdue: %v (%v)", found, err)
	}
	if bytes := sent() - before; bytes > 20_000 { // all lanes are 60,000; the figures themselves are 7,000
		t.Errorf("Redis sent %d bytes", bytes)
	}
}
