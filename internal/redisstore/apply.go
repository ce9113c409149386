package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/job"
)

// Limits of one call of a writing script, so that it stays within milliseconds.
const (
	applyItems  = 500
	createItems = 200
	callBytes   = 1 << 20
)

// Apply compares and sets, each write for itself, in one atomic step for up to
// 500 of them. A write that the store already holds counts as Written. With
// memory short, history and dead letters are left out and everything else is
// stored. A reply whose Err is job.ErrDurability is complete; with any other Err
// it is empty, and the call may be repeated.
func (s *Store) Apply(ctx context.Context, shard int, writes []job.Write) job.ApplyReply {
	groups := make([][]*applyItem, len(writes))
	for i := range writes {
		item, err := newApplyItem(&writes[i], i)
		if err != nil {
			return job.ApplyReply{Err: fmt.Errorf("apply %s: %w", writes[i].Record, err)}
		}
		groups[i] = []*applyItem{item}
	}
	if err := s.addChildren(ctx, shard, writes, groups); err != nil {
		return job.ApplyReply{Err: err}
	}
	calls := s.applyCalls(shard, groups)
	s.runApply(ctx, calls)
	return s.readApply(writes, calls)
}

// addChildren makes the dead letters of deleted jobs go with them.
func (s *Store) addChildren(ctx context.Context, shard int, writes []job.Write, groups [][]*applyItem) error {
	var parents []int
	var ids []string
	for i, w := range writes {
		if !w.Decision.Delete || w.Decision.State.Dead == 0 || isChild(w.Record) {
			continue
		}
		parents = append(parents, i)
		for slot := range job.DeadLettersPerJob {
			ids = append(ids, childRecord(w.Record, slot))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	read := s.readFields(shard, s.shards[shard].state, ids)
	if err := s.perform(ctx, read); err != nil {
		return err
	}
	for i, id := range ids {
		state, err := decodeState(id, read.reply.text(i))
		if err != nil {
			continue // none in this slot
		}
		item := &applyItem{
			record: id, guard: guardOf(state.Token, state.Revision), lane: state.Lane, write: -1, size: len(id) + 64,
		}
		item.step('a')
		item.step('d')
		item.step('z', 0, 0)
		parent := parents[i/job.DeadLettersPerJob]
		groups[parent] = append(groups[parent], item.bounded())
	}
	return nil
}

// applyCall is one run of the script.
type applyCall struct {
	shard int
	items []*applyItem
	lanes *laneKeys
	op    *op
}

// applyCalls cuts groups into calls. A record is in a call once at most, and a
// group is not torn apart.
func (s *Store) applyCalls(shard int, groups [][]*applyItem) []*applyCall {
	var calls []*applyCall
	var current *applyCall
	seen, size := map[string]bool{}, 0
	for _, g := range groups {
		bytes, again := 0, false
		for _, i := range g {
			bytes += i.size
			again = again || seen[i.record]
		}
		if current == nil || again || len(current.items)+len(g) > applyItems || size+bytes > callBytes {
			current = &applyCall{shard: shard}
			calls = append(calls, current)
			clear(seen)
			size = 0
		}
		size += bytes
		for _, i := range g {
			seen[i.record] = true
			current.items = append(current.items, i)
		}
	}
	return calls
}

// build makes the call's op. A lean one leaves out what may be left out.
func (c *applyCall) build(s *Store, lean bool) *op {
	keys := s.shards[c.shard]
	fixed := []string{keys.meta, keys.state, keys.def, keys.hist, keys.lanes, keys.lock}
	c.lanes = newLaneKeys(keys, len(fixed))
	var argv []any
	for _, i := range c.items {
		steps, args := i.steps, i.args
		if lean {
			steps, args = steps[:i.lean], args[:i.leanArgs]
		}
		argv = append(argv, i.record, i.guard, steps, c.lanes.at(i.lane))
		for _, a := range args {
			if lane, ok := a.(job.Lane); ok {
				a = c.lanes.at(lane)
			}
			argv = append(argv, a)
		}
	}
	script := s.scripts.apply
	if lean {
		script = s.scripts.applyLean
	}
	c.op = call(script, c.shard, c.lanes.appendTo(fixed), argv)
	return c.op
}

// runApply sends the calls, and those that met a full memory again without what
// may be left out.
func (s *Store) runApply(ctx context.Context, calls []*applyCall) {
	ops := make([]*op, len(calls))
	for i, c := range calls {
		ops[i] = c.build(s, false)
	}
	s.run(ctx, ops)
	var lean []*op
	for _, c := range calls {
		if redis.IsOOMError(c.op.err) {
			uncertain := c.op.uncertain
			lean = append(lean, c.build(s, true))
			c.op.uncertain = uncertain
		}
	}
	s.run(ctx, lean)
}

// readApply takes over the answers:
// {code, clock, codes, states of conflicts, {place, due ...}, lock value}.
func (s *Store) readApply(writes []job.Write, calls []*applyCall) job.ApplyReply {
	out := job.ApplyReply{Results: make([]job.WriteResult, len(writes))}
	news := laneNews{}
	for _, c := range calls {
		if err := wrap("apply", c.op.err); err != nil {
			out.Err = err
			if !errors.Is(err, job.ErrDurability) {
				return job.ApplyReply{Err: err}
			}
		}
		c.results(s, writes, out.Results)
		news.add(c.lanes, c.op.reply.list(4), c.op.reply.text(5))
		out.NowUS = max(out.NowUS, c.op.reply.int(1))
	}
	out.Earlier, out.Holder = news.heads, news.holder
	return out
}

func (c *applyCall) results(s *Store, writes []job.Write, results []job.WriteResult) {
	codes, conflicts := c.op.reply.text(2), c.op.reply.list(3)
	nth := 0
	for i, item := range c.items {
		code := byte('2')
		if i < len(codes) {
			code = codes[i]
		}
		stored := ""
		if code == '1' {
			stored = conflicts.text(nth)
			nth++
		}
		if item.write >= 0 {
			results[item.write] = s.result(c, &writes[item.write], code, stored)
		}
	}
}

func (s *Store) result(c *applyCall, w *job.Write, code byte, stored string) job.WriteResult {
	switch code {
	case '0':
		return job.WriteResult{Code: job.Written}
	case '5':
		s.metrics.replayed("apply", 1)
		return job.WriteResult{Code: job.Written}
	case '1':
		state, err := decodeState(w.Record, stored)
		if err == nil {
			return job.WriteResult{Code: job.Conflict, Current: state}
		}
		s.corrupt(c.shard, "apply", err, w.Record)
	case '2':
		if w.Decision.Delete && c.op.uncertain {
			s.metrics.replayed("apply", 1)
			return job.WriteResult{Code: job.Written}
		}
	case '3':
		return job.WriteResult{Code: job.NotExpired}
	case '4':
		s.corrupt(c.shard, "apply", nil, w.Record)
	}
	return job.WriteResult{Code: job.NotFound}
}

// putAside takes a record that cannot be used out of the schedule: its index
// entry goes to the dead region, for ever, and nothing else changes.
func (s *Store) putAside(ctx context.Context, shard int, record string, state job.State) {
	item := &applyItem{record: record, guard: guardOf(state.Token, state.Revision), lane: state.Lane, write: -1}
	item.step('q')
	calls := s.applyCalls(shard, [][]*applyItem{{item.bounded()}})
	s.runApply(ctx, calls)
	if err := calls[0].op.err; err != nil {
		s.log.Warn("corrupt record could not be put aside", "record", record, "error", err)
	} else if !strings.HasPrefix(calls[0].op.reply.text(2), "0") {
		s.log.Warn("corrupt record has changed meanwhile", "record", record)
	}
}
