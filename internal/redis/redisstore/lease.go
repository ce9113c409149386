package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
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
	var ops []*runner.Op
	for i, r := range requests {
		c, err := s.newLeaseCall(r)
		if err != nil {
			replies[i].Err = fmt.Errorf("lease: %w", err)
			continue
		}
		calls[i] = c
		ops = append(ops, c.op)
	}
	s.runner.RunEach(ctx, ops)
	s.readDefinitions(ctx, calls)
	for i, c := range calls {
		if c == nil {
			continue
		}
		replies[i] = c.readReply(ctx, s)
		s.addRunPayloads(ctx, c.Shard, &replies[i])
		s.releaseBatch(c, replies[i].Err)
	}
	return replies
}

// releaseBatch ends the call for the batch.
func (s *Store) releaseBatch(c *leaseCall, err error) {
	var lateUntil time.Time
	if c.op.MayHaveRun {
		// Each copy is refused after answerTimeout, by a clock that may go at half speed.
		lateUntil = s.runner.LocalTime().Add(2 * s.runner.AnswerTimeout())
	}
	// ErrNotHolder is an answer about earlier copies too: the script looks up the batch before the lock. ErrClockJump
	// is none if an earlier copy may have leased: then it is ErrUnavailable as well.
	answered := err == nil || errors.Is(err, job.ErrNotHolder) || errors.Is(err, job.ErrClockJump)
	s.batches[c.Shard].release(c.slot, answered && !errors.Is(err, job.ErrUnavailable), lateUntil)
}

// leaseCall is a request in progress.
type leaseCall struct {
	job.LeaseRequest
	slot int
	op   *runner.Op
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
	c := &leaseCall{LeaseRequest: r, slot: s.batches[r.Shard].acquire(r.Batch, s.runner.LocalTime())}
	names := []string{keys.Meta, keys.State, keys.Lanes, keys.Lock, keys.Def}
	argv := []any{r.LockValue, r.TTL.Milliseconds(), s.runner.TokenFloor(r.Shard), s.batchField(c.slot), r.Batch, 0}
	latestAt := len(argv) - 1
	argv = append(argv, r.Advance.Milliseconds())
	room := s.definitionSizes[r.Shard].countWithin(maxLeasedBytes)
	for _, q := range r.Quotas {
		n := min(q.N, room)
		room -= n
		names = append(names, keys.LaneKey(q.Lane))
		argv = append(argv, n)
	}
	c.op = runner.NewScriptCall(s.scripts.lease, r.Shard, names, argv)
	c.op.DeadlineArg = latestAt
	return c, nil
}

func validateLeaseRequest(r job.LeaseRequest, shards int) error {
	if r.Shard < 0 || r.Shard >= shards {
		return fmt.Errorf("shard %d of %d", r.Shard, shards)
	}
	if r.TTL <= 0 || len(r.Quotas) == 0 || len(r.Quotas) > job.MaxLanesPerCall {
		return fmt.Errorf("TTL %v over %d lanes: want a positive one, over 1 to %d",
			r.TTL, len(r.Quotas), job.MaxLanesPerCall)
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
		if c == nil || c.op.Err != nil && !errors.Is(rediserr.Wrap("lease", c.op.Err), job.ErrDurability) {
			continue
		}
		leased := c.op.Reply.ListAt(4)
		c.defs = definitionsRead{shard: c.Shard, texts: c.op.Reply.ListAt(5)}
		if len(c.defs.texts) == len(leased)/2 {
			continue
		}
		for i := 2 * len(c.defs.texts); i+1 < len(leased); i += 2 {
			c.defs.missing = append(c.defs.missing, job.RecordID(leased.TextAt(i)).DefinedBy())
		}
		reads = append(reads, &c.defs)
	}
	s.completeDefinitions(ctx, reads)
}

// readReply reads the reply of the script:
// {code, clock, replayed, deadline, {record, state ...}, definitions, corrupt, due ...}.
func (c *leaseCall) readReply(ctx context.Context, s *Store) job.LeaseReply {
	err := rediserr.Wrap("lease", c.op.Err)
	if errors.Is(err, job.ErrClockJump) && c.op.MayHaveRun {
		err = fmt.Errorf("%w: %w", job.ErrUnavailable, err) // an earlier copy may have leased
	}
	if err != nil && !errors.Is(err, job.ErrDurability) {
		return job.LeaseReply{Err: err}
	}
	r := c.op.Reply
	out := job.LeaseReply{NowUS: unixtime.Micro(r.IntAt(1)), Err: err}
	leased, defs := r.ListAt(4), c.defs.texts
	if c.defs.err != nil {
		return job.LeaseReply{Err: rediserr.Wrap("definitions", c.defs.err)}
	}
	s.definitionSizes[c.Shard].learn(defs)
	if r.IntAt(2) == 1 {
		s.metrics.countReplays("lease", len(leased)/2)
	}
	out.Leased = make([]job.Leased, 0, len(leased)/2)
	latest := uint64(0)
	var definitions codec.DefinitionDecoder
	for i := 0; i+1 < len(leased); i += 2 {
		record, known := job.RecordID(leased.TextAt(i)), &job.Record{IndexMS: unixtime.Milli(r.IntAt(3))}
		err := codec.DecodeStateInto(&known.State, record, leased.TextAt(i+1))
		if err == nil {
			latest = max(latest, known.State.Token) // the token of an unreadable state is not known
			known.Definition, err = definitions.Decode(record, defs.TextAt(i/2))
			if err == nil && !defs.HasTextAt(i/2) {
				err = fmt.Errorf("%w: it has no definition", codec.ErrCorrupt)
			}
			if err != nil {
				// Otherwise it would be leased and lost again and again.
				s.setAside(ctx, c.Shard, record, known.State)
			}
		}
		if err != nil {
			s.runner.ReportCorrupt(c.Shard, "lease", err, string(record))
			continue
		}
		out.Leased = append(out.Leased, job.Leased{Shard: c.Shard, Record: record, Known: known})
	}
	s.runner.ObserveToken(c.Shard, latest)
	if r.IntAt(2) == 1 {
		// A replay finds the records by their deadline, in no order.
		slices.SortFunc(out.Leased, func(a, b job.Leased) int {
			return cmp.Compare(a.Known.State.Token, b.Known.State.Token)
		})
	}
	for i, q := range c.Quotas {
		out.Heads = append(out.Heads, job.LaneHead{Lane: q.Lane, DueMS: unixtime.Milli(r.IntAt(7 + i))})
	}
	s.runner.ReportCorrupt(c.Shard, "lease", nil, r.ListAt(6).Texts()...)
	return out
}
