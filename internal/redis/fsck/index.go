package fsck

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// checkIndexEntries compares the entries that states should have with those that there are.
func (a *check) checkIndexEntries(ids []job.RecordID, states []job.State) error {
	ops := make([]*runner.Op, len(ids))
	for i, id := range ids {
		ops[i] = a.scoreOp(states[i].Lane, id)
	}
	if len(ops) == 0 {
		return nil
	}
	if err := a.runner.Run(a.ctx, ops...); err != nil {
		return err
	}
	for i, id := range ids {
		if a.unusable[id] || entryMatchesState(states[i], ops[i]) {
			continue
		}
		if err := a.recheckRecord(id); err != nil {
			return err
		}
	}
	return nil
}

func (a *check) scoreOp(lane job.Lane, id job.RecordID) *runner.Op {
	key := a.keys.LaneKey(lane)
	return runner.NewCommand("zscore", key, "zscore", key, string(id))
}

// entryMatchesState reports whether an entry is in the region of the state and, where runs are
// waited for, not after their time.
func entryMatchesState(s job.State, o *runner.Op) bool {
	at := o.Reply.ScoreAt(0)
	region, _ := job.SplitScore(at)
	if o.Reply.ValueAt(0) == nil || at < 0 || region != s.Region {
		return false
	}
	return s.Region != job.RegionDue || at <= job.Score(job.RegionDue, s.Due)
}

// recheckRecord reads state, entry and state, in this order, until the state stood
// still: only then is the state at the time of the read known.
func (a *check) recheckRecord(id job.RecordID) error {
	for range maxRechecks {
		before, err := a.stateText(id)
		if err != nil || before == "" {
			return err
		}
		s, err := codec.DecodeState(id, before)
		if err != nil {
			return nil
		}
		o := a.scoreOp(s.Lane, id)
		if err := a.runner.Run(a.ctx, o); err != nil {
			return err
		}
		after, err := a.stateText(id)
		if err != nil || entryMatchesState(s, o) {
			return err
		}
		if before == after {
			return a.reportWrongEntry(id, s, o)
		}
	}
	return nil
}

func (a *check) stateText(id job.RecordID) (string, error) {
	o := runner.NewFieldsRead(a.shard, a.keys.State, []job.RecordID{id})
	err := a.runner.Run(a.ctx, o)
	return o.Reply.TextAt(0), err
}

func (a *check) reportWrongEntry(id job.RecordID, s job.State, o *runner.Op) error {
	f := job.Finding{Fault: job.FaultIndexRegion, Record: id, Lane: s.Lane.String()}
	if o.Reply.ValueAt(0) == nil {
		f.Fault, f.Detail = job.FaultIndexMissing, fmt.Sprintf("its state is %s", s.Region)
	} else {
		f.Detail = fmt.Sprintf("its state is %s, its entry %s", s.Region, entryText(o.Reply.ScoreAt(0)))
	}
	if a.repair {
		if err := a.store.RepairEntry(a.ctx, a.shard, s.Lane, id, s); err != nil {
			return err
		}
		f.Repaired = true
	}
	a.addFinding(f)
	return nil
}

// entryText describes the place of a record by its score.
func entryText(at int64) string {
	region, ms := job.SplitScore(at)
	if at < 0 || region > job.RegionDone {
		return "nowhere"
	}
	return fmt.Sprintf("%s, %s", region, formatDue(int64(ms)))
}

// collectIndexedLanes adds the lanes that only the index of lanes names, and reports a shard with too many of them.
func (a *check) collectIndexedLanes() error {
	if err := a.store.EachLane(a.ctx, a.shard, func(l job.Lane) { a.lanes[l] = true }); err != nil {
		return err
	}
	a.checkLaneCount()
	return nil
}

// sortedLanes makes reports the same each time.
func (a *check) sortedLanes() []job.Lane {
	return slices.SortedFunc(maps.Keys(a.lanes),
		func(x, y job.Lane) int { return strings.Compare(x.String(), y.String()) })
}

