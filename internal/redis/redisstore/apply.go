package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// Limits of one call of a writing script, so that it stays within milliseconds.
const (
	applyItems  = 500
	createItems = 200
	callBytes   = 1 << 20
)

// Apply compares and sets, each write for itself or together with the one before
// it, in one atomic step for up to 500 of them. A write that the store already
// holds counts as Written. A run that a decision spawns is written with it, but
// never in the place of another one: then the write is a Conflict. With
// memory short, history and dead letters are left out and everything else is
// stored. A reply whose Err is job.ErrDurability is complete; with any other Err
// it is empty, and the call may be repeated.
func (s *Store) Apply(ctx context.Context, shard int, writes []job.Write) job.ApplyReply {
	return s.apply(ctx, shard, writes, true)
}

// apply is Apply. Only one writer of a shard at a time may take along what was announced.
func (s *Store) apply(ctx context.Context, shard int, writes []job.Write, takesAlong bool) job.ApplyReply {
	room := roomFor(len(writes))
	defer room.done()
	groups, err := room.plan(s.form(), writes)
	if err != nil {
		return job.ApplyReply{Err: err}
	}
	if err := s.addLetters(ctx, shard, writes, groups); err != nil {
		return job.ApplyReply{Err: err}
	}
	calls := room.calls(shard, groups)
	if takesAlong && s.events != nil {
		for _, c := range calls {
			c.news = s.events.take(ctx, shard, c.items)
		}
	}
	s.runApply(ctx, calls, writes)
	return s.readApply(writes, calls)
}

// plan plans the writes. Those that belong together are one group, in the place of the
// second.
func (r *applyRoom) plan(f codec.Encoding, writes []job.Write) ([][]*applyItem, error) {
	groups, items, list := r.groups, r.items, r.list
	texts := codec.ArgumentBuffer{Encoding: f, Free: r.texts}
	defer func() { r.texts = texts.Free }() // the last that it got
	for i := range writes {
		var before *job.Write
		if writes[i].Together {
			if i == 0 || writes[i-1].Together {
				return nil, fmt.Errorf("apply %s: it is together with no other write", writes[i].Record)
			}
			before = &writes[i-1]
		}
		item := &items[i]
		if err := item.plan(texts.Reserve(len(writes)-i), &writes[i], before, i); err != nil {
			return nil, fmt.Errorf("apply %s: %w", writes[i].Record, err)
		}
		list[i] = item
		groups[i] = list[i : i+1 : i+1]
		if before != nil {
			items[i-1].partner, item.partner = 1, -1
			groups[i], groups[i-1] = list[i-1:i+1:i+1], nil
		}
	}
	return groups, nil
}

// applyCall is one run of the script.
type applyCall struct {
	shard int
	room  *applyRoom
	items []*applyItem
	lanes *laneKeys
	op    *op
	news  []announced // events that go with it, before its own
}

// calls cuts groups into calls. A record is in a call once at most, and a group is not
// torn apart.
func (r *applyRoom) calls(shard int, groups [][]*applyItem) []*applyCall {
	var calls []*applyCall
	var current *applyCall
	seen, size := r.seen, 0
	for _, g := range groups {
		if len(g) == 0 {
			continue
		}
		bytes, again := 0, false
		for _, i := range g {
			bytes += i.size
			again = again || seen[i.record] || i.spawns != "" && seen[i.spawns]
		}
		if current == nil || again || len(current.items)+len(g) > applyItems || size+bytes > callBytes {
			current = &applyCall{shard: shard, room: r}
			calls = append(calls, current)
			clear(seen)
			size = 0
		}
		size += bytes
		for _, i := range g {
			i.alone = len(g) == 1
			seen[i.record] = true
			if i.spawns != "" {
				seen[i.spawns] = true
			}
			current.items = append(current.items, i)
		}
	}
	return calls
}

// build makes the call's op. A lean one leaves out what may be left out. Plain items
// of like steps in one lane are a group of the script's, any other item is one of its
// own, of number 0.
func (c *applyCall) build(s *Store, writes []job.Write, lean bool) *op {
	keys := s.shards[c.shard]
	fixed := []string{keys.meta, keys.state, keys.def, keys.hist, keys.lanes, keys.lock}
	c.lanes = newLaneKeys(keys, len(fixed))
	argv := c.room.args.take(6*len(c.items) + 3)
	var group *applyItem
	size, sizeAt := 0, 0
	for _, i := range c.items {
		steps, args := i.cut(lean)
		if group == nil || !group.alike(i, lean) {
			argv = append(argv, steps, c.lanes.at(i.lane), 0)
			group, size, sizeAt = i, 0, len(argv)-1
		}
		if i.plain() {
			size++
			argv[sizeAt] = size
		}
		argv = append(argv, (*string)(&i.record), &i.guard)
		for _, a := range args {
			switch of := a.(type) {
			case job.Lane:
				a = c.lanes.at(of)
			case worstPlace:
				a = c.lanes.worstAt()
			case objectivesPlace:
				a = c.lanes.objectivesAt()
			}
			argv = append(argv, a)
		}
	}
	if lean {
		c.op = call(s.scripts.applyLean, c.shard, c.lanes.appendTo(fixed), argv)
		return c.op
	}
	names := c.lanes.appendTo(fixed)
	if s.events != nil {
		names, argv = append(names, keys.events), c.withEvents(s, argv, writes)
	}
	c.op = call(s.scripts.apply, c.shard, names, argv)
	c.op.joins = true
	return c.op
}

