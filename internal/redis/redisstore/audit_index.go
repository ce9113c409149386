package redisstore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// checkIndexEntries compares the entries that states should have with those that there are.
func (a *consistencyCheck) checkIndexEntries(ids []job.RecordID, states []job.State) error {
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

func (a *consistencyCheck) scoreOp(lane job.Lane, id job.RecordID) *runner.Op {
	key := a.keys.LaneKey(lane)
	return runner.NewCommand("zscore", key, "zscore", key, string(id))
}

// entryMatchesState reports whether an entry is in the region of the state and, where runs are
// waited for, not after their time.
func entryMatchesState(s job.State, o *runner.Op) bool {
	at := parseScore(o.Reply.ValueAt(0))
	region, _ := job.SplitScore(at)
	if o.Reply.ValueAt(0) == nil || at < 0 || region != s.Region {
		return false
	}
	return s.Region != job.RegionDue || at <= job.Score(job.RegionDue, s.Due)
}

// recheckRecord reads state, entry and state, in this order, until the state stood
// still: only then was the entry read at an instant of which the state is known.
func (a *consistencyCheck) recheckRecord(id job.RecordID) error {
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

func (a *consistencyCheck) stateText(id job.RecordID) (string, error) {
	o := readFields(a.shard, a.keys.State, []job.RecordID{id})
	err := a.runner.Run(a.ctx, o)
	return o.Reply.TextAt(0), err
}

func (a *consistencyCheck) reportWrongEntry(id job.RecordID, s job.State, o *runner.Op) error {
	f := job.Finding{Fault: job.FaultIndexRegion, Record: id, Lane: s.Lane.String()}
	if o.Reply.ValueAt(0) == nil {
		f.Fault, f.Detail = job.FaultIndexMissing, fmt.Sprintf("its state is %s", s.Region)
	} else {
		f.Detail = fmt.Sprintf("its state is %s, its entry %s", s.Region, entryText(parseScore(o.Reply.ValueAt(0))))
	}
	if a.repair {
		if err := a.repairIndexEntries(a.ctx, a.shard, []overdue{{record: id, state: s, lane: s.Lane}}); err != nil {
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
	return fmt.Sprintf("%s, %s", region, formatDue(ms))
}

// collectIndexedLanes adds the lanes that only the index of lanes names, and reports a shard with too many of them.
func (a *consistencyCheck) collectIndexedLanes() error {
	if err := a.eachLane(a.ctx, a.shard, func(l job.Lane) { a.lanes[l] = true }); err != nil {
		return err
	}
	a.checkLaneCount()
	return nil
}

// sortedLanes makes reports the same each time.
func (a *consistencyCheck) sortedLanes() []job.Lane {
	return slices.SortedFunc(maps.Keys(a.lanes), func(x, y job.Lane) int { return strings.Compare(x.String(), y.String()) })
}

// checkLaneEntries looks for those that belong to no record, or to one that is elsewhere.
// Entries that move while their lane is walked are those of living records.
func (a *consistencyCheck) checkLaneEntries() error {
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
			states := readFields(a.shard, a.keys.State, ids)
			if err := a.runner.Run(a.ctx, states); err != nil {
				return err
			}
			for i, id := range ids {
				if s, err := codec.DecodeState(id, states.Reply.TextAt(i)); states.Reply.HasTextAt(i) && (err != nil || s.Lane == lane) {
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

func (a *consistencyCheck) checkExtraEntry(id job.RecordID, lane job.Lane) error {
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
				err = a.repairIndexEntries(a.ctx, a.shard, []overdue{{record: id, state: s, lane: lane}})
			} else {
				err = a.removeReference(id, &lane, "")
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

// removeReference removes a reference to a missing record: an entry of a lane, or a field of the history.
func (a *consistencyCheck) removeReference(id job.RecordID, lane *job.Lane, field string) error {
	if lane == nil {
		return a.mendLanes(nil, string(id), "", field)
	}
	return a.mendLanes([]job.Lane{*lane}, string(id), firstMended, field)
}

// firstMended is the place of the first lane in the KEYS of mend.lua.
const firstMended = 6

// mendLanes corrects the index of lanes for some lanes, and removes what the script's other arguments
// name. It reports lanes that became due earlier to the holder.
func (a *consistencyCheck) mendLanes(lanes []job.Lane, argv ...any) error {
	fixed := []string{a.keys.Meta, a.keys.State, a.keys.Hist, a.keys.Lanes, a.keys.Lock}
	places := newLaneKeys(a.keys, len(fixed))
	for _, l := range lanes {
		places.placeOf(l)
	}
	o := runner.NewScriptCall(a.scripts.mend, a.shard, places.appendKeysTo(fixed), argv)
	if err := a.runner.Run(a.ctx, o); err != nil {
		return err
	}
	news := earlierLanes{}
	news.addPairs(places, o.Reply.ListAt(3), o.Reply.TextAt(4))
	a.reportEarlierLanes(a.shard, news)
	return nil
}

// checkLaneIndex compares the first due time of each lane with the index of lanes.
func (a *consistencyCheck) checkLaneIndex() error {
	for _, lane := range a.sortedLanes() {
		if err := a.checkLaneHead(lane); err != nil {
			return err
		}
	}
	return nil
}

func (a *consistencyCheck) checkLaneHead(lane job.Lane) error {
	key, name := a.keys.LaneKey(lane), lane.String()
	for range maxRechecks {
		indexed := func() *runner.Op { return runner.NewCommand("zscore", a.keys.Lanes, "zscore", a.keys.Lanes, name) }
		before, first, after := indexed(), runner.NewCommand("zrange", key, "zrange", key, 0, 0, "withscores"), indexed()
		// One after the other, whatever the client does with a pipeline.
		for _, o := range []*runner.Op{before, first, after} {
			if err := a.runner.Run(a.ctx, o); err != nil {
				return err
			}
		}
		empty, known := len(first.Reply) == 0, before.Reply.ValueAt(0) != nil
		due, said := min(firstScore(first.Reply), job.NeverMS), parseScore(before.Reply.ValueAt(0))
		if known == !empty && (empty || due == said) {
			return nil
		}
		if known != (after.Reply.ValueAt(0) != nil) || said != parseScore(after.Reply.ValueAt(0)) {
			continue
		}
		again := runner.NewCommand("zrange", key, "zrange", key, 0, 0, "withscores")
		if err := a.runner.Run(a.ctx, again); err != nil {
			return err
		}
		if firstScore(again.Reply) != firstScore(first.Reply) {
			continue
		}
		f := job.Finding{Fault: job.FaultLaneIndex, Lane: name, Detail: describeHeadFault(empty, known, due, said)}
		if a.repair {
			if err := a.mendLanes([]job.Lane{lane}); err != nil {
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
	if ms >= job.NeverMS {
		return "no time"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
}
