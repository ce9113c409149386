package node

import (
	"slices"
	"testing"
)

// Shards with many lanes take turns, and each has one.
func TestShardsWithManyLanesAreCountedInTurns(t *testing.T) {
	c := queueCounts{shards: map[int][]laneStat{}}
	held := []int{1, 4, 6, 9}
	count := func(lanes int, want ...int) {
		t.Helper()
		got := c.next(held)
		if !slices.Equal(got, want) {
			t.Fatalf("counted %v, want %v", got, want)
		}
		for _, shard := range got {
			c.shards[shard], c.last = make([]laneStat, lanes), shard
		}
	}
	count(1000, 1, 4, 6, 9) // nothing is known yet
	count(countedLanes/2, 1, 4, 6, 9)
	count(countedLanes/2, 1, 4)
	count(countedLanes/2, 6, 9)
	count(countedLanes+1, 1, 4)
	count(countedLanes+1, 6, 9)
	count(countedLanes+1, 1)
	held = []int{4, 9}
	count(10, 4)
	if len(c.shards) != 2 {
		t.Errorf("%d shards are remembered, 2 are held", len(c.shards))
	}
	count(10, 9)
	count(10, 4, 9)
	held = nil
	count(10)
	if len(c.shards) != 0 {
		t.Errorf("%d shards are remembered, none is held", len(c.shards))
	}
}
