package redisstore

import (
	"context"
	"errors"

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
	sweepLimit   = 100
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

// Sweep deletes up to limit (at most 100) dead letters and finished records
// whose time has come, with their definitions and histories. It answers
// job.ErrNotHolder if the lock has another value.
func (s *Store) Sweep(ctx context.Context, shard int, lockValue string, lanes []job.Lane, limit int) (deleted int,
	err error) {
	found, err := s.reap(ctx, shard, lockValue, lanes, min(limit, sweepLimit), job.RegionDead, job.RegionDone)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	ids := make([]job.RecordID, len(found))
	for i, f := range found {
		ids[i] = f.record
	}
	stored, err := s.readRaw(ctx, shard, ids)
	if err != nil {
		return 0, err
	}
	writes := make([]job.Write, len(found))
	for i, f := range found {
		// The history is as long as the definition says; without one, as long as
		// it can be.
		def, err := codec.DecodeDefinition(f.record, stored[i].def)
		if err != nil || !stored[i].hasDef {
			def = &job.Definition{HistoryLimit: codec.MaxHistory}
		}
		writes[i] = job.Write{
			Record: f.record, Token: f.state.Token, Revision: f.state.Revision, From: f.lane, Current: def,
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
		places, records, states := o.Reply.ListAt(2), o.Reply.ListAt(3), o.Reply.ListAt(4)
		s.runner.ReportCorrupt(shard, "reap", nil, o.Reply.ListAt(5).Texts()...)
		for k := range records {
			f := overdue{record: job.RecordID(records.TextAt(k)), lane: lanes[i*lanesPerReap+int(places.IntAt(k))-4]}
			var err error
			f.state, err = codec.DecodeState(f.record, states.TextAt(k))
			if err != nil {
				s.runner.ReportCorrupt(shard, "reap", err, string(f.record))
				f.state.Lane = f.lane
				f.state.Token, f.state.Revision = codec.ReadGuard(states.TextAt(k))
				s.setAside(ctx, shard, f.record, f.state)
				continue
			}
			if f.state.Lane != f.lane || !containsRegion(f.state.Region, regions) {
				wrong = append(wrong, f)
			} else if len(found) < limit {
				found = append(found, f)
			}
		}
	}
	return found, s.repairIndexEntries(ctx, shard, wrong)
}

func containsRegion(r job.Region, regions []job.Region) bool {
	for _, x := range regions {
		if r == x {
			return true
		}
	}
	return false
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
