package redisstore

import (
	"context"

	"github.com/fermata-io/fermata/internal/job"
)

// Ended narrows lanes of shards to those in which the time of a record in one of the
// regions has come, with plain reads, all in one round trip to each server. By the
// shards' clocks as this process knows them, so that it may be a moment late; what it
// finds is for Expired and Sweep to look at. With an error come those shards that could
// be read.
func (s *Store) Ended(ctx context.Context, lanes map[int][]job.Lane, regions ...job.Region) (map[int][]job.Lane, error) {
	var looks []endedLook
	var failed error
	for shard, list := range lanes {
		now, err := s.Now(ctx, shard)
		if err != nil {
			failed = err
			continue
		}
		for _, l := range list {
			for _, r := range regions {
				key := s.shards[shard].laneKey(l)
				looks = append(looks, endedLook{shard, l, command("zrange", key,
					"zrange", key, job.Score(r, 0), job.Score(r, now), "byscore", "limit", 0, 1)})
			}
		}
	}
	out := map[int][]job.Lane{}
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

// endedLook is a look at one region of a lane.
type endedLook struct {
	shard int
	lane  job.Lane
	op    *op
}

// note adds the lane if there is something. The regions of a lane are looked at one
// after the other.
func (l endedLook) note(found map[int][]job.Lane) {
	if l.op.err != nil || len(l.op.reply) == 0 {
		return
	}
	list := found[l.shard]
	if n := len(list); n == 0 || list[n-1] != l.lane {
		found[l.shard] = append(list, l.lane)
	}
}
