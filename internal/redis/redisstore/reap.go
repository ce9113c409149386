package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Limits of one reaping.
const (
	lanesPerReap = 200
	reapLimit    = 500
	sweepLimit   = 200
)

// Expired lists up to limit (at most 500) leases that have ended by the shard's
// clock, lane by lane. It answers job.ErrNotHolder if the lock has another value.
func (s *Store) Expired(ctx context.Context, shard int, lockValue string, lanes []job.Lane, limit int) ([]job.Overdue,
	error) {
	found, err := s.reap(ctx, shard, lockValue, lanes, min(limit, reapLimit), job.RegionLeased)
	if err != nil {
		return nil, err
	}
	out := make([]job.Overdue, len(found))
	for i, f := range found {
		out[i] = job.Overdue{Record: f.record, State: f.state}
	}
	return out, nil
}

// Sweep deletes up to limit (at most 200) dead letters and finished records
// whose time has come, with all that they own. It answers job.ErrNotHolder if the lock
// has another value. It does not count what was deleted by a try whose reply was lost.
func (s *Store) Sweep(ctx context.Context, shard int, lockValue string, lanes []job.Lane, limit int) (deleted int,
	err error) {
	limit = min(limit, sweepLimit)
	if s.events != nil { // the events of deletions have labels of the definitions
		found, err := s.reap(ctx, shard, lockValue, lanes, limit, sweptRegions...)
		if err != nil {
			return 0, err
		}
		return s.deleteOverdue(ctx, shard, found)
	}
	for part := range slices.Chunk(lanes, lanesPerReap) {
		n, err := s.sweepLanes(ctx, shard, lockValue, part, limit-deleted)
		deleted += n
		if err != nil || deleted >= limit {
			return deleted, err
		}
	}
	return deleted, nil
}

// sweptRegions are the regions whose records are deleted at the time of their entries.
var sweptRegions = []job.Region{job.RegionDead, job.RegionDone}

// sweepLanes sweeps lanes by one script, and deletes what the script leaves by decisions.
func (s *Store) sweepLanes(ctx context.Context, shard int, lockValue string, lanes []job.Lane, limit int) (deleted int,
	err error) {
	if limit < 1 {
		return 0, nil
	}
	keys := s.shards[shard]
	fixed := []string{keys.Meta, keys.State, keys.Def, keys.Hist, keys.Lanes, keys.Lock, keys.Revisions}
	places, argv := newLaneKeys(keys, len(fixed)), []any{lockValue, limit}
	for _, l := range lanes {
		places.placeOf(l)
		argv = append(argv, codec.EncodingFull.LaneFields(l), codec.EncodingSparse.LaneFields(l))
	}
	o := runner.NewScriptCall(s.scripts.sweep, shard, places.appendKeysTo(fixed), argv)
	unconfirmed := s.runner.Run(ctx, o)
	if unconfirmed != nil && !errors.Is(unconfirmed, job.ErrDurability) {
		return 0, unconfirmed
	}
	var earlier earlierLanes
	earlier.addPairs(places, o.Reply.ListAt(7), o.Reply.TextAt(8))
	s.reportEarlierLanes(shard, earlier)
	found, wrong := s.parseOverdue(ctx, o, lanes, len(fixed)+1, sweptRegions)
	if err := s.repairIndexEntries(ctx, shard, wrong); err != nil {
		return int(o.Reply.IntAt(6)), err
	}
	deleted, err = s.deleteOverdue(ctx, shard, found)
	return deleted + int(o.Reply.IntAt(6)), cmp.Or(err, unconfirmed)
}

// deleteOverdue deletes records by decisions.
func (s *Store) deleteOverdue(ctx context.Context, shard int, found []overdue) (deleted int, err error) {
	if len(found) == 0 {
		return 0, nil
	}
	definitions, err := s.readDefinitionsOf(ctx, shard, found)
	if err != nil {
		return 0, err
	}
	writes := make([]job.Write, len(found))
	for i, f := range found {
		writes[i] = job.Write{
			Record: f.record, Token: f.state.Token, Revision: f.state.Revision, From: f.lane, Current: definitions[i],
			Decision: &job.Decision{Delete: true, State: f.state, Notices: s.deletionNotices(f.record, f.lane)},
		}
	}
	// What was announced is not taken along: it is of other jobs, whose decisions the shard's
	// writer may store meanwhile. Those that end here have long had theirs stored.
	reply := s.apply(ctx, shard, writes, false)
	s.reportEarlierLanes(shard, earlierLanes{reply.Earlier, reply.Holder})
	for _, r := range reply.Results {
		if r.Code == job.Written {
			deleted++
		}
	}
	return deleted, reply.Err
}

// readDefinitionsOf reads the definitions of records to be deleted: the history of a job is as long as its definition
// says. Without a readable one it may be as long as possible. A dead letter has one run: its definition is not read.
func (s *Store) readDefinitionsOf(ctx context.Context, shard int, found []overdue) ([]*job.Definition, error) {
	var ids []job.RecordID
	for _, f := range found {
		if f.record.IsJob() {
			ids = append(ids, f.record)
		}
	}
	stored, err := s.readRaw(ctx, shard, ids)
	if err != nil {
		return nil, err
	}
	definitions := make([]*job.Definition, len(found))
	for i, f := range found {
		definitions[i] = &job.Definition{HistoryLimit: codec.MaxHistory}
		if !f.record.IsJob() {
			continue
		}
		if def, err := codec.DecodeDefinition(f.record, stored[0].def); err == nil && stored[0].hasDef {
			definitions[i] = def
		}
		stored = stored[1:]
	}
	return definitions, nil
}

