package redisstore

import (
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// deadLettersRead is how many dead letters of a lane are read to find the oldest: those that
// are deleted first. Where letters are kept for different times an older one may be
// among the others.
const deadLettersRead = 8

// readOldestDeaths reads when the oldest dead letters of lanes died. The index has only the time until which a dead
// letter is kept.
func (s *Store) readOldestDeaths(ctx context.Context, counts []*laneCount, failed shardFailures) {
	counts = slices.DeleteFunc(slices.Clone(counts), func(c *laneCount) bool { return c.stat.DeadUntilMS == 0 })
	for part := range slices.Chunk(counts, maxReadsPerPipeline/deadLettersRead) {
		ops, letters := make([]*runner.Op, len(part)), make([][]job.RecordID, len(part))
		for i, c := range part {
			args := []any{"hmget", c.keys.State}
			for _, l := range appendRanked(nil, 0, c.ops[7].Reply) {
				letters[i] = append(letters[i], l.Record)
				args = append(args, string(l.Record))
			}
			ops[i] = runner.NewCommand("hmget", c.keys.State, args...)
		}
		s.runAllUnlessDone(ctx, ops)
		for i, c := range part {
			failed.addError(c.shard, ops[i].Err)
			c.stat.OldestDeadMS = unixtime.Milli(oldestDeathMS(letters[i], ops[i].Reply))
		}
	}
}

func oldestDeathMS(letters []job.RecordID, states runner.Reply) (ms int64) {
	for i, record := range letters {
		if !states.HasTextAt(i) {
			continue // deleted meanwhile
		}
		state, err := codec.DecodeState(record, states.TextAt(i))
		if err == nil && state.Region == job.RegionDead && (ms == 0 || state.LastFinished < unixtime.Milli(ms)) {
			ms = int64(state.LastFinished)
		}
	}
	return ms
}
