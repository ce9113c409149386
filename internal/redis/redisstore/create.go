package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Create stores new records, in atomic steps of up to 200 of one shard, in one pipeline for each server.
// If a record exists, it is returned as stored. An unreadable record is overwritten: registering a job
// again repairs it. At maxmemory Err is job.ErrNoMemory and nothing of that step was stored. A reply whose
// Err is job.ErrDurability is complete; with any other Err it is empty, and the batch
// may be repeated.
func (s *Store) Create(ctx context.Context, batches []job.CreateBatch) []job.CreateReply {
	creations := make([]*createCall, len(batches))
	for i, b := range batches {
		creations[i] = s.newCreation(b)
	}
	for pass := 0; pass < 3; pass++ { // after that somebody else keeps creating and deleting them
		var ops []*runner.Op
		for _, c := range creations {
			ops = append(ops, c.buildSteps(s)...)
		}
		if len(ops) == 0 {
			break
		}
		s.runner.RunEach(ctx, ops)
		for _, c := range creations {
			c.readReplies(ctx, s)
		}
	}
	replies := make([]job.CreateReply, len(creations))
	for i, c := range creations {
		replies[i] = c.result()
	}
	return replies
}

// createCall is a batch in progress.
type createCall struct {
	shard   int
	todo    []*newRecord
	steps   []createStep // of this pass
	out     job.CreateReply
	earlier earlierLanes
	failed  error
}

// createStep is one run of the script.
type createStep struct {
	op      *runner.Op
	lanes   *laneKeys
	records []*newRecord
}

func (s *Store) newCreation(b job.CreateBatch) *createCall {
	c := &createCall{shard: b.Shard, out: job.CreateReply{Results: make([]job.CreateResult, len(b.Records))}}
	all := make([]newRecord, len(b.Records))
	c.todo = make([]*newRecord, len(b.Records))
	for i := range b.Records {
		c.todo[i] = &all[i]
		if err := all[i].encodeRecord(&b.Records[i], i, s.form()); err != nil {
			c.failed = err
		}
	}
	return c
}

// buildSteps divides the remaining records into steps.
func (c *createCall) buildSteps(s *Store) []*runner.Op {
	c.steps = nil
	if c.failed != nil {
		return nil
	}
	var ops []*runner.Op
	for rest := c.todo; len(rest) > 0; {
		n := recordsPerCall(rest)
		o, lanes := s.createOp(c.shard, rest[:n])
		c.steps = append(c.steps, createStep{o, lanes, rest[:n]})
		ops, rest = append(ops, o), rest[n:]
	}
	return ops
}

// readReplies reads the replies of a pass. Records to be tried again remain in todo.
func (c *createCall) readReplies(ctx context.Context, s *Store) {
	if c.failed != nil {
		return
	}
	var taken []*newRecord
	for _, step := range c.steps {
		err := rediserr.Wrap(step.op.Name, step.op.Err)
		if err != nil && !errors.Is(err, job.ErrDurability) {
			c.failed = err
			return
		}
		c.out.Err = errors.Join(c.out.Err, err)
		again, err := c.readStep(s, step)
		if err != nil {
			c.failed = err
			return
		}
		taken = append(taken, again...)
	}
	c.todo, c.failed = s.readExisting(ctx, c.shard, taken, c.out.Results)
}

// readStep reads the reply of the script and returns the records whose id exists:
// {code, clock, codes, {place, due ...}, lock value}.
func (c *createCall) readStep(s *Store, step createStep) (taken []*newRecord, err error) {
	r := step.op.Reply
	codes := r.TextAt(2)
	if len(codes) < len(step.records) {
		return nil, fmt.Errorf("create: %w: %d answers for %d records", codec.ErrCorrupt, len(codes), len(step.records))
	}
	for k, n := range step.records {
		switch codes[k] {
		case '1', '2':
			taken = append(taken, n)
		case '3':
			s.metrics.countReplays("create", 1)
		}
		c.out.Results[n.index] = job.CreateResult{Code: createCode(codes[k])}
	}
	c.earlier.addPairs(step.lanes, r.ListAt(3), r.TextAt(4))
	c.out.NowUS = max(c.out.NowUS, unixtime.Micro(r.IntAt(1)))
	return taken, nil
}

