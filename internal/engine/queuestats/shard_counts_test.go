package queuestats

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// countBed counts lanes in eight shards. Each lane of the index is due later, and may have a record.
type countBed struct {
	t      *testing.T
	client *redis.Client
	store  *redisstore.Store
	counts *ShardCounts
}

const countShards = 8

func newCountBed(t *testing.T, lanesPerShard int) *countBed {
	server := redistest.Start(t)
	b := &countBed{t: t, client: server.Client()}
	client, err := conn.NewClient(conn.ClientOptions{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.Open(t.Context(),
		redisstore.Options{Client: client, Shards: countShards, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	b.store, b.counts = store, NewShardCounts(store)
	// A machine that is busy for a while is not what is tested.
	b.counts.listTimeout, b.counts.countTimeout = time.Minute, time.Minute
	for shard := range countShards {
		var index []redis.Z
		for i := range lanesPerShard {
			index = append(index, redis.Z{Score: float64(job.NeverMS), Member: countLane(i).String()})
		}
		b.must(b.client.ZAdd(t.Context(), b.key(shard, "lanes"), index...).Err())
	}
	return b
}

func countLane(i int) job.Lane { return job.Lane{Namespace: "ns", Queue: fmt.Sprint("q", i)} }

func (b *countBed) key(shard int, name string) string {
	return strings.TrimSuffix(b.store.LockKey(shard), "lock") + name
}

func (b *countBed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// put makes a record of the first lane of a shard due at an instant.
func (b *countBed) put(shard int, dueMS unixtime.Milli) {
	b.t.Helper()
	lane := countLane(0).String()
	b.must(b.client.ZAdd(b.t.Context(), b.key(shard, "l:"+lane),
		redis.Z{Score: float64(dueMS), Member: "ns/job"}).Err())
	b.must(b.client.ZAdd(b.t.Context(), b.key(shard, "lanes"), redis.Z{Score: float64(dueMS), Member: lane}).Err())
}

// round counts the first shards and returns the backlog of all that are known.
func (b *countBed) round(ctx context.Context, held int) (backlog int64) {
	shards := make([]int, held)
	for shard := range shards {
		shards[shard] = shard
	}
	b.counts.Update(ctx, shards)
	for q := range b.counts.Lanes() {
		backlog += q.Backlog
	}
	return backlog
}

// A node that takes shards over counts their queues in its next round, however many lanes
// it had before.
func TestNewShardsAreCountedAtOnce(t *testing.T) {
	b := newCountBed(t, maxCountedLanes/2)
	for shard := range countShards {
		b.put(shard, 1)
	}
	if got := b.round(t.Context(), 4); got != 4 {
		t.Errorf("a backlog of %d in 4 shards", got)
	}
	b.round(t.Context(), 4)
	if got := b.round(t.Context(), countShards); got != countShards {
		t.Errorf("a backlog of %d in %d shards", got, countShards)
	}
	if got := b.round(t.Context(), 1); got != 1 {
		t.Errorf("a backlog of %d in the one shard that is held", got)
	}
	updated, lanes := b.counts.Update(t.Context(), nil), slices.Collect(b.counts.Lanes())
	if !updated || len(lanes) > 0 {
		t.Errorf("updated %v, %d lanes although no shard is held", updated, len(lanes))
	}
}

// If there are many lanes, the shards take turns, but lanes with a backlog are counted each time.
func TestBacklogIsCountedEachTime(t *testing.T) {
	t.Parallel()
	b := newCountBed(t, maxCountedLanes+1)
	b.round(t.Context(), countShards)
	for round, want := range []int64{countShards, countShards, 0, 0} {
		switch round {
		case 0:
			for shard := range countShards {
				b.put(shard, 1)
			}
		case 2:
			for shard := range countShards {
				b.put(shard, job.NeverMS)
			}
		}
		if got := b.round(t.Context(), countShards); got != want {
			t.Errorf("round %d: a backlog of %d, want %d", round, got, want)
		}
	}
	scheduled := func() (n int) {
		for q := range b.counts.Lanes() {
			n += int(q.Scheduled)
		}
		return n
	}
	for shard := range countShards {
		key := b.key(shard, "l:"+countLane(1).String())
		b.must(b.client.ZAdd(t.Context(), key, redis.Z{Score: float64(job.NeverMS), Member: "ns/later"}).Err())
	}
	for round := range countShards {
		b.round(t.Context(), countShards)
		if got, want := scheduled(), countShards+round+1; got != want {
			t.Errorf("round %d: %d scheduled, want %d", round, got, want)
		}
	}
}

// A shard that cannot be read does not keep others from being counted, whether it was counted before or not.
func TestUnreadableShardDoesNotHideOthers(t *testing.T) {
	t.Parallel()
	b := newCountBed(t, maxCountedLanes+1)
	unreadable := b.key(2, "lanes")
	b.must(b.client.Rename(t.Context(), unreadable, "aside").Err())
	b.must(b.client.Set(t.Context(), unreadable, "no index", 0).Err())
	for shard := range countShards {
		if shard != 2 {
			b.put(shard, 1)
		}
	}
	if got := b.round(t.Context(), countShards); got != countShards-1 {
		t.Errorf("a backlog of %d, want that of %d shards", got, countShards-1)
	}
	b.must(b.client.Del(t.Context(), unreadable).Err())
	b.put(2, 1)
	if got := b.round(t.Context(), countShards); got != countShards {
		t.Errorf("a backlog of %d when all can be read, want %d", got, countShards)
	}
	// Counts stay when the shard cannot be read any more, and the other shards still take turns.
	b.must(b.client.Del(t.Context(), unreadable).Err())
	b.must(b.client.Set(t.Context(), unreadable, "no index", 0).Err())
	for shard := range countShards {
		if shard != 2 {
			b.put(shard, job.NeverMS)
		}
	}
	for range countShards {
		if got := b.round(t.Context(), countShards); got != 1 {
			t.Errorf("a backlog of %d, want that of the shard that cannot be read", got)
		}
	}
}

// What could be counted in time stays, and the next round continues with the others.
func TestManyLanesAreCountedInSeveralRounds(t *testing.T) {
	t.Parallel()
	b := newCountBed(t, maxCountedLanes)
	for shard := range countShards {
		b.put(shard, 1)
	}
	for round, want := range []int64{3, 6, 8} {
		ctx, cancel := context.WithCancel(t.Context())
		b.counts.store = b.storeWithHook(func(listing int) {
			if listing == 4 {
				cancel()
			}
		})
		if got := b.round(ctx, countShards); got != want {
			t.Errorf("round %d: a backlog of %d, want %d", round, got, want)
		}
		cancel()
	}
}

// storeWithHook returns another store of the same keyspace, which calls f before each listing of lanes.
func (b *countBed) storeWithHook(f func(listing int)) *redisstore.Store {
	b.t.Helper()
	client, err := conn.NewClient(conn.ClientOptions{URL: "redis://" + b.client.Options().Addr,
		Username: b.client.Options().Username, Password: b.client.Options().Password})
	b.must(err)
	b.t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.Open(b.t.Context(), redisstore.Options{Client: client, AllowUnsafe: true})
	b.must(err)
	client.AddHook(&listings{before: f})
	return store
}

// listings counts the pipelines that list lanes.
type listings struct {
	redis.Hook
	n      int
	before func(int)
}

func (l *listings) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (l *listings) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (l *listings) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.Contains(fmt.Sprint(cmds[0].Args()...), ":lanes") {
			l.n++
			l.before(l.n)
		}
		return next(ctx, cmds)
	}
}

// All lanes of a shard are counted, also those after the first page, and lanes that do not exist any more are removed.
func TestAllLanesOfAShardAreCounted(t *testing.T) {
	b := newCountBed(t, 1)
	var index []redis.Z
	for i := range job.LanesPerRead + 100 {
		index = append(index, redis.Z{Score: float64(job.NeverMS), Member: countLane(i).String()})
	}
	b.must(b.client.ZAdd(t.Context(), b.key(0, "lanes"), index...).Err())
	counted := func(want int) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, "all lanes are counted", func(ctx context.Context) error {
			b.counts.Update(ctx, []int{0})
			if n := len(b.counts.shards[0]); n != want || len(b.counts.passes) > 0 {
				return fmt.Errorf("%d lanes", n)
			}
			return nil
		})
	}
	counted(job.LanesPerRead + 100)
	b.must(b.client.Del(t.Context(), b.key(0, "lanes")).Err())
	b.put(0, 1)
	counted(1)
}
