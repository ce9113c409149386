package redisstore

import (
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
)

// deadLettersRead is how many dead letters of a lane are read to find the oldest: those that
// are deleted first. Where letters are kept for different times an older one may be
// among the others.
const deadLettersRead = 8

// readOldestDeaths finds out when the oldest dead letters of lanes died: of a letter the index
// tells only until when it is kept.
func (s *Store) readOldestDeaths(ctx context.Context, counts []*laneCount, failed shardFailures) {
	counts = slices.DeleteFunc(slices.Clone(counts), func(c *laneCount) bool { return c.stat.DeadUntilMS == 0 })
	for part := range slices.Chunk(counts, maxReadsPerPipeline/deadLettersRead) {
		ops, letters := make([]*op, len(part)), make([][]job.RecordID, len(part))
		for i, c := range part {
			args := []any{"hmget", c.keys.state}
			for _, l := range appendRanked(nil, 0, c.ops[7].reply) {
				letters[i] = append(letters[i], l.Record)
				args = append(args, string(l.Record))
			}
			ops[i] = newCommand("hmget", c.keys.state, args...)
		}
		s.runAllUnlessDone(ctx, ops)
		for i, c := range part {
			failed.addError(c.shard, ops[i].err)
			c.stat.OldestDeadMS = oldestDeathMS(letters[i], ops[i].reply)
		}
	}
}

func oldestDeathMS(letters []job.RecordID, states reply) (ms int64) {
	for i, record := range letters {
		if !states.hasTextAt(i) {
			continue // deleted meanwhile
		}
		state, err := codec.DecodeState(record, states.textAt(i))
		if err == nil && state.Region == job.RegionDead && (ms == 0 || state.LastFinished < ms) {
			ms = state.LastFinished
		}
	}
	return ms
}