// runApply sends the calls, and those that met a full memory again without what
// may be left out.
func (s *Store) runApply(ctx context.Context, calls []*applyCall, writes []job.Write) {
	ops := make([]*op, len(calls))
	for i, c := range calls {
		if !slices.IsSortedFunc(c.items, compareItems) { // most often all are alike
			slices.SortStableFunc(c.items, compareItems)
		}
		ops[i] = c.build(s, writes, false)
	}
	s.run(ctx, ops)
	var lean []*op
	for _, c := range calls {
		if redis.IsOOMError(c.op.err) {
			uncertain := c.op.uncertain
			s.forgo(c)
			lean = append(lean, c.build(s, writes, true))
			c.op.uncertain = uncertain
		}
	}
	s.run(ctx, lean)
	if s.events != nil {
		s.settleNews(calls)
	}
}

// readApply takes over the answers:
// {code, clock, codes, states of conflicts, {place, due ...}, lock value}.
func (s *Store) readApply(writes []job.Write, calls []*applyCall) job.ApplyReply {
	out := job.ApplyReply{Results: make([]job.WriteResult, len(writes))}
	news := laneNews{}
	for _, c := range calls {
		if err := rediserr.Wrap("apply", c.op.err); err != nil {
			out.Err = err
			if !errors.Is(err, job.ErrDurability) {
				return job.ApplyReply{Err: err}
			}
		}
		c.results(s, writes, out.Results)
		c.addNews(&news)
		out.NowUS = max(out.NowUS, c.op.reply.int(1))
	}
	out.Earlier, out.Holder = news.heads, news.holder
	return out
}

// addNews adds what the call says of lanes.
func (c *applyCall) addNews(n *laneNews) { n.add(c.lanes, c.op.reply.list(4), c.op.reply.text(5)) }

// repaired tells of the lanes that calls which repair the index made due earlier, and has
// their errors.
func (s *Store) repaired(shard int, calls []*applyCall) (failed []error) {
	news := laneNews{}
	for _, c := range calls {
		failed = append(failed, c.op.err)
		c.addNews(&news)
	}
	s.tellEarlier(shard, news)
	return failed
}

func (c *applyCall) results(s *Store, writes []job.Write, results []job.WriteResult) {
	codes, conflicts := c.op.reply.text(2), c.op.reply.list(3)
	nth := 0
	for i, item := range c.items {
		code := codeAt(codes, i)
		stored := ""
		if code == '1' {
			stored = conflicts.text(nth)
			nth++
		}
		if item.write < 0 {
			continue
		}
		w := &writes[item.write]
		if code == '2' && c.op.uncertain && deletes(w) &&
			(item.partner == 0 || codeAt(codes, i+item.partner) == '2' && deletes(&writes[c.items[i+item.partner].write])) {
			code = '5' // by the try whose answer was lost
		}
		results[item.write] = s.result(c, w, code, stored)
	}
}

func deletes(w *job.Write) bool { return w.Decision.Delete }

func codeAt(codes string, i int) byte {
	if i < len(codes) {
		return codes[i]
	}
	return '2'
}

func (s *Store) result(c *applyCall, w *job.Write, code byte, stored string) job.WriteResult {
	switch code {
	case '0':
		return job.WriteResult{Code: job.Written}
	case '5':
		s.metrics.replayed("apply", 1)
		return job.WriteResult{Code: job.Written}
	case '1':
		state, err := codec.DecodeState(w.Record, stored)
		if err == nil {
			return job.WriteResult{Code: job.Conflict, Current: &state}
		}
		s.corrupt(c.shard, "apply", err, string(w.Record))
	case '3':
		return job.WriteResult{Code: job.NotExpired}
	case '4':
		s.corrupt(c.shard, "apply", nil, string(w.Record))
	}
	return job.WriteResult{Code: job.NotFound}
}

// putAside takes a record that cannot be used out of the schedule: its index
// entry goes to the dead region, for ever, and nothing else changes.
func (s *Store) putAside(ctx context.Context, shard int, record job.RecordID, state job.State) {
	item := &applyItem{record: record, guard: codec.AppendGuardPattern(nil, state.Token, state.Revision), lane: state.Lane, write: -1}
	item.step(stepSetAside)
	room := roomFor(0)
	defer room.done()
	calls := room.calls(shard, [][]*applyItem{{item.bounded()}})
	s.runApply(ctx, calls, nil)
	if err := s.repaired(shard, calls)[0]; err != nil {
		s.log.Warn("corrupt record could not be put aside", "record", record, "error", err)
	} else if !strings.HasPrefix(calls[0].op.reply.text(2), "0") {
		s.log.Warn("corrupt record has changed meanwhile", "record", record)
	}
}