// overdue is a record whose time in its region has come.
type overdue struct {
	record job.RecordID
	state  job.State
	lane   job.Lane // whose index has it
}

// reap lists what is overdue in the regions. Entries of the index that do not
// agree with their record are mended instead of listed.
func (s *Store) reap(ctx context.Context, shard int, lockValue string, lanes []job.Lane, limit int,
	regions ...job.Region) ([]overdue, error) {
	if limit < 1 || len(lanes) == 0 {
		return nil, nil
	}
	keys := s.shards[shard]
	var ops []*runner.Op
	for rest := lanes; len(rest) > 0; {
		n := min(len(rest), lanesPerReap)
		names := []string{keys.Meta, keys.State, keys.Lock}
		for _, l := range rest[:n] {
			names = append(names, keys.LaneKey(l))
		}
		argv := []any{lockValue, limit}
		for _, r := range regions {
			argv = append(argv, int(r))
		}
		ops = append(ops, runner.NewScriptCall(s.scripts.reap, shard, names, argv))
		rest = rest[n:]
	}
	if err := s.runner.Run(ctx, ops...); err != nil {
		return nil, err
	}
	var found, wrong []overdue
	for i, o := range ops {
		right, other := s.parseOverdue(ctx, o, lanes[i*lanesPerReap:], firstReapLane, regions)
		found, wrong = append(found, right...), append(wrong, other...)
	}
	return found[:min(limit, len(found))], s.repairIndexEntries(ctx, shard, wrong)
}

// firstReapLane is the place of the first lane in KEYS of reap.lua.
const firstReapLane = 4

// parseOverdue reads the records that a script has listed, whose KEYS have the lanes from firstPlace on. The entries of
// wrong do not agree with their records. A record that cannot be read is set aside.
func (s *Store) parseOverdue(ctx context.Context, o *runner.Op, lanes []job.Lane, firstPlace int,
	regions []job.Region) (found, wrong []overdue) {
	places, records, states := o.Reply.ListAt(2), o.Reply.ListAt(3), o.Reply.ListAt(4)
	s.runner.ReportCorrupt(o.Shard, o.Name, nil, o.Reply.ListAt(5).Texts()...)
	for k := range records {
		f := overdue{record: job.RecordID(records.TextAt(k)), lane: lanes[int(places.IntAt(k))-firstPlace]}
		var err error
		f.state, err = codec.DecodeState(f.record, states.TextAt(k))
		switch {
		case err != nil:
			s.runner.ReportCorrupt(o.Shard, o.Name, err, string(f.record))
			f.state.Lane = f.lane
			f.state.Token, f.state.Revision = codec.ReadGuard(states.TextAt(k))
			s.setAside(ctx, o.Shard, f.record, f.state)
		case f.state.Lane != f.lane || !slices.Contains(regions, f.state.Region):
			wrong = append(wrong, f)
		default:
			found = append(found, f)
		}
	}
	return found, wrong
}

// repairIndexEntries brings entries of the index in line with their records: one in the wrong
// lane goes, one in the wrong region gets the score that its state asks for.
// A dead letter that took the slot of an older one in another lane leaves such
// an entry; anything else is a trace of lost writes.
func (s *Store) repairIndexEntries(ctx context.Context, shard int, wrong []overdue) error {
	var groups [][]*applyItem
	for _, f := range wrong {
		item := &applyItem{
			record: f.record, guard: codec.AppendGuardPattern(nil, f.state.Token, f.state.Revision), lane: f.lane,
			write: -1, size: len(f.record) + 64,
		}
		if f.state.Lane != f.lane {
			item.addStep(stepLeaveLane)
		} else {
			text, err := s.form().ForStates(codec.MaxHistory).EncodeState(&f.state) // its job is not known here
			if err != nil {
				return err
			}
			item.addStep(stepWrite, text, job.Score(f.state.Region, unixtime.Milli(restingMS(f.state))))
			s.log.Warn("index entry did not agree with its record and was mended", "record", f.record, "region",
				f.state.Region)
		}
		groups = append(groups, []*applyItem{item.endLeanSteps()})
	}
	if len(groups) == 0 {
		return nil
	}
	room := acquireApplyMemory(0)
	defer room.release()
	calls := room.cutCalls(shard, groups)
	s.runApplyCalls(ctx, calls, nil)
	failed := s.reportRepairs(shard, calls)
	for i := range failed {
		failed[i] = rediserr.Wrap("mend", failed[i])
	}
	return errors.Join(failed...)
}

// restingMS is the instant for an index entry whose own was lost. A lease is
// over at once; what waits for deletion waits for ever rather than go too early.
func restingMS(s job.State) int64 {
	switch s.Region {
	case job.RegionDue:
		return int64(s.Due)
	case job.RegionPaused:
		return int64(s.PausedMS)
	case job.RegionLeased:
		return 0
	}
	return int64(job.NeverMS)
}
