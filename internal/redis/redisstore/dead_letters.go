package redisstore

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// ListDeadLetters walks the dead runs of a namespace (of all, if it is empty) that are kept: the dead letters of jobs
// that go on, and one-time jobs that are dead themselves. Budget, cursor and order are as those of List; every job
// counts for the budget. A cursor of one of the two walks is good for the other. bytes is how many bytes of definitions
// and results it has read.
func (s *Store) ListDeadLetters(ctx context.Context, namespace, cursor string, budget int) (letters []job.DeadLetter,
	next string, bytes int, err error) {
	next, bytes, err = s.scanShards(ctx, namespace, cursor, budget, func(shard int, found []scannedRecord) (int, error) {
		page, err := s.lettersAmong(ctx, shard, found)
		letters = append(letters, page...)
		return len(found), err
	})
	if err != nil {
		return nil, "", 0, err
	}
	for i := range letters {
		bytes += len(letters[i].Run.Output)
	}
	return letters, next, bytes, nil
}

// ReadDeadLetters reads the dead letters among some entries of the index, and returns how many bytes of definitions and
// results it has read.
func (s *Store) ReadDeadLetters(ctx context.Context, entries []job.IndexEntry) (letters []job.DeadLetter, bytes int,
	err error) {
	records, err := s.ReadEntries(ctx, entries)
	if err != nil {
		return nil, 0, err
	}
	byShard := map[int][]scannedRecord{}
	for i, record := range records {
		if record != nil {
			shard := entries[i].Shard
			byShard[shard] = append(byShard[shard], scannedRecord{entries[i].Record, *record})
			bytes += record.ResponseSize()
		}
	}
	for shard, found := range byShard {
		some, err := s.lettersAmong(ctx, shard, found)
		if err != nil {
			return nil, 0, err
		}
		letters = append(letters, some...)
	}
	for i := range letters {
		bytes += len(letters[i].Run.Output)
	}
	return letters, bytes, nil
}

// lettersAmong picks the dead runs, and reads when each will be deleted and its
// place in the history.
func (s *Store) lettersAmong(ctx context.Context, shard int, found []scannedRecord) ([]job.DeadLetter, error) {
	var dead []scannedRecord
	var fields []string
	var ops []*runner.Op
	for _, f := range found {
		if f.State.Region != job.RegionDead || !isChild(f.id) && f.Definition.Schedule.Kind != schedule.KindOnce {
			continue
		}
		dead, fields = append(dead, f), append(fields, lastRunField(&f))
		lane := s.shards[shard].LaneKey(f.State.Lane)
		ops = append(ops, runner.NewCommand("zscore", lane, "zscore", lane, string(f.id)))
	}
	if len(dead) == 0 {
		return nil, nil
	}
	runs := runner.NewFieldsRead(shard, s.shards[shard].Hist, fields)
	if err := s.runner.Run(ctx, append(ops, runs)...); err != nil {
		return nil, err
	}
	letters := make([]job.DeadLetter, len(dead))
	for i := range dead {
		d := &dead[i]
		_, expires := job.SplitScore(ops[i].Reply.ScoreAt(0))
		letters[i] = job.DeadLetter{
			Record: d.id, Queue: d.State.Lane.Queue, Labels: d.Definition.Labels,
			Run: deadRun(&d.State), ExpireMS: expires, Stored: &d.Record,
		}
		if !runs.Reply.HasTextAt(i) {
			continue
		}
		run, err := codec.DecodeRun(runs.Reply.TextAt(i))
		if err != nil {
			s.runner.ReportCorrupt(shard, "list", err, fields[i])
			continue
		}
		run.DeadLetter, run.ManualID = true, d.State.ManualID
		letters[i].Run = run
	}
	return letters, nil
}

// lastRunField names the place of a dead run in the history. The history of a job
// may keep none: then nothing is there.
func lastRunField(f *scannedRecord) string {
	slot := 0
	if limit := uint64(historyLimit(f.Definition)); !isChild(f.id) && limit > 0 && f.State.Runs > 0 {
		slot = int((f.State.Runs - 1) % limit)
	}
	return codec.HistoryField(f.id, slot)
}

// deadRun is what the state alone has of a dead run. That of a one-time job has less:
// its run is over.
func deadRun(s *job.State) job.Run {
	nominal := s.Nominal
	if nominal == 0 {
		nominal = s.LastNominal
	}
	outcome := s.LastOutcome
	if outcome != job.OutcomeQuarantined {
		outcome = job.OutcomeDead // what is stored is how its last attempt ended
	}
	return job.Run{
		ID: job.RunID(s.Trigger, s.Generation, nominal, s.ManualID), Trigger: s.Trigger, ManualID: s.ManualID,
		NominalMS: nominal, DueMS: s.Due, StartedMS: s.LastStarted, FinishedMS: s.LastFinished,
		Attempts: s.Attempt, Losses: s.Losses, Outcome: outcome, Error: s.LastError,
		DeadLetter: true, OwnPayload: s.OwnPayload,
	}
}