// checkLaneEntries looks for those that belong to no record, or to one that is elsewhere.
// Entries that move while their lane is walked are those of living records.
func (a *check) checkLaneEntries() error {
	for _, lane := range a.sortedLanes() {
		key := a.keys.LaneKey(lane)
		for at := 0; ; at += stepSize {
			o := runner.NewCommand("zrange", key, "zrange", key, at, at+stepSize-1)
			if err := a.runner.Run(a.ctx, o); err != nil {
				return err
			}
			ids := o.Reply.RecordIDs()
			if len(ids) == 0 {
				break
			}
			states := runner.NewFieldsRead(a.shard, a.keys.State, ids)
			if err := a.runner.Run(a.ctx, states); err != nil {
				return err
			}
			for i, id := range ids {
				s, err := codec.DecodeState(id, states.Reply.TextAt(i))
				if states.Reply.HasTextAt(i) && (err != nil || s.Lane == lane) {
					continue
				}
				if err := a.checkExtraEntry(id, lane); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (a *check) checkExtraEntry(id job.RecordID, lane job.Lane) error {
	for range maxRechecks {
		before, err := a.stateText(id)
		if err != nil {
			return err
		}
		s, err := codec.DecodeState(id, before)
		if before != "" && (err != nil || s.Lane == lane || id.IsLetter()) {
			return nil
		}
		o := a.scoreOp(lane, id)
		if err := a.runner.Run(a.ctx, o); err != nil {
			return err
		}
		after, err := a.stateText(id)
		if err != nil || o.Reply.ValueAt(0) == nil {
			return err
		}
		if before != after {
			continue
		}
		f := job.Finding{Fault: job.FaultIndexExtra, Record: id, Lane: lane.String(), Detail: "there is no such record"}
		if before != "" {
			f.Detail = "its lane is " + s.Lane.String()
		}
		if a.repair {
			if before != "" {
				err = a.store.RepairEntry(a.ctx, a.shard, lane, id, s)
			} else {
				err = a.store.RemoveEntry(a.ctx, a.shard, lane, id)
			}
			if err != nil {
				return err
			}
			f.Repaired = true
		}
		a.addFinding(f)
		return nil
	}
	return nil
}

// checkLaneIndex compares the first due time of each lane with the index of lanes.
func (a *check) checkLaneIndex() error {
	for _, lane := range a.sortedLanes() {
		if err := a.checkLaneHead(lane); err != nil {
			return err
		}
	}
	return nil
}

func (a *check) checkLaneHead(lane job.Lane) error {
	key, name := a.keys.LaneKey(lane), lane.String()
	for range maxRechecks {
		indexed := func() *runner.Op { return runner.NewCommand("zscore", a.keys.Lanes, "zscore", a.keys.Lanes, name) }
		before, after := indexed(), indexed()
		first := runner.NewCommand("zrange", key, "zrange", key, 0, 0, "withscores")
		// One after the other, whatever the client does with a pipeline.
		for _, o := range []*runner.Op{before, first, after} {
			if err := a.runner.Run(a.ctx, o); err != nil {
				return err
			}
		}
		empty, known := len(first.Reply) == 0, before.Reply.ValueAt(0) != nil
		due, said := min(unixtime.Milli(first.Reply.FirstScore()), job.NeverMS), before.Reply.ScoreAt(0)
		if known == !empty && (empty || due == unixtime.Milli(said)) {
			return nil
		}
		if known != (after.Reply.ValueAt(0) != nil) || said != after.Reply.ScoreAt(0) {
			continue
		}
		again := runner.NewCommand("zrange", key, "zrange", key, 0, 0, "withscores")
		if err := a.runner.Run(a.ctx, again); err != nil {
			return err
		}
		if again.Reply.FirstScore() != first.Reply.FirstScore() {
			continue
		}
		f := job.Finding{Fault: job.FaultLaneIndex, Lane: name, Detail: describeHeadFault(empty, known, int64(due), said)}
		if a.repair {
			if err := a.store.RepairLaneHead(a.ctx, a.shard, lane); err != nil {
				return err
			}
			f.Repaired = true
		}
		a.addFinding(f)
		return nil
	}
	return nil
}

func describeHeadFault(empty, known bool, due, said int64) string {
	switch {
	case empty:
		return "it is empty, and the index has it"
	case !known:
		return "the index does not have it"
	}
	return fmt.Sprintf("its first record is due at %s, the index says %s", formatDue(due), formatDue(said))
}

func formatDue(ms int64) string {
	if unixtime.Milli(ms) >= job.NeverMS {
		return "no time"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
}
