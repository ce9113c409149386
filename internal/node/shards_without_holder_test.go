package node

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// TestReadinessFollowsShardsWithoutHolder looks every 5 s at four shards, with locks of 10 s.
func TestReadinessFollowsShardsWithoutHolder(t *testing.T) {
	for name, tt := range map[string]struct {
		owners, holders string // of each shard, a letter; a is this node, - nobody
		looks           int
		ready           bool
	}{
		"all held":                        {"aabb", "aabb", 10, true},
		"just now":                        {"aabb", "--bb", 3, true},
		"for longer than a take-over":     {"aabb", "--bb", 4, false},
		"some of them":                    {"aaab", "a-bb", 4, false},
		"those of another node":           {"aabb", "aa--", 10, true},
		"none of all":                     {"aabb", "----", 10, true},
		"both miss some":                  {"aabb", "-a-b", 10, true},
		"this node holds the most":        {"aaab", "aa-b", 10, true},
		"held by who should not":          {"aabb", "bbbb", 10, true},
		"nobody knows who should":         {"", "--bb", 10, true},
		"this node leaves them to others": {"bbbb", "--bb", 10, true},
	} {
		u, now := newUnheldShards("a", 10*time.Second), time.Unix(1000, 0)
		look := func(holders string) bool {
			var owned []string
			for _, o := range tt.owners {
				owned = append(owned, string(o))
			}
			var held []shardlock.Holder
			for i, h := range holders {
				held = append(held, shardlock.Holder{Shard: i,
					Node: map[bool]string{true: "", false: string(h)}[h == '-']})
			}
			u.updateHolders(owned, held, now)
			now = now.Add(5 * time.Second)
			return u.reason.Load() == nil
		}
		ready := true
		for range tt.looks {
			ready = look(tt.holders)
		}
		if ready != tt.ready {
			t.Errorf("%s: ready is %t", name, ready)
		}
		if !look("aabb") {
			t.Errorf("%s: not ready when all are held", name)
		}
	}
}