func (c *createCall) result() job.CreateReply {
	if c.failed != nil {
		return job.CreateReply{Err: c.failed}
	}
	c.out.Earlier, c.out.Holder = c.earlier.heads, c.earlier.holder
	return c.out
}

// newRecord is a record to be created.
type newRecord struct {
	index    int // among the records of the call
	id       job.RecordID
	lane     job.Lane
	score    int64
	state    string
	def      []byte
	replaces string // unreadable state text that may be overwritten
	watchMS  int64  // when to check the objective of its run; 0: none
	record   *job.Record
}

// encodeRecord encodes what is to be stored.
func (n *newRecord) encodeRecord(r *job.Record, index int, f codec.Encoding) (err error) {
	*n = newRecord{
		index: index, record: r, id: r.Definition.Record(), lane: r.State.Lane,
		score:   job.Score(r.State.Region, r.IndexMS),
		watchMS: int64(r.Definition.BreachAtMS(&r.State)),
	}
	n.state, err = f.ForStates(historyLimit(r.Definition)).EncodeState(&r.State)
	if err != nil {
		return fmt.Errorf("create %s: %w", n.id, err)
	}
	n.def, err = f.EncodeDefinition(r.Definition)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	return nil
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

// recordsPerCall returns how many records fit into one call.
func recordsPerCall(records []*newRecord) int {
	size := 0
	for i, r := range records {
		size += len(r.id) + len(r.state) + len(r.def)
		if i == createItems || i > 0 && size > callBytes {
			return i
		}
	}
	return len(records)
}

func (s *Store) createOp(shard int, records []*newRecord) (*runner.Op, *laneKeys) {
	keys := s.shards[shard]
	fixed := []string{keys.Meta, keys.State, keys.Def, keys.Lanes, keys.Lock}
	lanes := newLaneKeys(keys, len(fixed))
	argv := make([]any, 0, 4*len(records)+4)
	for rest := records; len(rest) > 0; {
		group := rest[:sameGroupCount(rest)]
		rest = rest[len(group):]
		least, width := group[0].score, group[0].argumentCount()
		for _, r := range group {
			least = min(least, r.score)
		}
		argv = append(argv, lanes.placeOf(group[0].lane), len(group), least, width)
		for _, r := range group {
			// Pointers, so that no argument is copied to the heap once more.
			argv = append(argv, (*string)(&r.id), &r.state, &r.score, r.def)
			if width > 4 {
				argv = append(argv, &r.replaces)
			}
			if width > 5 {
				argv = append(argv, lanes.objectivesPlace(), r.watchMS)
			}
		}
	}
	names := lanes.appendKeysTo(fixed)
	if s.events != nil {
		names, argv = append(names, keys.Events), s.events.appendCreated(argv, records)
	}
	return runner.NewScriptCall(s.scripts.create, shard, names, argv), lanes
}

// argumentCount is how many arguments of the script call it has.
func (n *newRecord) argumentCount() int {
	switch {
	case n.watchMS != 0:
		return 7
	case n.replaces != "":
		return 5
	}
	return 4
}

// sameGroupCount returns how many records at the beginning form one group of the script.
func sameGroupCount(records []*newRecord) int {
	first := records[0]
	for i, r := range records {
		if r.lane != first.lane || r.argumentCount() != first.argumentCount() {
			return i
		}
	}
	return len(records)
}

// readExisting reads the records that have the ids, and returns those to be tried again: the id is free
// by now, or its record is unreadable.
func (s *Store) readExisting(ctx context.Context, shard int, taken []*newRecord,
	results []job.CreateResult) ([]*newRecord, error) {
	if len(taken) == 0 {
		return nil, nil
	}
	ids := make([]job.RecordID, len(taken))
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
			s.runner.ReportCorrupt(shard, "create", err, string(r.id))
			r.replaces = stored[i].state
			again = append(again, r)
		default:
			again = append(again, r)
		}
	}
	return again, nil
}

// DefinitionBytes is how many bytes of Redis' memory the id and the definition of a job are,
// without what Redis adds.
func (s *Store) DefinitionBytes(d *job.Definition) int {
	text, err := s.form().EncodeDefinition(d)
	if err != nil {
		return 0 // it cannot be stored either
	}
	return len(d.Record()) + len(text)
}
