package redisstore

import (
	"context"
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Get reads the parent records of jobs, in any shards. A job that does not
// exist, or whose record cannot be read (which is logged and counted), is nil.
// Record.IndexMS is filled.
func (s *Store) Get(ctx context.Context, jobs []job.Key) ([]*job.Record, error) {
	byShard := map[int][]int{}
	for i, k := range jobs {
		shard := s.ShardOf(k)
		byShard[shard] = append(byShard[shard], i)
	}
	out := make([]*job.Record, len(jobs))
	var reads []*rawRead
	for shard, indexes := range byShard {
		ids := make([]job.RecordID, len(indexes))
		for i, at := range indexes {
			ids[i] = jobs[at].Record()
		}
		reads = append(reads, s.newRawRead(shard, ids))
	}
	if err := s.performReads(ctx, reads); err != nil {
		return nil, err
	}
	var found []*job.Record
	var scores []*runner.Op
	for _, r := range reads {
		for i, record := range r.records(s) {
			if record == nil {
				continue
			}
			out[byShard[r.shard][i]] = record
			found = append(found, record)
			lane := s.shards[r.shard].LaneKey(record.State.Lane)
			scores = append(scores, runner.NewCommand("zscore", lane, "zscore", lane, string(r.ids[i])))
		}
	}
	if err := s.runner.Run(ctx, scores...); err != nil {
		return nil, err
	}
	for i, o := range scores {
		_, found[i].IndexMS = job.SplitScore(o.Reply.ScoreAt(0))
	}
	return out, nil
}

// GetRecords reads records of one shard, parents or children, their states in one
// step. A run that is a record of its own comes with its parent's definition. One
// that does not exist, or cannot be read, is nil; the latter is taken out of the schedule as well,
// because nothing that happens to it could be decided. Record.IndexMS is zero.
func (s *Store) GetRecords(ctx context.Context, shard int, ids []job.RecordID) ([]*job.Record, error) {
	r := s.newRawRead(shard, ids)
	if err := s.performReads(ctx, []*rawRead{r}); err != nil {
		return nil, err
	}
	records := r.records(s)
	for i, raw := range r.raw() {
		if records[i] != nil {
			continue
		}
		if state, err := codec.DecodeState(ids[i], raw.state); raw.hasState && err == nil {
			s.setAside(ctx, shard, ids[i], state)
		}
	}
	return records, nil
}

const (
	// largeDefinition is the size of a definition with a large payload, which reads count with: what they find is
	// not known before.
	largeDefinition = 256 << 10
	// largeRun is the size of an ended run with a long output.
	largeRun = 4 << 10
	// maxReplyBytes is about the most that scripts return of definitions in one reply; see ROOM in bounded.lua.
	maxReplyBytes = 2 << 20
)

// rawRead reads records as stored, at one instant.
type rawRead struct {
	shard int
	ids   []job.RecordID
	names []job.RecordID // whose definitions are read; "": the record has that of the first one
	op    *runner.Op
	defs  definitionsRead
}

func (s *Store) newRawRead(shard int, ids []job.RecordID) *rawRead {
	names := make([]job.RecordID, len(ids))
	for i, id := range ids {
		names[i] = id.DefinedBy()
	}
	return s.newNamedRead(shard, ids, names)
}

// newFamilyRead reads a job with its dead letters and runs, and only one definition: that of the job.
func (s *Store) newFamilyRead(shard int, ids []job.RecordID) *rawRead {
	names := make([]job.RecordID, len(ids))
	names[0] = ids[0]
	return s.newNamedRead(shard, ids, names)
}

func (s *Store) newNamedRead(shard int, ids, names []job.RecordID) *rawRead {
	argv, size := make([]any, 0, 2*len(ids)), 0
	for _, name := range names {
		if name != "" {
			size += largeDefinition
		}
	}
	for _, list := range [][]job.RecordID{ids, names} {
		for _, id := range list {
			argv = append(argv, string(id))
		}
	}
	k := s.shards[shard]
	o := runner.NewScriptCall(s.scripts.read, shard, []string{k.State, k.Def}, argv)
	o.ReplySize = min(size, maxReplyBytes)
	return &rawRead{shard: shard, ids: ids, names: names, op: o}
}

func (s *Store) performReads(ctx context.Context, reads []*rawRead) error {
	var ops []*runner.Op
	for _, r := range reads {
		if len(r.ids) > 0 {
			ops = append(ops, r.op)
		}
	}
	if err := s.runner.Run(ctx, ops...); err != nil {
		return err
	}
	return s.completeReads(ctx, reads)
}

func (r *rawRead) raw() []rawRecord {
	states, defs := r.op.Reply.ListAt(0), r.defs.texts
	out := make([]rawRecord, len(r.ids))
	for i := range r.ids {
		out[i] = rawRecord{state: states.TextAt(i), def: defs.TextAt(i), hasState: states.HasTextAt(i),
			hasDef: defs.HasTextAt(i)}
	}
	return out
}

// records decodes what was read.
func (r *rawRead) records(s *Store) []*job.Record {
	out := make([]*job.Record, len(r.ids))
	for i, raw := range r.raw() {
		record, err := raw.record(r.ids[i])
		if r.names[i] == "" {
			record, err = raw.withDefinitionOf(r.ids[i], out[0])
		}
		if err != nil {
			s.runner.ReportCorrupt(r.shard, "read", err, string(r.ids[i]))
		}
		out[i] = record
	}
	return out
}

func (s *Store) readRaw(ctx context.Context, shard int, ids []job.RecordID) ([]rawRecord, error) {
	r := s.newRawRead(shard, ids)
	if err := s.performReads(ctx, []*rawRead{r}); err != nil {
		return nil, err
	}
	return r.raw(), nil
}

// rawRecord is a record as stored.
type rawRecord struct {
	state, def       string
	hasState, hasDef bool
}

// record decodes; nil without an error is a record that does not exist.
func (r rawRecord) record(id job.RecordID) (*job.Record, error) {
	if !r.hasState {
		return nil, nil
	}
	state, err := codec.DecodeState(id, r.state)
	if err != nil {
		return nil, err
	}
	if !r.hasDef {
		return nil, fmt.Errorf("%w: it has no definition", codec.ErrCorrupt)
	}
	def, err := codec.DecodeDefinition(id, r.def)
	if err != nil {
		return nil, err
	}
	return &job.Record{Definition: def, State: state}, nil
}

// withDefinitionOf decodes a state, to which the definition of another record counts; nil without an error if one of
// them is missing.
func (r rawRecord) withDefinitionOf(id job.RecordID, other *job.Record) (*job.Record, error) {
	if !r.hasState || other == nil {
		return nil, nil
	}
	state, err := codec.DecodeState(id, r.state)
	if err != nil {
		return nil, err
	}
	return &job.Record{Definition: other.Definition, State: state}, nil
}
