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
	t, err := encodeRestoration(s.form(), r)
	if err != nil {
		return nil, nil, fmt.Errorf("restore: %w", err)
	}
	state, err := s.form().ForStates(historyLimit(d)).EncodeState(&r.Record.State)
	if err != nil {
		return nil, nil, fmt.Errorf("restore %s: %w", id, err)
	}
	guard, from := "", 0
	if was := r.Replaces; was != nil {
		guard, from = codec.GuardPattern(was.Token, was.Revision), lanes.placeOf(was.Lane)
	}
	objectives, watchMS := 0, d.BreachAtMS(&r.Record.State)
	if watchMS != 0 {
		objectives = lanes.objectivesPlace()
	}
	argv := []any{string(id), guard, from, t.run.field, t.run.text, t.definition, objectives, int64(watchMS)}
	argv = append(argv, revisionArguments(t.revisions, r, lanes)...)
	argv = append(argv, runsInHistory(&r.Record), boundHistory(r.HistoryBefore))
	add := func(child childTexts, lane job.Lane, score any) {
		definition := any(noDefinition)
		if child.definition != nil {
			definition = child.definition
		}
		argv = append(argv, string(child.id), lanes.placeOf(lane), child.state, score, child.run.field, child.run.text,
			definition)
	}
	add(childTexts{id: id, state: state}, r.Record.State.Lane, job.Score(r.Record.State.Region, r.Record.IndexMS))
	for i, child := range t.children {
		c := &r.Children[i]
		add(child, c.State.Lane, job.Score(c.State.Region, c.IndexMS))
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
