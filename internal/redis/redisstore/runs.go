package redisstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Runs lists the ended runs of a job that are kept, newest first, and after them
// the dead letters that the history has forgotten. A run that is kept as a dead
// letter has DeadLetter set.
func (s *Store) Runs(ctx context.Context, key job.Key, historyLimit int) ([]job.Run, error) {
	shard, parent := s.ShardOf(key), key.Record()
	kept := runner.NewFieldsRead(shard, s.shards[shard].State, []job.RecordID{parent})
	if err := s.runner.Run(ctx, kept); err != nil {
		return nil, err
	}
	var fields []string
	for slot := range max(0, min(historyLimit, codec.MaxHistory)) {
		fields = append(fields, codec.HistoryField(parent, slot))
	}
	inHistory := len(fields)
	for slot := range job.DeadLettersPerJob {
		fields = append(fields, codec.HistoryField(parent.Letter(slot), 0))
	}
	read := runner.NewFieldsRead(shard, s.shards[shard].Hist, fields)
	read.ReplySize = min(len(fields)*largeRun, maxReplyBytes)
	if err := s.runner.Run(ctx, read); err != nil {
		return nil, err
	}
	var history, letters []job.Run
	for i := range fields {
		if !read.Reply.HasTextAt(i) {
			continue
		}
		run, err := codec.DecodeRun(read.Reply.TextAt(i))
		switch {
		case err != nil:
			s.runner.ReportCorrupt(shard, "runs", err, fields[i])
		case i < inHistory:
			history = append(history, run)
		default:
			run.DeadLetter = true
			letters = append(letters, run)
		}
	}
	if state, err := codec.DecodeState(parent, kept.Reply.TextAt(0)); err == nil && historyLimit > 0 {
		history = s.addKeptRun(shard, parent, &state, history)
	}
	newestFirst(history)
	newestFirst(letters)
	for _, letter := range letters {
		at := slices.IndexFunc(history, func(r job.Run) bool {
			return r.ID == letter.ID &&
				r.FinishedMS == letter.FinishedMS
		})
		if at >= 0 {
			history[at].DeadLetter = true
		} else {
			history = append(history, letter)
		}
	}
	return history, nil
}

func newestFirst(runs []job.Run) {
	slices.SortStableFunc(runs, func(a, b job.Run) int { return cmp.Compare(b.FinishedMS, a.FinishedMS) })
}
