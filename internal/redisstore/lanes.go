package redisstore

import (
	"context"

	"github.com/fermata-io/fermata/internal/job"
)

// lanesPerShard bounds the lanes that are listed of one shard: 1,000 queues of
// ten priorities.
const lanesPerShard = 10_000

// Lanes lists the lanes of shards that hold any record, with the first due time
// of each (job.NeverMS if nothing in it is due), and reads the shards' clocks. With
// an error come those shards that could be read: a server that is away must not
// hide the others'.
func (s *Store) Lanes(ctx context.Context, shards []int) (map[int][]job.LaneHead, error) {
	ops := make([]*op, len(shards))
	for i, shard := range shards {
		k := s.shards[shard]
		ops[i] = call(s.scripts.clock, shard, []string{k.meta, k.lanes}, []any{lanesPerShard})
	}
	err := s.perform(ctx, ops...)
	out := make(map[int][]job.LaneHead, len(shards))
	for i, shard := range shards {
		if ops[i].err != nil {
			continue
		}
		pairs := ops[i].reply.list(2)
		heads := make([]job.LaneHead, 0, len(pairs)/2)
		for k := 0; k+1 < len(pairs); k += 2 {
			lane, ok := job.ParseLane(pairs.text(k))
			if !ok {
				s.log.Error("index of lanes names what is no lane", "shard", shard, "lane", pairs.text(k))
				continue
			}
			heads = append(heads, job.LaneHead{Lane: lane, DueMS: score(pairs.at(k + 1))})
		}
		if len(heads) == lanesPerShard {
			s.log.Warn("shard has more lanes than are listed; those due last wait", "shard", shard, "listed", lanesPerShard)
		}
		out[shard] = heads
	}
	return out, err
}

// Stats counts the records of lanes by region. The counts are taken one after
// the other while work goes on, so they need not add up.
func (s *Store) Stats(ctx context.Context, shard int, lanes []job.Lane) ([]job.LaneStat, error) {
	now, err := s.Now(ctx, shard)
	if err != nil {
		return nil, err
	}
	var ops []*op
	for _, l := range lanes {
		key := s.shards[shard].laneKey(l)
		count := func(region job.Region, from, to int64) {
			ops = append(ops, command("zcount", key, "zcount", key, job.Score(region, from), job.Score(region, to)))
		}
		count(job.RegionDue, 0, now)
		count(job.RegionDue, now+1, job.NeverMS)
		for r := job.RegionLeased; r <= job.RegionDone; r++ {
			count(r, 0, job.NeverMS)
		}
		ops = append(ops, command("zrange", key, "zrange", key, 0, 0, "withscores"))
	}
	if err := s.perform(ctx, ops...); err != nil {
		return nil, err
	}
	const each = 7
	out := make([]job.LaneStat, len(lanes))
	for i, l := range lanes {
		n := func(k int) int64 { return ops[i*each+k].reply.int(0) }
		out[i] = job.LaneStat{
			Lane: l, Backlog: n(0), Scheduled: n(1), Leased: n(2), Paused: n(3), Dead: n(4), Done: n(5),
		}
		if due := firstScore(ops[i*each+6].reply); out[i].Backlog > 0 && due <= now {
			out[i].OldestDueMS = due
		}
	}
	return out, nil
}

// firstScore reads an answer of one member with its score: a flat list in one
// protocol, a list of pairs in the other.
func firstScore(r reply) int64 {
	if pair := r.list(0); len(pair) == 2 {
		return score(pair.at(1))
	}
	return score(r.at(1))
}
