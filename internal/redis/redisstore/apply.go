package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Limits of one call of a writing script, so that it takes no more than milliseconds.
const (
	applyItems  = 500
	createItems = 200
	callBytes   = 1 << 20
)

// Apply writes decisions by compare-and-swap. Each write is made by itself or together with the one
// before it; up to 500 are one atomic step. A write that is already stored counts as Written. A run
// that a decision spawns is written with it. If another run has its place, the write is a Conflict.
// If memory is short, history and dead letters are omitted and everything else is stored. A reply
// whose Err is job.ErrDurability is complete; with any other Err it is empty, and the call may be
// repeated.
func (s *Store) Apply(ctx context.Context, shard int, writes []job.Write) job.ApplyReply {
	return s.apply(ctx, shard, writes, true)
}

// apply is Apply. carriesAnnouncements may be set by one writer of a shard at a time.
func (s *Store) apply(ctx context.Context, shard int, writes []job.Write, carriesAnnouncements bool) job.ApplyReply {
	room := acquireApplyMemory(len(writes))
	defer room.release()
	groups, err := room.planGroups(s.form(), s.unsuccessful, s.keepsRuns(), writes)
	if err != nil {
		return job.ApplyReply{Err: err}
	}
	if err := s.addDeadLetters(ctx, shard, writes, groups); err != nil {
		return job.ApplyReply{Err: err}
	}
	calls := room.cutCalls(shard, groups)
	if carriesAnnouncements {
		s.addAnnouncements(ctx, calls)
	}
	s.runApplyCalls(ctx, calls, writes)
	return s.readApplyReplies(writes, calls)
}

// addAnnouncements has the calls carry events that belong to no decision.
func (s *Store) addAnnouncements(ctx context.Context, calls []*applyCall) {
	if s.events == nil {
		return
	}
	for _, c := range calls {
		c.announcements = s.events.dequeueFor(ctx, c.shard, c.items)
	}
}

// planGroups makes the items of the writes. Two writes that belong together are one group, at the
// index of the second.
func (r *applyMemory) planGroups(f codec.Encoding, bounds unsuccessfulBounds, keepsRuns bool,
	writes []job.Write) ([][]*applyItem, error) {
	groups, items, list := r.groups, r.items, r.list
	texts := codec.ArgumentBuffer{Encoding: f, Free: r.textBuffer}
	defer func() { r.textBuffer = texts.Free }() // the buffer may have grown
	for i := range writes {
		var before *job.Write
		if writes[i].Together {
			if i == 0 || writes[i-1].Together {
				return nil, fmt.Errorf("apply %s: it has no write to be together with", writes[i].Record)
			}
			before = &writes[i-1]
		}
		item := &items[i]
		if err := setKeptRun(&writes[i], keepsRuns); err != nil {
			return nil, fmt.Errorf("apply %s: %w", writes[i].Record, err)
		}
		if err := item.planWrite(texts.Reserve(len(writes)-i), &writes[i], before, i); err != nil {
			return nil, fmt.Errorf("apply %s: %w", writes[i].Record, err)
		}
		if err := item.addUnsuccessful(bounds, &writes[i], before); err != nil {
			return nil, fmt.Errorf("apply %s: %w", writes[i].Record, err)
		}
		list[i] = item
		groups[i] = list[i : i+1 : i+1]
		if before != nil {
			items[i-1].partnerOffset, item.partnerOffset = 1, -1
			groups[i], groups[i-1] = list[i-1:i+1:i+1], nil
		}
	}
	return groups, nil
}

// applyCall is one run of the script.
type applyCall struct {
	shard         int
	memory        *applyMemory
	items         []*applyItem
	lanes         *laneKeys
	op            *runner.Op
	announcements []announcement // announced events, which are written before its own
}

// cutCalls distributes groups over calls. A record occurs at most once in a call, and a group is not
// split.
func (r *applyMemory) cutCalls(shard int, groups [][]*applyItem) []*applyCall {
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
			current = &applyCall{shard: shard, memory: r}
			calls = append(calls, current)
			clear(seen)
			size = 0
		}
		size += bytes
		for _, i := range g {
			i.unrelated = len(g) == 1
			seen[i.record] = true
			if i.spawns != "" {
				seen[i.spawns] = true
			}
			current.items = append(current.items, i)
		}
	}
	return calls
}

