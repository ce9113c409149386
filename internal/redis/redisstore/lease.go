package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// Lease leases records that are due now or soon: one script for each request, in one pipeline for each
// server. The script also returns their definitions, or the definition of the job for runs that are
// records of their own. If there are many, plain reads follow. A reply whose Err is job.ErrDurability
// is complete; with any other Err it is empty, and the request may be repeated with the same batch id.
// A request with zero quotas returns what its batch id leased before, and makes a delayed duplicate
// lease nothing.
func (s *Store) Lease(ctx context.Context, requests []job.LeaseRequest) []job.LeaseReply {
	replies := make([]job.LeaseReply, len(requests))
	calls := make([]*leaseCall, len(requests))
	var ops []*op
	for i, r := range requests {
		c, err := s.newLeaseCall(r)
		if err != nil {
			replies[i].Err = fmt.Errorf("lease: %w", err)
			continue
		}
		calls[i] = c
		ops = append(ops, c.op)
	}
	s.runOps(ctx, ops)
	s.readDefinitions(ctx, calls)
	for i, c := range calls {
		if c == nil {
			continue
		}
		replies[i] = c.readReply(ctx, s)
		err := replies[i].Err
		s.batches[c.Shard].release(c.slot, err == nil || errors.Is(err, job.ErrNotHolder) || errors.Is(err, job.ErrClockJump))
	}
	return replies
}

// leaseCall is a request in progress.
type leaseCall struct {
	job.LeaseRequest
	slot int
	op   *op
	defs definitionsRead
}

func (s *Store) newLeaseCall(r job.LeaseRequest) (*leaseCall, error) {
	if err := validateLeaseRequest(r, len(s.shards)); err != nil {
		return nil, err
	}
	if r.Batch == "" {
		r.Batch = randomID()
	}
	keys := s.shards[r.Shard]
	c := &leaseCall{LeaseRequest: r, slot: s.batches[r.Shard].acquire(r.Batch)}
	names := []string{keys.meta, keys.state, keys.lanes, keys.lock, keys.def}
	argv := []any{r.LockValue, r.TTL.Milliseconds(), s.tokenFloor(r.Shard), s.batchField(c.slot), r.Batch, 0}
	latestAt := len(argv) - 1
	argv = append(argv, r.Advance.Milliseconds())
	room := s.definitionSizes[r.Shard].countWithin(maxLeasedBytes)
	for _, q := range r.Quotas {
		n := min(q.N, room)
		room -= n
		names = append(names, keys.laneKey(q.Lane))
		argv = append(argv, n)
	}
	c.op = newScriptCall(s.scripts.lease, r.Shard, names, argv)
	c.op.deadlineArg = latestAt
	return c, nil
}

func validateLeaseRequest(r job.LeaseRequest, shards int) error {
	if r.Shard < 0 || r.Shard >= shards {
		return fmt.Errorf("shard %d of %d", r.Shard, shards)
	}
	if r.TTL <= 0 || len(r.Quotas) == 0 || len(r.Quotas) > job.MaxLanesPerCall {
		return fmt.Errorf("TTL %v over %d lanes: want a positive one, over 1 to %d", r.TTL, len(r.Quotas), job.MaxLanesPerCall)
	}
	if r.Advance < 0 || r.Advance > job.MaxAdvance {
		return fmt.Errorf("advance %v: want 0 to %v", r.Advance, job.MaxAdvance)
	}
	total, seen := 0, map[job.Lane]bool{}
	for _, q := range r.Quotas {
		if q.N < 0 || seen[q.Lane] {
			return fmt.Errorf("lane %s: a quota below zero, or two of them", q.Lane)
		}
		seen[q.Lane] = true
		total += q.N
	}
	if total > job.MaxLeasesPerCall {
		return fmt.Errorf("%d leases asked for: want at most %d", total, job.MaxLeasesPerCall)
	}
	return nil
}

