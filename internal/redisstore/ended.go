package redisstore

import (
	"context"

	"github.com/fermata-io/fermata/internal/job"
)

// FirstEnds tells of lanes when the time of the first record in each of some regions
// comes or has come: when the lease ends that ends first, when the first finished job is
// to be deleted. It takes plain reads, all in one round trip to each server. A region
// without records is left out, so that a lane is listed as often as it has any. With an
// error come those shards that could be read.
func (s *Store) FirstEnds(ctx context.Context, lanes map[int][]job.Lane, regions ...job.Region) (map[int][]job.LaneHead, error) {
	var looks []endLook
	out := make(map[int][]job.LaneHead, len(lanes))
	for shard, list := range lanes {
		out[shard] = nil
		for _, l := range list {
			for _, r := range regions {
				key := s.shards[shard].laneKey(l)
				looks = append(looks, endLook{shard, l, command("zrange", key,
					"zrange", key, job.Score(r, 0), job.Score(r, job.NeverMS), "byscore", "limit", 0, 1, "withscores")})
			}
		}
	}
	var failed error
	for len(looks) > 0 {
		part := looks[:min(len(looks), readsPerCall)]
		looks = looks[len(part):]
		ops := make([]*op, len(part))
		for i, l := range part {
			ops[i] = l.op
		}
		if err := s.perform(ctx, ops...); err != nil {
			failed = err
		}
		for _, l := range part {
			l.note(out)
		}
	}
	return out, failed
}

// endLook is a look at one region of a lane.
type endLook struct {
	shard int
	lane  job.Lane
	op    *op
}

// note adds what was found. A shard that could not be read as a whole is left out.
func (l endLook) note(found map[int][]job.LaneHead) {
	list, ok := found[l.shard]
	switch {
	case l.op.err != nil:
		delete(found, l.shard)
	case ok && len(l.op.reply) > 0:
		_, ms := job.SplitScore(firstScore(l.op.reply))
		found[l.shard] = append(list, job.LaneHead{Lane: l.lane, DueMS: ms})
	}
}
