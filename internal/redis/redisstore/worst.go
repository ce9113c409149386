package redisstore

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// maxRanked is how many jobs an index of the worst keeps, as apply.lua has it.
const maxRanked = 1000

// ListRanked lists the n worst jobs of some shards, of a namespace ("": of all), the worst
// first. It costs what n costs, however many jobs there are; with a namespace, what the
// bounded indexes hold. An entry may be out of date: compare it with its job.
func (s *Store) ListRanked(ctx context.Context, shards []int, which job.Ranking, namespace string, n int) ([]job.Ranked, error) {
	last := n - 1
	if namespace != "" {
		last = maxRanked - 1
	}
	ops := make([]*runner.Op, len(shards))
	for i, shard := range shards {
		key := s.shards[shard].Rankings[which]
		ops[i] = runner.NewCommand("zrange", key, "zrange", key, 0, last, "rev", "withscores")
	}
	if err := s.runner.Run(ctx, ops...); err != nil {
		return nil, err
	}
	var all []job.Ranked
	for i, shard := range shards {
		all = appendRanked(all, shard, ops[i].Reply, namespace)
	}
	return topRanked(all, n), nil
}

// ListOverdue lists the n records of some shards that have waited longest for a slot, of a
// namespace ("": of all); their rank is for how long, in milliseconds. It reads at most n
// lanes of each shard from its index, with a namespace all that have something due, and
// the heads of at most n lanes.
func (s *Store) ListOverdue(ctx context.Context, shards []int, namespace string, n int) ([]job.Ranked, error) {
	heads, err := s.overdueLanes(ctx, shards, namespace, n)
	if err != nil {
		return nil, err
	}
	ops := make([]*runner.Op, len(heads))
	for i, h := range heads {
		key := s.shards[h.shard].LaneKey(h.Lane)
		ops[i] = runner.NewCommand("zrange", key, "zrange", key, 0, n-1, "withscores")
	}
	if err := s.runner.Run(ctx, ops...); err != nil {
		return nil, err
	}
	var all []job.Ranked
	for i, h := range heads {
		for _, r := range appendRanked(nil, h.shard, ops[i].Reply, "") {
			region, due := job.SplitScore(r.Rank)
			r.Rank = h.now - due
			if region == job.RegionDue && r.Rank > 0 {
				all = append(all, r)
			}
		}
	}
	return topRanked(all, n), nil
}

// overdueLane is a lane whose first record is overdue at an instant.
type overdueLane struct {
	job.LaneHead
	shard int
	now   int64
}

// overdueLanes are the n lanes whose first records have waited longest: the n records
// that have are in them.
func (s *Store) overdueLanes(ctx context.Context, shards []int, namespace string, n int) ([]overdueLane, error) {
	most := n
	if namespace != "" {
		most = job.LanesPerRead
	}
	heads, err := s.firstDueLanes(ctx, shards, 0, most)
	if err != nil {
		return nil, err
	}
	var late []overdueLane
	for shard, list := range heads {
		now, err := s.Now(ctx, shard)
		if err != nil {
			return nil, err
		}
		for _, h := range list {
			if h.DueMS < now && (namespace == "" || h.Lane.Namespace == namespace) {
				late = append(late, overdueLane{h, shard, now})
			}
		}
	}
	slices.SortFunc(late, func(a, b overdueLane) int { return cmp.Compare(b.now-b.DueMS, a.now-a.DueMS) })
	return late[:min(n, len(late))], nil
}

// RemoveRanked takes entries that proved to be out of date off an index. One whose rank has
// changed since it was read comes back with its job's next decision.
func (s *Store) RemoveRanked(ctx context.Context, which job.Ranking, entries []job.Ranked) error {
	var ops []*runner.Op
	for _, e := range entries {
		key := s.shards[e.Shard].Rankings[which]
		ops = append(ops, runner.NewCommand("zrem", key, "zrem", key, string(e.Record)))
	}
	return s.runner.Run(ctx, ops...)
}

// CountRanked counts the entries of some shards by rank: how many are at least as bad as
// each of these, which ascend. Most shards have none that is as bad as the first, and are
// asked for no more.
func (s *Store) CountRanked(ctx context.Context, shards []int, which job.Ranking, ranks []int64) ([]int64, error) {
	counts := make([]int64, len(ranks))
	if len(ranks) == 0 {
		return counts, nil
	}
	some, err := s.countRanked(ctx, shards, which, ranks[:1], counts[:1])
	if err == nil {
		_, err = s.countRanked(ctx, some, which, ranks[1:], counts[1:])
	}
	if err != nil {
		return nil, err
	}
	return counts, nil
}

// countRanked adds to the counts of the ranks, and lists the shards that had any.
func (s *Store) countRanked(ctx context.Context, shards []int, which job.Ranking, ranks, counts []int64) (some []int, err error) {
	ops := make([]*runner.Op, 0, len(shards)*len(ranks))
	for _, shard := range shards {
		key := s.shards[shard].Rankings[which]
		for _, r := range ranks {
			ops = append(ops, runner.NewCommand("zcount", key, "zcount", key, r, "+inf"))
		}
	}
	if err := s.runner.Run(ctx, ops...); err != nil {
		return nil, err
	}
	for i, o := range ops {
		n := o.Reply.IntAt(0)
		counts[i%len(ranks)] += n
		if shard := shards[i/len(ranks)]; n > 0 && (len(some) == 0 || some[len(some)-1] != shard) {
			some = append(some, shard)
		}
	}
	return some, nil
}

// appendRanked reads an answer of members with their scores.
func appendRanked(out []job.Ranked, shard int, answer runner.Reply, namespace string) []job.Ranked {
	pairs := answer.Pairs()
	for k := 0; k+1 < len(pairs); k += 2 {
		record := pairs.TextAt(k)
		if namespace == "" || strings.HasPrefix(record, namespace+"/") {
			out = append(out, job.Ranked{Shard: shard, Record: job.RecordID(record), Rank: pairs.ScoreAt(k + 1)})
		}
	}
	return out
}

// topRanked are the n worst, in one order for all.
func topRanked(all []job.Ranked, n int) []job.Ranked {
	slices.SortFunc(all, func(a, b job.Ranked) int {
		return cmp.Or(cmp.Compare(b.Rank, a.Rank), cmp.Compare(a.Record, b.Record))
	})
	return all[:min(n, len(all))]
}