// buildOp makes the op of the call. A lean one omits history, dead letters and events. Plain items
// with the same steps and lane form a group; any other item is a group of number 0.
func (c *applyCall) buildOp(s *Store, writes []job.Write, lean bool) *runner.Op {
	keys := s.shards[c.shard]
	fixed := []string{keys.Meta, keys.State, keys.Def, keys.Hist, keys.Lanes, keys.Lock}
	c.lanes = newLaneKeys(keys, len(fixed))
	argv := c.memory.args.Allocate(6*len(c.items) + 3)
	var group *applyItem
	size, sizeAt, usesHistory := 0, 0, false
	for _, i := range c.items {
		steps, args := i.stepsFor(lean)
		usesHistory = usesHistory || bytes.ContainsAny(steps, historySteps)
		if group == nil || !group.inSameGroup(i, lean) {
			argv = append(argv, steps, c.lanes.placeOf(i.lane), 0)
			group, size, sizeAt = i, 0, len(argv)-1
		}
		if i.isPlain() {
			size++
			argv[sizeAt] = size
		}
		argv = append(argv, (*string)(&i.record), &i.guard)
		for _, a := range args {
			switch of := a.(type) {
			case job.Lane:
				a = c.lanes.placeOf(of)
			case rankingsPlaceholder:
				a = c.lanes.rankingsPlace()
			case objectivesPlaceholder:
				a = c.lanes.objectivesPlace()
			case revisionsPlaceholder:
				a = c.lanes.revisionsPlace()
			case unsuccessfulPlaceholder:
				a = c.lanes.unsuccessfulPlace(job.QueueKey(of))
			case unsuccessfulQueuesPlaceholder:
				a = c.lanes.unsuccessfulQueuesPlace()
			}
			argv = append(argv, a)
		}
	}
	if !usesHistory {
		fixed[3] = keys.State // a key that does not exist would fail the call while its slot of a Redis Cluster moves
	}
	if lean {
		c.op = runner.NewScriptCall(s.scripts.applyLean, c.shard, c.lanes.appendKeysTo(fixed), argv)
		return c.op
	}
	names := c.lanes.appendKeysTo(fixed)
	if s.events != nil {
		names, argv = append(names, keys.Events), c.appendEvents(s, argv, writes)
	}
	c.op = runner.NewScriptCall(s.scripts.apply, c.shard, names, argv)
	c.op.MayShare = true
	return c.op
}

// runApplyCalls sends the calls.
func (s *Store) runApplyCalls(ctx context.Context, calls []*applyCall, writes []job.Write) {
	s.runner.RunEach(ctx, s.buildOps(calls, writes))
	s.endApplyCalls(ctx, calls, writes)
}

// buildOps makes the ops of the calls.
func (s *Store) buildOps(calls []*applyCall, writes []job.Write) []*runner.Op {
	ops := make([]*runner.Op, len(calls))
	for i, c := range calls {
		if !slices.IsSortedFunc(c.items, compareItems) { // usually all are of one group
			slices.SortStableFunc(c.items, compareItems)
		}
		ops[i] = c.buildOp(s, writes, false)
	}
	return ops
}

// endApplyCalls sends the calls that failed for lack of memory once more as lean calls.
func (s *Store) endApplyCalls(ctx context.Context, calls []*applyCall, writes []job.Write) {
	var lean []*runner.Op
	for _, c := range calls {
		if redis.IsOOMError(c.op.Err) {
			uncertain := c.op.MayHaveRun
			s.dropEvents(c)
			lean = append(lean, c.buildOp(s, writes, true))
			c.op.MayHaveRun = uncertain
		}
	}
	s.runner.RunEach(ctx, lean)
	if s.events != nil {
		s.requeueAnnouncements(calls)
	}
}

