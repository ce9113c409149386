package redisstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// ListRanked lists the n worst jobs of some shards, the worst first. It costs what n costs, however many jobs there
// are. An entry may be out of date: compare it with its job.
func (s *Store) ListRanked(ctx context.Context, shards []int, which job.Ranking, n int) ([]job.Ranked, error) {
	ops := make([]*runner.Op, len(shards))
	for i, shard := range shards {
		key := s.shards[shard].Rankings[which]
		ops[i] = runner.NewCommand("zrange", key, "zrange", key, 0, n-1, "rev", "withscores")
	}
	if err := s.runner.Run(ctx, ops...); err != nil {
		return nil, err
	}
	var all []job.Ranked
	for i, shard := range shards {
		all = appendRanked(all, shard, ops[i].Reply)
	}
	return topRanked(all, n), nil
}

const (
	// lanesPerOverdueRead is how many lanes one read of overdue records covers.
	lanesPerOverdueRead = 16
	// maxOverdueRead bounds the records that one listing of overdue records reads.
	maxOverdueRead = 20_000
)

// ListOverdue lists the n records of some shards that have waited longest for a slot; their rank is for how long, in
// milliseconds. It reads at most n lanes of each shard from its index.
func (s *Store) ListOverdue(ctx context.Context, shards []int, n int) ([]job.Ranked, error) {
	heads, err := s.firstDueLanes(ctx, shards, 0, n)
	if err != nil {
		return nil, err
	}
	var lanes []job.ShardLane
	for shard, list := range heads {
		for _, h := range list {
			lanes = append(lanes, job.ShardLane{Shard: shard, LaneHead: h})
		}
	}
	slices.SortFunc(lanes, func(a, b job.ShardLane) int { return cmp.Compare(a.DueMS, b.DueMS) })
	return s.ListOverdueOf(ctx, lanes[:min(n, len(lanes))], n)
}

// ListOverdueOf is ListOverdue for some lanes, in the order of their due times. It reads few lanes at a time, and none
// whose first record is due later than n others. It reads at most some 20,000 records.
func (s *Store) ListOverdueOf(ctx context.Context, lanes []job.ShardLane, n int) ([]job.Ranked, error) {
	var worst []job.Ranked
	latest, read := job.NeverMS, 0 // only what is due earlier can be among the worst
	for part := range slices.Chunk(lanes, lanesPerOverdueRead) {
		if part[0].DueMS > latest || read >= maxOverdueRead {
			break
		}
		found, err := s.readOverdue(ctx, part, latest, n)
		if err != nil {
			return nil, err
		}
		read += len(found)
		worst = topRanked(append(worst, found...), n)
		if len(worst) == n {
			now, err := s.Now(ctx, worst[n-1].Shard)
			if err != nil {
				return nil, err
			}
			latest = now - unixtime.Milli(worst[n-1].Rank)
		}
	}
	return worst, nil
}

// readOverdue reads the first n records of each lane that are due at a time and now.
func (s *Store) readOverdue(ctx context.Context, lanes []job.ShardLane, latest unixtime.Milli,
	n int) ([]job.Ranked, error) {
	ops, nows := make([]*runner.Op, len(lanes)), make([]unixtime.Milli, len(lanes))
	for i, l := range lanes {
		now, err := s.Now(ctx, l.Shard)
		if err != nil {
			return nil, err
		}
		nows[i] = now
		key := s.shards[l.Shard].LaneKey(l.Lane)
		ops[i] = runner.NewCommand("zrange", key, "zrange", key, "-inf", int64(min(latest, now-1)), "byscore",
			"limit", 0, n, "withscores")
	}
	if err := s.runner.Run(ctx, ops...); err != nil {
		return nil, err
	}
	var found []job.Ranked
	for i, l := range lanes {
		for _, r := range appendRanked(nil, l.Shard, ops[i].Reply) {
			_, due := job.SplitScore(r.Rank)
			r.Rank = int64(nows[i] - due)
			found = append(found, r)
		}
	}
	return found, nil
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
func (s *Store) countRanked(ctx context.Context, shards []int, which job.Ranking,
	ranks, counts []int64) (some []int, err error) {
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
func appendRanked(out []job.Ranked, shard int, answer runner.Reply) []job.Ranked {
	pairs := answer.Pairs()
	for k := 0; k+1 < len(pairs); k += 2 {
		record := job.RecordID(pairs.TextAt(k))
		out = append(out, job.Ranked{Shard: shard, Record: record, Rank: pairs.ScoreAt(k + 1)})
	}
	return out
}

// topRanked are the n worst, in one order for all.
func topRanked(all []job.Ranked, n int) []job.Ranked {
	slices.SortFunc(all, job.Ranked.Compare)
	return all[:min(n, len(all))]
}
