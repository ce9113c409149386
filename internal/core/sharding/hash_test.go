package sharding_test

import (
	"fmt"
	"testing"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"pgregory.net/rapid"
)

// These numbers may never change: they are the shards of stored jobs.
func TestShardOfGolden(t *testing.T) {
	for _, c := range []struct {
		namespace, id string
		shards, want  int
	}{
		{"default", "report", 64, 50},
		{"default", "report", 256, 203},
		{"default", "report", 7, 5},
		{"default", "réport", 64, 35},
		{"tenant-a", "job-000001", 64, 47},
		{"tenant-a", "job-000002", 64, 5},
		{"a", "bc", 4096, 1303},
		{"ab", "c", 4096, 1502},
		{"", "", 64, 28},
		{"default", "report", 1, 0},
		{"default", "report", 0, 0},
		{"default", "report", -3, 0},
	} {
		if got := sharding.ShardOf(c.namespace, c.id, c.shards); got != c.want {
			t.Errorf("ShardOf(%q, %q, %d) = %d, want %d", c.namespace, c.id, c.shards, got, c.want)
		}
	}
}

func TestShardOfIsEven(t *testing.T) {
	const jobs = 200_000
	for _, shards := range []int{3, 64, 256} {
		for name, id := range map[string]func(int) string{
			"numbers": func(i int) string { return fmt.Sprint(i) },
			"padded":  func(i int) string { return fmt.Sprintf("customer-%08d-report", i) },
		} {
			count := make([]int, shards)
			for i := range jobs {
				count[sharding.ShardOf("default", id(i), shards)]++
			}
			for shard, n := range count {
				if mean := jobs / shards; n < mean*80/100 || n > mean*120/100 {
					t.Errorf("%s: shard %d of %d holds %d, mean %d", name, shard, shards, n, mean)
				}
			}
		}
	}
}

func TestShardOfStaysInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(1, 1<<20).Draw(t, "shards")
		shard := sharding.ShardOf(rapid.String().Draw(t, "namespace"), rapid.String().Draw(t, "id"), shards)
		if shard < 0 || shard >= shards {
			t.Fatalf("%d of %d", shard, shards)
		}
	})
}

// TestCompletedIDIsInTheShard: whatever the beginning, and however many shards there may be.
func TestCompletedIDIsInTheShard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		namespace, beginning := rapid.String().Draw(t, "namespace"), rapid.String().Draw(t, "beginning")
		shards := rapid.IntRange(1, 512).Draw(t, "shards")
		shard := rapid.IntRange(0, shards-1).Draw(t, "shard")
		id, ok := sharding.IDInShard(namespace, beginning, shard, shards)
		if !ok || len(id) != len(beginning)+3 || id[:len(beginning)] != beginning {
			t.Fatalf("%q, %v", id, ok)
		}
		if got := sharding.ShardOf(namespace, id, shards); got != shard {
			t.Fatalf("%q is in shard %d", id, got)
		}
	})
}

func TestCompleteFailsForImpossibleShards(t *testing.T) {
	for shard := range 64 {
		if id, ok := sharding.IDInShard("default", "job-", shard, 1<<40); ok && sharding.ShardOf("default", id, 1<<40) != shard {
			t.Fatalf("%q is not in shard %d", id, shard)
		} else if !ok {
			return
		}
	}
	t.Fatal("32,768 endings lead to each of 2^40 shards")
}
