package sharding_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/sharding"
)

// The first is the check value of CRC-16/XMODEM that the Redis Cluster
// specification gives; the others are what CLUSTER KEYSLOT answers.
func TestSlot(t *testing.T) {
	for tag, want := range map[string]uint16{
		"123456789": 0x31C3,
		"foo":       12182,
		"bar":       5061,
		"somekey":   11058,
		"user1000":  3443,
		"":          0,
	} {
		if got := sharding.Slot(tag); got != want {
			t.Errorf("Slot(%q) = %d, want %d", tag, got, want)
		}
	}
}

// Tags are in every key: they may never change.
func TestTagsGolden(t *testing.T) {
	if got, want := strings.Join(sharding.Tags(8), " "), "0.773 1.3443 2.227 3.2520 4.586 5.1068 6.1197 7.849"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, c := range []struct {
		shard, shards int
		want          string
	}{{0, 64, "0.1967"}, {7, 64, "7.3715"}, {63, 64, "63.335"}, {255, 256, "255.3834"}, {0, 1, "0.3108"}} {
		if got := sharding.Tag(c.shard, c.shards); got != c.want {
			t.Errorf("Tag(%d, %d) = %q, want %q", c.shard, c.shards, got, c.want)
		}
	}
}

// No k below 4000 is nearer the middle than the one chosen.
func TestTagIsNearestTheMiddle(t *testing.T) {
	for _, shards := range []int{1, 5, 64} {
		for shard, tag := range sharding.Tags(shards) {
			middle := (float64(shard) + 0.5) * sharding.Slots / float64(shards)
			best, nearest := "", math.Inf(1)
			for k := range 4000 {
				candidate := fmt.Sprintf("%d.%d", shard, k)
				if d := math.Abs(float64(sharding.Slot(candidate)) - middle); d < nearest {
					best, nearest = candidate, d
				}
			}
			if tag != best {
				t.Errorf("shard %d of %d: %s, want %s", shard, shards, tag, best)
			}
		}
	}
}

func TestTagsAreUniqueAndInTheirPart(t *testing.T) {
	for _, shards := range []int{1, 2, 3, 7, 64, 256, 1000} {
		seen := map[string]bool{}
		for shard, tag := range sharding.Tags(shards) {
			if seen[tag] || strings.ContainsAny(tag, "{}") {
				t.Errorf("tag %q", tag)
			}
			seen[tag] = true
			if slot := int(sharding.Slot(tag)); slot*shards/sharding.Slots != shard {
				t.Errorf("shard %d of %d: slot %d is outside its part", shard, shards, slot)
			}
		}
	}
	if got := sharding.Tags(-1); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// Masters own contiguous slots, as redis-cli --cluster create deals them out.
// No master holds two shards more than another.
func TestClusterBalance(t *testing.T) {
	for masters, want := range map[int]string{3: "21/22/21", 6: "11/10/11/11/10/11"} {
		if got := perMaster(64, masters); strings.Trim(strings.ReplaceAll(fmt.Sprint(got), " ", "/"), "[]") != want {
			t.Errorf("64 shards on %d masters: %v, want %s", masters, got, want)
		}
	}
	for _, shards := range []int{64, 256} {
		for _, masters := range []int{2, 3, 4, 5, 6, 7, 8, 16} {
			count := perMaster(shards, masters)
			low, high := shards, 0
			for _, n := range count {
				low, high = min(low, n), max(high, n)
			}
			if high-low > 1 {
				t.Errorf("%d shards on %d masters: %v", shards, masters, count)
			}
		}
	}
}

func perMaster(shards, masters int) []int {
	count := make([]int, masters)
	per := float64(sharding.Slots) / float64(masters)
	for _, tag := range sharding.Tags(shards) {
		slot, master := int(sharding.Slot(tag)), 0
		for master < masters-1 && slot >= int(math.Round(per*float64(master+1))) {
			master++
		}
		count[master]++
	}
	return count
}

func BenchmarkTags(b *testing.B) {
	for b.Loop() {
		sharding.Tags(64)
	}
}
