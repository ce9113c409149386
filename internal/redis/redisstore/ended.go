package redisstore

import (
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// maxLanesPerEndsCall bounds the lanes of one script: a look at one takes about a microsecond of
// Redis, and a sixth of what it takes as a command of its own.
const maxLanesPerEndsCall = 500

// FirstEnds reads the time of the first record in each of some regions of lanes: the first end of a
// lease, or the first deletion of a finished job. It takes one round trip to each server. A region
// without records is omitted, so a lane is listed once for each region that has any. With an error it
// returns the shards that could be read.
func (s *Store) FirstEnds(ctx context.Context, lanes map[int][]job.Lane,
	regions ...job.Region) (map[int][]job.LaneHead, error) {
	bounds := scoreBounds(regions)
	var looks []endProbe
	out := make(map[int][]job.LaneHead, len(lanes))
	for shard, list := range lanes {
		out[shard] = nil
		for part := range slices.Chunk(list, maxLanesPerEndsCall) {
			looks = append(looks, endProbe{shard, part,
				runner.NewScriptCall(s.scripts.ends, shard, s.shards[shard].LaneKeys(part), bounds)})
		}
	}
	ops := make([]*runner.Op, len(looks))
	for i, l := range looks {
		ops[i] = l.op
	}
	err := s.runner.Run(ctx, ops...)
	for _, l := range looks {
		l.addTo(out)
	}
	return out, err
}

// scoreBounds are the first and last scores of all regions together, then of each region.
func scoreBounds(regions []job.Region) []any {
	bounds := []any{job.Score(slices.Min(regions), 0), job.Score(slices.Max(regions), job.NeverMS)}
	for _, r := range regions {
		bounds = append(bounds, job.Score(r, 0), job.Score(r, job.NeverMS))
	}
	return bounds
}

// endProbe reads lanes of one shard.
type endProbe struct {
	shard int
	lanes []job.Lane
	op    *runner.Op
}

// addTo adds what was found. A shard that could not be read completely is omitted.
func (l endProbe) addTo(found map[int][]job.LaneHead) {
	list, ok := found[l.shard]
	if l.op.Err != nil {
		delete(found, l.shard)
	}
	if l.op.Err != nil || !ok {
		return
	}
	for k := 0; k+1 < len(l.op.Reply); k += 2 {
		_, ms := job.SplitScore(l.op.Reply.ScoreAt(k + 1))
		list = append(list, job.LaneHead{Lane: l.lanes[l.op.Reply.IntAt(k)-1], DueMS: ms})
	}
	found[l.shard] = list
}
