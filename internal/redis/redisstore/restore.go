package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Restore writes jobs of one shard with all that belongs to them, each in one step. What exists, or is not what is to
// be replaced any more, is returned as it is stored, or as nil if it is gone or cannot be read. At maxmemory Err is
// job.ErrNoMemory and that job was not stored. A reply whose Err is job.ErrDurability is complete; with any other Err
// it is empty, and the call may be repeated.
func (s *Store) Restore(ctx context.Context, shard int, jobs []job.Restoration) job.CreateReply {
	out := job.CreateReply{Results: make([]job.CreateResult, len(jobs))}
	ops, lanes := make([]*runner.Op, len(jobs)), make([]*laneKeys, len(jobs))
	for i := range jobs {
		var err error
		ops[i], lanes[i], err = s.restoreOp(shard, &jobs[i])
		if err != nil {
			return job.CreateReply{Err: err}
		}
	}
	err := s.runner.Run(ctx, ops...)
	if err != nil && !errors.Is(err, job.ErrDurability) {
		return job.CreateReply{Err: err}
	}
	out.Err = err
	news := earlierLanes{}
	var taken []int
	var ids []job.RecordID
	for i, o := range ops {
		switch o.Reply.TextAt(2) {
		case "1", "2":
			taken, ids = append(taken, i), append(ids, jobs[i].Record.Definition.Record())
			out.Results[i].Code = createCode(o.Reply.TextAt(2)[0])
		case "3":
			s.metrics.countReplays("restore", 1)
		}
		news.addPairs(lanes[i], o.Reply.ListAt(3), o.Reply.TextAt(4))
		out.NowUS = max(out.NowUS, unixtime.Micro(o.Reply.IntAt(1)))
	}
	out.Earlier, out.Holder = news.heads, news.holder
	stored, err := s.readRaw(ctx, shard, ids)
	if err != nil {
		return job.CreateReply{Err: err}
	}
	for k, i := range taken {
		record, err := stored[k].record(ids[k])
		if err != nil {
			s.runner.ReportCorrupt(shard, "restore", err, string(ids[k]))
		}
		out.Results[i].Existing = record
	}
	return out
}

func (s *Store) restoreOp(shard int, r *job.Restoration) (*runner.Op, *laneKeys, error) {
	keys := s.shards[shard]
	fixed := []string{keys.Meta, keys.State, keys.Def, keys.Hist, keys.Lanes, keys.Lock}
	lanes := newLaneKeys(keys, len(fixed))
	d := r.Record.Definition
	id := d.Record()
	f := s.form()
	def, err := f.EncodeDefinition(d)
	if err != nil {
		return nil, nil, fmt.Errorf("restore: %w", err)
	}
	guard, from := "", 0
	if was := r.Replaces; was != nil {
		guard, from = codec.GuardPattern(was.Token, was.Revision), lanes.placeOf(was.Lane)
	}
	field, ended := "", []byte(nil)
	if limit := uint64(historyLimit(d)); r.Run != nil && limit > 0 && r.Record.State.Runs > 0 {
		field = codec.HistoryField(id, int((r.Record.State.Runs-1)%limit))
		ended, err = codec.EncodeRun(r.Run)
		if err != nil {
			return nil, nil, fmt.Errorf("restore: %w", err)
		}
	}
	objectives, watchMS := 0, d.BreachAtMS(&r.Record.State)
	if watchMS != 0 {
		objectives = lanes.objectivesPlace()
	}
	revisions, err := revisionArguments(f, r, lanes)
	if err != nil {
		return nil, nil, fmt.Errorf("restore: %w", err)
	}
	argv := append([]any{string(id), guard, from, field, ended, def, objectives, int64(watchMS)}, revisions...)
	argv = append(argv, runsInHistory(&r.Record), boundHistory(r.HistoryBefore))
	add := func(id job.RecordID, state job.State, ms int64, run *job.Run, own *job.RunPayload) error {
		text, err := f.ForStates(historyLimit(d)).EncodeState(&state)
		if err != nil {
			return fmt.Errorf("restore %s: %w", id, err)
		}
		field, ended := "", []byte(nil)
		if run != nil {
			field = codec.HistoryField(id, 0)
			ended, err = codec.EncodeRun(run)
			if err != nil {
				return fmt.Errorf("restore %s: %w", id, err)
			}
		}
		score := job.Score(state.Region, unixtime.Milli(ms))
		argv = append(argv, string(id), lanes.placeOf(state.Lane), text, score, field, ended)
		if own == nil {
			argv = append(argv, noDefinition)
			return nil
		}
		definition, err := ownDefinition(f, d, id, own)
		argv = append(argv, definition)
		return err
	}
	if err := add(id, r.Record.State, int64(r.Record.IndexMS), nil, nil); err != nil {
		return nil, nil, err
	}
	for i := range r.Children {
		p := &r.Children[i]
		if err := add(p.Record, p.State, int64(p.IndexMS), p.Run, p.Own); err != nil {
			return nil, nil, err
		}
	}
	names := lanes.appendKeysTo(fixed)
	if s.events != nil {
		names, argv = append(names, keys.Events), s.events.appendRestored(argv, &r.Record)
	}
	return runner.NewScriptCall(s.scripts.restore, shard, names, argv), lanes, nil
}

// runsInHistory returns how many slots of its history a job may use: those beyond are of runs that it does not count,
// and whoever deletes the job does not look for them.
func runsInHistory(r *job.Record) int {
	if r.State.KeptRun != "" {
		return 0
	}
	return int(min(r.State.Runs, uint64(historyLimit(r.Definition))))
}
