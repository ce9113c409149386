package redisstore

import (
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
)

// endsPerCall bounds the lanes of one script: a look at one takes about a microsecond of
// Redis, and a sixth of what it takes as a command of its own.
const endsPerCall = 500

// FirstEnds tells of lanes when the time of the first record in each of some regions
// comes or has come: when the lease ends that ends first, when the first finished job is
// to be deleted. All is read in one round trip to each server. A region without records
// is left out, so that a lane is listed as often as it has any. With an error come those
// shards that could be read.
func (s *Store) FirstEnds(ctx context.Context, lanes map[int][]job.Lane, regions ...job.Region) (map[int][]job.LaneHead, error) {
	bounds := boundsOf(regions)
	var looks []endLook
	out := make(map[int][]job.LaneHead, len(lanes))
	for shard, list := range lanes {
		out[shard] = nil
		for part := range slices.Chunk(list, endsPerCall) {
			looks = append(looks, endLook{shard, part, call(s.scripts.ends, shard, s.shards[shard].laneKeys(part), bounds)})
		}
	}
	ops := make([]*op, len(looks))
	for i, l := range looks {
		ops[i] = l.op
	}
	err := s.perform(ctx, ops...)
	for _, l := range looks {
		l.note(out)
	}
	return out, err
}

// boundsOf are the first and last scores of the stretch that has all regions, and of each.
func boundsOf(regions []job.Region) []any {
	bounds := []any{job.Score(slices.Min(regions), 0), job.Score(slices.Max(regions), job.NeverMS)}
	for _, r := range regions {
		bounds = append(bounds, job.Score(r, 0), job.Score(r, job.NeverMS))
	}
	return bounds
}

// endLook is a look at lanes of a shard.
type endLook struct {
	shard int
	lanes []job.Lane
	op    *op
}

// note adds what was found. A shard that could not be read as a whole is left out.
func (l endLook) note(found map[int][]job.LaneHead) {
	list, ok := found[l.shard]
	if l.op.err != nil {
		delete(found, l.shard)
	}
	if l.op.err != nil || !ok {
		return
	}
	for k := 0; k+1 < len(l.op.reply); k += 2 {
		_, ms := job.SplitScore(score(l.op.reply.at(k + 1)))
		list = append(list, job.LaneHead{Lane: l.lanes[l.op.reply.int(k)-1], DueMS: ms})
	}
	found[l.shard] = list
}
