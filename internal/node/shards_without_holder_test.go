package node

import (
	"maps"
	"strings"
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

// TestAbandonedShards looks every 5 s at shards, with locks of 10 s: a shard is abandoned after 22 s without a holder.
func TestAbandonedShards(t *testing.T) {
	owned := func(owners string) (list []string) {
		for _, o := range owners {
			list = append(list, strings.Trim(string(o), "-"))
		}
		return list
	}
	held := func(holders string) (list []shardlock.Holder) {
		for i, h := range holders {
			list = append(list, shardlock.Holder{Shard: i, Node: strings.Trim(string(h), "-?"), Unknown: h == '?'})
		}
		return list
	}
	for name, tt := range map[string]struct {
		owners, holders []string // at each look; the last one is repeated; - nobody, ? not read
		looks           int
		want            map[int]string
	}{
		"for long":               {[]string{"abbc"}, []string{"a-bc"}, 6, map[int]string{1: "b"}},
		"not for long":           {[]string{"abbc"}, []string{"a-bc"}, 5, nil},
		"held once meanwhile":    {[]string{"abbc"}, []string{"a-bc", "a-bc", "a-bc", "abbc", "a-bc"}, 6, nil},
		"the owner changed":      {[]string{"abbc", "abbc", "abbc", "accc"}, []string{"a-bc"}, 6, nil},
		"of two nodes":           {[]string{"abbc"}, []string{"ab--"}, 6, map[int]string{2: "b", 3: "c"}},
		"this node's own":        {[]string{"abbc"}, []string{"-bbc"}, 9, nil},
		"this node's own, too":   {[]string{"abbc"}, []string{"--bc"}, 9, nil},
		"own shards unknown":     {[]string{"abbc"}, []string{"?-bc"}, 6, map[int]string{1: "b"}},
		"unknown":                {[]string{"abbc"}, []string{"a?bc"}, 9, nil},
		"unknown at times":       {[]string{"abbc"}, []string{"a-bc", "a-bc", "a-bc", "a?bc", "a-bc"}, 6, nil},
		"nobody's":               {[]string{"a--c"}, []string{"a--c"}, 9, nil},
		"before there is a view": {[]string{""}, []string{"----"}, 9, nil},
	} {
		u, now := newUnheldShards("a", 10*time.Second), time.Unix(1000, 0)
		var got map[int]string
		for i := range tt.looks {
			got = u.updateHolders(owned(tt.owners[min(i, len(tt.owners)-1)]), held(tt.holders[min(i, len(tt.holders)-1)]), now)
			now = now.Add(5 * time.Second)
		}
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
