package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// snapshotTries bounds how often a job is read again because it got runs or dead
// letters since it was read.
const snapshotTries = 8

// Snapshots reads jobs of one shard with their runs and dead letters, each of them
// at one instant. A job that does not exist, or cannot be read, is nil. The given state
// of a job is only a hint where to look first.
func (s *Store) Snapshots(ctx context.Context, shard int, jobs []job.Record) ([]*job.Snapshot, error) {
	out := make([]*job.Snapshot, len(jobs))
	todo := make([]*partsRead, len(jobs))
	for i := range jobs {
		todo[i] = &partsRead{index: i, id: jobs[i].Definition.Record(), children: jobs[i].State.Children}
	}
	for try := range snapshotTries {
		reads := make([]*rawRead, len(todo))
		for i, p := range todo {
			reads[i] = s.newFamilyRead(shard, p.ids())
		}
		if err := s.performReads(ctx, reads); err != nil {
			return nil, err
		}
		var again []*partsRead
		for i, p := range todo {
			p.records = reads[i].records(s)
			record := p.records[0]
			if record == nil {
				continue
			}
			if more := record.State.Children &^ p.children; more != 0 {
				p.children |= more
				again = append(again, p)
				continue
			}
			snap := p.snapshot()
			complete, err := s.addSnapshotPayloads(ctx, shard, snap)
			if err != nil {
				return nil, err
			}
			if !complete && try < snapshotTries/2 {
				again = append(again, p)
				continue
			}
			out[p.index] = snap
		}
		todo = again
		if len(todo) == 0 {
			return out, s.datesOf(ctx, shard, out)
		}
	}
	return nil, fmt.Errorf("snapshot of %s: %w", todo[0].id, job.ErrConflict)
}

// partsRead is a job on its way.
type partsRead struct {
	index    int
	id       job.RecordID
	children uint64 // slots that are read
	records  []*job.Record
}

// ids are the job, its dead letters, and its runs.
func (p *partsRead) ids() []job.RecordID {
	ids := []job.RecordID{p.id}
	for slot := range job.DeadLettersPerJob {
		ids = append(ids, p.id.Letter(slot))
	}
	for _, slot := range (job.State{Children: p.children}).ChildSlots() {
		ids = append(ids, p.id.Run(slot))
	}
	return ids
}

func (p *partsRead) snapshot() *job.Snapshot {
	record := *p.records[0]
	snap := &job.Snapshot{Record: record}
	letters, rest := p.records[1:1+job.DeadLettersPerJob], p.records[1+job.DeadLettersPerJob:]
	for slot, letter := range letters {
		if letter != nil {
			snap.DeadLetters = append(snap.DeadLetters, job.CheckpointDeadLetter{
				Slot: slot, Run: letterRun(&letter.State), ExpireMS: unixtime.Milli(expiry(letter)),
				Queue: letter.State.Lane.Queue, Priority: letter.State.Lane.Priority,
			})
		}
	}
	for i, slot := range (job.State{Children: p.children}).ChildSlots() {
		switch {
		case record.State.Children&(1<<slot) == 0:
		case rest[i] == nil:
			snap.Unreadable = append(snap.Unreadable, fmt.Sprintf("in slot %d", slot))
		default:
			snap.Children = append(snap.Children, job.Child{Slot: slot, State: rest[i].State})
		}
	}
	if record.State.Region == job.RegionDead && record.State.Dead > 0 && record.State.Runs > 0 {
		snap.DeadLetters = append(snap.DeadLetters,
			job.CheckpointDeadLetter{Slot: job.LetterOfJob, Run: letterRun(&record.State)})
	}
	return snap
}

// letterRun is what the state alone knows of a dead run.
func letterRun(s *job.State) job.Run {
	run := deadRun(s)
	run.DueMS = max(run.DueMS, run.NominalMS)
	return run
}

// expiry is when a dead letter without an entry in the index is deleted, according to its job's definition now.
func expiry(letter *job.Record) int64 {
	return int64(letter.State.LastFinished.Add(letter.Definition.DeadLetterTTL))
}

// datesOf reads when what is dead or done will be deleted, and what the history has
// of dead runs. These do not change while a record stays what it is.
func (s *Store) datesOf(ctx context.Context, shard int, snaps []*job.Snapshot) error {
	var ops []*runner.Op
	var then []func(*runner.Op)
	ask := func(o *runner.Op, f func(*runner.Op)) { ops, then = append(ops, o), append(then, f) }
	for _, snap := range snaps {
		if snap == nil {
			continue
		}
		id := snap.Record.Definition.Record()
		if state := snap.Record.State; state.Region >= job.RegionDead {
			lane := s.shards[shard].LaneKey(state.Lane)
			ask(runner.NewCommand("zscore", lane, "zscore", lane, string(id)), func(o *runner.Op) {
				if region, ms := job.SplitScore(o.Reply.ScoreAt(0)); region == state.Region {
					snap.Record.IndexMS = ms
				}
			})
		}
		for i := range snap.DeadLetters {
			l := &snap.DeadLetters[i]
			record := id
			if l.Slot != job.LetterOfJob {
				record = id.Letter(l.Slot)
				lane := s.shards[shard].LaneKey(l.Lane(snap.Record.Definition.Namespace))
				ask(runner.NewCommand("zscore", lane, "zscore", lane, string(record)), func(o *runner.Op) {
					if region, ms := job.SplitScore(o.Reply.ScoreAt(0)); region == job.RegionDead && ms != 0 {
						l.ExpireMS = ms
					}
				})
			}
			field := lastRunField(&scannedRecord{record, snap.Record})
			ask(runner.NewFieldsRead(shard, s.shards[shard].Hist, []string{field}), func(o *runner.Op) {
				run, err := codec.DecodeRun(o.Reply.TextAt(0))
				if o.Reply.HasTextAt(0) && err == nil && run.FinishedMS == l.Run.FinishedMS {
					run.ManualID, run.OwnPayload = l.Run.ManualID, l.Run.OwnPayload
					l.Run = run
				}
			})
		}
	}
	if err := s.runner.Run(ctx, ops...); err != nil {
		return err
	}
	for i, o := range ops {
		then[i](o)
	}
	for _, snap := range snaps {
		if snap != nil {
			// A run that is no dead one stands in a place that has been used again.
			snap.DeadLetters = slices.DeleteFunc(snap.DeadLetters, func(l job.CheckpointDeadLetter) bool {
				return l.Run.NominalMS == 0 || l.Run.Outcome != job.OutcomeDead &&
					l.Run.Outcome != job.OutcomeQuarantined
			})
		}
	}
	return nil
}