// readApplyReplies reads the replies:
// {code, clock, codes, states of conflicts, {place, due ...}, lock value}.
func (s *Store) readApplyReplies(writes []job.Write, calls []*applyCall) job.ApplyReply {
	out := job.ApplyReply{Results: make([]job.WriteResult, len(writes))}
	news := earlierLanes{}
	for _, c := range calls {
		if err := rediserr.Wrap("apply", c.op.Err); err != nil {
			out.Err = err
			if !errors.Is(err, job.ErrDurability) {
				return job.ApplyReply{Err: err}
			}
		}
		c.readResults(s, writes, out.Results)
		c.addEarlierLanes(&news)
		out.NowUS = max(out.NowUS, unixtime.Micro(c.op.Reply.IntAt(1)))
	}
	out.Earlier, out.Holder = news.heads, news.holder
	return out
}

// addEarlierLanes adds the lanes that the call made due earlier.
func (c *applyCall) addEarlierLanes(n *earlierLanes) {
	n.addPairs(c.lanes, c.op.Reply.ListAt(4), c.op.Reply.TextAt(5))
}

// reportRepairs reports the lanes that repairs of the index made due earlier, and returns the errors
// of the calls.
func (s *Store) reportRepairs(shard int, calls []*applyCall) (failed []error) {
	news := earlierLanes{}
	for _, c := range calls {
		failed = append(failed, c.op.Err)
		c.addEarlierLanes(&news)
	}
	s.reportEarlierLanes(shard, news)
	return failed
}

func (c *applyCall) readResults(s *Store, writes []job.Write, results []job.WriteResult) {
	codes, conflicts := c.op.Reply.TextAt(2), c.op.Reply.ListAt(3)
	nth := 0
	for i, item := range c.items {
		code := codeAt(codes, i)
		stored := ""
		if code == '1' {
			stored = conflicts.TextAt(nth)
			nth++
		}
		if item.write < 0 {
			continue
		}
		w := &writes[item.write]
		if code == '2' && c.op.MayHaveRun && deletes(w) &&
			(item.partnerOffset == 0 || codeAt(codes, i+item.partnerOffset) == '2' &&
				deletes(&writes[c.items[i+item.partnerOffset].write])) {
			code = '5' // by the try whose reply was lost
		}
		results[item.write] = s.writeResult(c, w, code, stored)
	}
}

func deletes(w *job.Write) bool { return w.Decision.Delete }

func codeAt(codes string, i int) byte {
	if i < len(codes) {
		return codes[i]
	}
	return '2'
}

func (s *Store) writeResult(c *applyCall, w *job.Write, code byte, stored string) job.WriteResult {
	switch code {
	case '0':
		return job.WriteResult{Code: job.Written}
	case '5':
		s.metrics.countReplays("apply", 1)
		return job.WriteResult{Code: job.Written}
	case '1':
		state, err := codec.DecodeState(w.Record, stored)
		if err == nil {
			return job.WriteResult{Code: job.Conflict, Current: &state}
		}
		s.runner.ReportCorrupt(c.shard, "apply", err, string(w.Record))
	case '3':
		return job.WriteResult{Code: job.NotExpired}
	case '4':
		s.runner.ReportCorrupt(c.shard, "apply", nil, string(w.Record))
	}
	return job.WriteResult{Code: job.NotFound}
}

// setAside removes an unusable record from the schedule: its index entry moves to the dead region
// for ever, and nothing else changes.
func (s *Store) setAside(ctx context.Context, shard int, record job.RecordID, state job.State) {
	item := &applyItem{record: record, guard: codec.AppendGuardPattern(nil, state.Token, state.Revision),
		lane: state.Lane, write: -1}
	item.addStep(stepSetAside)
	room := acquireApplyMemory(0)
	defer room.release()
	calls := room.cutCalls(shard, [][]*applyItem{{item.endLeanSteps()}})
	s.runApplyCalls(ctx, calls, nil)
	if err := s.reportRepairs(shard, calls)[0]; err != nil {
		s.log.Warn("failed to set a corrupt record aside", "record", record, "error", err)
	} else if !strings.HasPrefix(calls[0].op.Reply.TextAt(2), "0") {
		s.log.Warn("corrupt record was not set aside: it has changed", "record", record)
	}
}
