package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/fermata-io/fermata/internal/job"
)

// Create stores new records of one shard, in atomic steps of up to 200. What
// exists is returned as it is stored. A record that exists but cannot be read is
// overwritten: registering a job again mends it. At maxmemory Err is
// job.ErrNoMemory and nothing of that step was stored. A reply whose Err is
// job.ErrDurability is complete; with any other Err it is empty, and the call may
// be repeated.
func (s *Store) Create(ctx context.Context, shard int, records []job.Record) job.CreateReply {
	out := job.CreateReply{Results: make([]job.CreateResult, len(records))}
	todo := make([]*newRecord, len(records))
	for i := range records {
		r, err := encodeNew(&records[i], i, s.form())
		if err != nil {
			return job.CreateReply{Err: err}
		}
		todo[i] = r
	}
	news := laneNews{}
	for pass := 0; len(todo) > 0; pass++ {
		taken, err := s.createPass(ctx, shard, todo, &out, &news)
		if err != nil && !errors.Is(err, job.ErrDurability) {
			return job.CreateReply{Err: err}
		}
		out.Err = errors.Join(out.Err, err)
		if todo, err = s.readTaken(ctx, shard, taken, out.Results); err != nil {
			return job.CreateReply{Err: err}
		}
		if pass == 2 {
			break // they come and go: somebody else is at work on them
		}
	}
	out.Earlier, out.Holder = news.heads, news.holder
	return out
}

// newRecord is a record to be created.
type newRecord struct {
	index    int // among the records of the call
	id       string
	lane     job.Lane
	score    int64
	state    string
	def      []byte
	replaces string // unreadable state text that may be overwritten
}

func encodeNew(r *job.Record, index int, f form) (*newRecord, error) {
	n := &newRecord{index: index, id: r.Definition.Record(), lane: r.State.Lane, score: job.Score(r.State.Region, r.IndexMS)}
	var err error
	if n.state, err = f.encodeState(r.State); err != nil {
		return nil, fmt.Errorf("create %s: %w", n.id, err)
	}
	if n.def, err = f.encodeDefinition(r.Definition); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	return n, nil
}

// createPass tries to create all and returns those whose id is taken.
func (s *Store) createPass(ctx context.Context, shard int, todo []*newRecord, out *job.CreateReply, news *laneNews) ([]*newRecord, error) {
	var ops []*op
	var lanes []*laneKeys
	var parts [][]*newRecord
	for rest := todo; len(rest) > 0; {
		n := chunk(rest)
		o, l := s.createOp(shard, rest[:n])
		ops, lanes, parts = append(ops, o), append(lanes, l), append(parts, rest[:n])
		rest = rest[n:]
	}
	err := s.perform(ctx, ops...)
	if err != nil && !errors.Is(err, job.ErrDurability) {
		return nil, err
	}
	var taken []*newRecord
	for i, o := range ops {
		if o.err != nil && !errors.Is(o.err, job.ErrDurability) {
			return nil, o.err
		}
		codes := o.reply.text(2)
		for k, r := range parts[i] {
			if k >= len(codes) {
				return nil, fmt.Errorf("create: %w: %d answers for %d records", errCorrupt, len(codes), len(parts[i]))
			}
			switch codes[k] {
			case '1', '2':
				taken = append(taken, r)
			case '3':
				s.metrics.replayed("create", 1)
			}
			out.Results[r.index] = job.CreateResult{Code: createCode(codes[k])}
		}
		news.add(lanes[i], o.reply.list(3), o.reply.text(4))
		out.NowUS = max(out.NowUS, o.reply.int(1))
	}
	return taken, err
}

func createCode(digit byte) job.CreateCode {
	switch digit {
	case '1':
		return job.Exists
	case '2':
		return job.Tombstone
	}
	return job.Created
}

// chunk returns how many records fit into one call.
func chunk(records []*newRecord) int {
	size := 0
	for i, r := range records {
		size += len(r.id) + len(r.state) + len(r.def)
		if i == createItems || i > 0 && size > callBytes {
			return i
		}
	}
	return len(records)
}

func (s *Store) createOp(shard int, records []*newRecord) (*op, *laneKeys) {
	keys := s.shards[shard]
	fixed := []string{keys.meta, keys.state, keys.def, keys.lanes, keys.lock}
	lanes := newLaneKeys(keys, len(fixed))
	argv := make([]any, 0, 6*len(records))
	for _, r := range records {
		argv = append(argv, r.id, lanes.at(r.lane), r.state, r.score, r.def, r.replaces)
	}
	return call(s.scripts.create, shard, lanes.appendTo(fixed), argv), lanes
}

// readTaken reads what holds the ids, and returns those to be tried again: the
// id is free by now, or holds what nobody can read.
func (s *Store) readTaken(ctx context.Context, shard int, taken []*newRecord, results []job.CreateResult) ([]*newRecord, error) {
	if len(taken) == 0 {
		return nil, nil
	}
	ids := make([]string, len(taken))
	for i, r := range taken {
		ids[i] = r.id
	}
	stored, err := s.readRaw(ctx, shard, ids)
	if err != nil {
		return nil, err
	}
	var again []*newRecord
	for i, r := range taken {
		switch record, err := stored[i].record(ids[i]); {
		case err == nil && record != nil:
			results[r.index].Existing = record
		case err != nil:
			s.corrupt(shard, "create", err, r.id)
			r.replaces = stored[i].state
			again = append(again, r)
		default:
			again = append(again, r)
		}
	}
	return again, nil
}
