package redisstore

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// RecentRuns returns the latest runs of each job that its history keeps, at most so many of each, the last end first.
// It reads one hash of each shard that has one of the jobs, in one round trip to each server. A history whose limit was
// changed by a node of an earlier version, or when memory was short, can lack runs until it has been filled anew.
func (s *Store) RecentRuns(ctx context.Context, records []job.Record, most int) ([][]job.Run, error) {
	reads, runs := map[int]*recentRead{}, make([][]job.Run, len(records))
	for i := range records {
		key := records[i].Definition.Key
		shard := s.ShardOf(key)
		if most > 0 && historyLimit(records[i].Definition) > 0 {
			runs[i] = s.addKeptRun(shard, key.Record(), &records[i].State, nil)
		}
		if len(runs[i]) > 0 {
			continue // it is the only one
		}
		for _, field := range recentFields(&records[i], most) {
			if reads[shard] == nil {
				reads[shard] = &recentRead{}
			}
			reads[shard].fields = append(reads[shard].fields, field)
			reads[shard].owners = append(reads[shard].owners, i)
		}
	}
	ops := make([]*runner.Op, 0, len(reads))
	for shard, read := range reads {
		read.op = runner.NewFieldsRead(shard, s.shards[shard].Hist, read.fields)
		ops = append(ops, read.op)
	}
	if err := s.runner.Run(ctx, ops...); err != nil {
		return nil, err
	}
	for shard, read := range reads {
		s.decodeRecentRuns(shard, read, runs)
	}
	for _, list := range runs {
		newestFirst(list)
	}
	return runs, nil
}

// recentRead reads history slots of jobs of one shard.
type recentRead struct {
	fields []string
	owners []int // index of the job of each field
	op     *runner.Op
}

// recentFields are the history slots of the latest runs of a job.
func recentFields(r *job.Record, most int) []string {
	limit := uint64(historyLimit(r.Definition))
	count := min(uint64(max(0, most)), limit, r.State.Runs)
	fields := make([]string, 0, count)
	for i := range count {
		fields = append(fields, codec.HistoryField(r.Definition.Record(), int((r.State.Runs-1-i)%limit)))
	}
	return fields
}

func (s *Store) decodeRecentRuns(shard int, read *recentRead, runs [][]job.Run) {
	for i, owner := range read.owners {
		if !read.op.Reply.HasTextAt(i) {
			continue
		}
		run, err := codec.DecodeRun(read.op.Reply.TextAt(i))
		if err != nil {
			s.runner.ReportCorrupt(shard, "recent runs", err, read.fields[i])
			continue
		}
		runs[owner] = append(runs[owner], run)
	}
}