// readDefinitions reads the definitions that the scripts did not return.
func (s *Store) readDefinitions(ctx context.Context, calls []*leaseCall) {
	var reads []*definitionsRead
	for _, c := range calls {
		if c == nil || c.op.err != nil && !errors.Is(rediserr.Wrap("lease", c.op.err), job.ErrDurability) {
			continue
		}
		leased := c.op.reply.listAt(4)
		c.defs = definitionsRead{shard: c.Shard, texts: c.op.reply.listAt(5)}
		if len(c.defs.texts) == len(leased)/2 {
			continue
		}
		for i := 2 * len(c.defs.texts); i+1 < len(leased); i += 2 {
			c.defs.missing = append(c.defs.missing, definingRecord(job.RecordID(leased.textAt(i))))
		}
		reads = append(reads, &c.defs)
	}
	s.completeDefinitions(ctx, reads)
}

// readReply reads the reply of the script:
// {code, clock, replayed, deadline, {record, state ...}, definitions, corrupt, due ...}.
func (c *leaseCall) readReply(ctx context.Context, s *Store) job.LeaseReply {
	err := rediserr.Wrap("lease", c.op.err)
	if err != nil && !errors.Is(err, job.ErrDurability) {
		return job.LeaseReply{Err: err}
	}
	r := c.op.reply
	out := job.LeaseReply{NowUS: r.intAt(1), Err: err}
	leased, defs := r.listAt(4), c.defs.texts
	if c.defs.err != nil {
		return job.LeaseReply{Err: rediserr.Wrap("definitions", c.defs.err)}
	}
	s.definitionSizes[c.Shard].learn(defs)
	if r.intAt(2) == 1 {
		s.metrics.countReplays("lease", len(leased)/2)
	}
	out.Leased = make([]job.Leased, 0, len(leased)/2)
	latest := uint64(0)
	var records codec.ChunkAllocator[job.Record]
	var definitions codec.DefinitionDecoder
	for i := 0; i+1 < len(leased); i += 2 {
		record, known := job.RecordID(leased.textAt(i)), records.Next((len(leased)-i)/2)
		known.IndexMS = r.intAt(3)
		definitions.Remaining = (len(leased) - i) / 2
		err := codec.DecodeStateInto(&known.State, record, leased.textAt(i+1))
		if err == nil {
			latest = max(latest, known.State.Token) // the token of an unreadable state is not known
			known.Definition, err = definitions.Decode(record, defs.textAt(i/2))
			if err == nil && !defs.hasTextAt(i/2) {
				err = fmt.Errorf("%w: it has no definition", codec.ErrCorrupt)
			}
			if err != nil {
				// Otherwise it would be leased and lost again and again.
				s.setAside(ctx, c.Shard, record, known.State)
			}
		}
		if err != nil {
			s.reportCorrupt(c.Shard, "lease", err, string(record))
			continue
		}
		out.Leased = append(out.Leased, job.Leased{Shard: c.Shard, Record: record, Known: known})
	}
	s.clocks[c.Shard].observeToken(latest)
	if r.intAt(2) == 1 {
		// A replay finds the records by their deadline, in no order.
		slices.SortFunc(out.Leased, func(a, b job.Leased) int { return cmp.Compare(a.Known.State.Token, b.Known.State.Token) })
	}
	for i, q := range c.Quotas {
		out.Heads = append(out.Heads, job.LaneHead{Lane: q.Lane, DueMS: r.intAt(7 + i)})
	}
	s.reportCorrupt(c.Shard, "lease", nil, r.listAt(6).allTexts()...)
	return out
}

// readFields reads fields of one of a shard's hashes.
func readFields[Field ~string](shard int, key string, fields []Field) *op {
	args := make([]any, 0, 2+len(fields))
	args = append(args, "hmget", key)
	for _, f := range fields {
		args = append(args, string(f))
	}
	o := newCommand("hmget", key, args...)
	o.shard = shard
	return o
}
