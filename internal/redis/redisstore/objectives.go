package redisstore

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// maxObjectives bounds the entries of one call.
const maxObjectives = 200

// FirstObjectives returns the instant of the first entry of the index of objectives of each shard;
// job.NeverMS if it has none. With an error it returns the shards that could be read.
func (s *Store) FirstObjectives(ctx context.Context, shards []int) (map[int]unixtime.Milli, error) {
	ops := make([]*runner.Op, len(shards))
	for i, shard := range shards {
		key := s.shards[shard].Objectives
		ops[i] = runner.NewCommand("zrange", key, "zrange", key, 0, 0, "withscores")
	}
	err := s.runner.Run(ctx, ops...)
	first := make(map[int]unixtime.Milli, len(shards))
	for i, shard := range shards {
		if ops[i].Err != nil {
			continue
		}
		first[shard] = job.NeverMS
		if len(ops[i].Reply) > 0 {
			first[shard] = unixtime.Milli(ops[i].Reply.FirstScore())
		}
	}
	return first, err
}

// Objectives lists up to limit (at most 200) entries of the index of objectives of a shard,
// up to an instant of its clock, the first ones first, with their records.
func (s *Store) Objectives(ctx context.Context, shard int, upToMS unixtime.Milli, limit int) ([]job.Objective, error) {
	key := s.shards[shard].Objectives
	list := runner.NewCommand("zrange", key, "zrange", key, "-inf", int64(upToMS), "byscore", "limit", 0,
		min(limit, maxObjectives), "withscores")
	if err := s.runner.Run(ctx, list); err != nil {
		return nil, err
	}
	entries := appendRanked(nil, shard, list.Reply)
	ids := make([]job.RecordID, len(entries))
	for i, e := range entries {
		ids[i] = e.Record
	}
	raw, err := s.readRaw(ctx, shard, ids)
	if err != nil {
		return nil, err
	}
	out := make([]job.Objective, len(entries))
	for i, e := range entries {
		record, err := raw[i].record(e.Record)
		if err != nil {
			s.runner.ReportCorrupt(shard, "objectives", err, string(e.Record))
		}
		out[i] = job.Objective{Record: e.Record, Known: record, Unreadable: err != nil, AtMS: unixtime.Milli(e.Rank)}
	}
	return out, nil
}

// MoveObjectives moves entries of the index of objectives of a shard to other instants, up
// to 200 of them; 0 removes an entry. Entries whose record has been decided on since are
// not changed.
func (s *Store) MoveObjectives(ctx context.Context, shard int, moves []job.ObjectiveMove) error {
	if len(moves) == 0 {
		return nil
	}
	argv := make([]any, 0, 4*len(moves))
	for _, m := range moves {
		guard, to := "", any("")
		switch {
		case m.Unreadable:
			guard = "*"
		case m.Known != nil:
			guard = codec.GuardPattern(m.Known.State.Token, m.Known.State.Revision)
		}
		if m.ToMS != 0 {
			to = int64(m.ToMS)
		}
		argv = append(argv, string(m.Record), guard, int64(m.AtMS), to)
	}
	k := s.shards[shard]
	return s.runner.Run(ctx, runner.NewScriptCall(s.scripts.objectives, shard, []string{k.State, k.Objectives}, argv))
}
