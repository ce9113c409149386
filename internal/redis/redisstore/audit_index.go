package redisstore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
)

// indexed compares the entries that states should have with those that there are.
func (a *audit) indexed(ids []job.RecordID, states []job.State) error {
	ops := make([]*op, len(ids))
	for i, id := range ids {
		ops[i] = a.scoreOp(states[i].Lane, id)
	}
	if len(ops) == 0 {
		return nil
	}
	if err := a.perform(a.ctx, ops...); err != nil {
		return err
	}
	for i, id := range ids {
		if a.unusable[id] || agrees(states[i], ops[i]) {
			continue
		}
		if err := a.lookAgain(id); err != nil {
			return err
		}
	}
	return nil
}

func (a *audit) scoreOp(lane job.Lane, id job.RecordID) *op {
	key := a.keys.laneKey(lane)
	return command("zscore", key, "zscore", key, string(id))
}

// agrees tells whether an entry is in the region of the state and, where runs are
// waited for, not after their time.
func agrees(s job.State, o *op) bool {
	at := score(o.reply.at(0))
	region, _ := job.SplitScore(at)
	if o.reply.at(0) == nil || at < 0 || region != s.Region {
		return false
	}
	return s.Region != job.RegionDue || at <= job.Score(job.RegionDue, s.Due)
}

// lookAgain reads state, entry and state, in this order, until the state stood
// still: only then was the entry read at an instant of which the state is known.
func (a *audit) lookAgain(id job.RecordID) error {
	for range auditLooks {
		before, err := a.stateText(id)
		if err != nil || before == "" {
			return err
		}
		s, err := codec.DecodeState(id, before)
		if err != nil {
			return nil
		}
		o := a.scoreOp(s.Lane, id)
		if err := a.perform(a.ctx, o); err != nil {
			return err
		}
		after, err := a.stateText(id)
		if err != nil || agrees(s, o) {
			return err
		}
		if before == after {
			return a.wrongEntry(id, s, o)
		}
	}
	return nil
}

func (a *audit) stateText(id job.RecordID) (string, error) {
	o := readFields(a.shard, a.keys.state, []job.RecordID{id})
	err := a.perform(a.ctx, o)
	return o.reply.text(0), err
}

func (a *audit) wrongEntry(id job.RecordID, s job.State, o *op) error {
	f := job.Finding{Fault: job.FaultIndexRegion, Record: id, Lane: s.Lane.String()}
	if o.reply.at(0) == nil {
		f.Fault, f.Detail = job.FaultIndexMissing, fmt.Sprintf("its state is %s", s.Region)
	} else {
		f.Detail = fmt.Sprintf("its state is %s, its entry %s", s.Region, entryText(score(o.reply.at(0))))
	}
	if a.repair {
		if err := a.mend(a.ctx, a.shard, []overdue{{record: id, state: s, lane: s.Lane}}); err != nil {
			return err
		}
		f.Repaired = true
	}
	a.find(f)
	return nil
}

// entryText says where a score puts a record.
func entryText(at int64) string {
	region, ms := job.SplitScore(at)
	if at < 0 || region > job.RegionDone {
		return "nowhere"
	}
	return fmt.Sprintf("%s, %s", region, dueText(ms))
}

// indexedLanes adds the lanes that only the index of lanes names.
func (a *audit) indexedLanes() error {
	return a.eachLane(a.ctx, a.shard, func(l job.Lane) { a.lanes[l] = true })
}

// sortedLanes makes reports the same each time.
func (a *audit) sortedLanes() []job.Lane {
	return slices.SortedFunc(maps.Keys(a.lanes), func(x, y job.Lane) int { return strings.Compare(x.String(), y.String()) })
}

// entries looks for those that belong to no record, or to one that is elsewhere.
// Entries that move while their lane is walked are those of living records.
func (a *audit) entries() error {
	for _, lane := range a.sortedLanes() {
		key := a.keys.laneKey(lane)
		for at := 0; ; at += auditStep {
			o := command("zrange", key, "zrange", key, at, at+auditStep-1)
			if err := a.perform(a.ctx, o); err != nil {
				return err
			}
			ids := o.reply.records()
			if len(ids) == 0 {
				break
			}
			states := readFields(a.shard, a.keys.state, ids)
			if err := a.perform(a.ctx, states); err != nil {
				return err
			}
			for i, id := range ids {
				if s, err := codec.DecodeState(id, states.reply.text(i)); states.reply.has(i) && (err != nil || s.Lane == lane) {
					continue
				}
				if err := a.extraEntry(id, lane); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (a *audit) extraEntry(id job.RecordID, lane job.Lane) error {
	for range auditLooks {
		before, err := a.stateText(id)
		if err != nil {
			return err
		}
		s, err := codec.DecodeState(id, before)
		if before != "" && (err != nil || s.Lane == lane || id.IsLetter()) {
			return nil
		}
		o := a.scoreOp(lane, id)
		if err := a.perform(a.ctx, o); err != nil {
			return err
		}
		after, err := a.stateText(id)
		if err != nil || o.reply.at(0) == nil {
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
				err = a.mend(a.ctx, a.shard, []overdue{{record: id, state: s, lane: lane}})
			} else {
				err = a.takeOut(id, &lane, "")
			}
			if err != nil {
				return err
			}
			f.Repaired = true
		}
		a.find(f)
		return nil
	}
	return nil
}

// takeOut removes what refers to a record that does not exist: an entry of a
// lane, or a field of the history.
func (a *audit) takeOut(id job.RecordID, lane *job.Lane, field string) error {
	if lane == nil {
		return a.mendLanes(nil, string(id), "", field)
	}
	return a.mendLanes([]job.Lane{*lane}, string(id), firstMended, field)
}

// firstMended is the place of the first lane in the KEYS of mend.lua.
const firstMended = 6

// mendLanes brings the index of lanes in line with lanes, and takes out what the script's
// other arguments say. The holder hears of what is due earlier than it knows.
func (a *audit) mendLanes(lanes []job.Lane, argv ...any) error {
	fixed := []string{a.keys.meta, a.keys.state, a.keys.hist, a.keys.lanes, a.keys.lock}
	places := newLaneKeys(a.keys, len(fixed))
	for _, l := range lanes {
		places.at(l)
	}
	o := call(a.scripts.mend, a.shard, places.appendTo(fixed), argv)
	if err := a.perform(a.ctx, o); err != nil {
		return err
	}
	news := laneNews{}
	news.add(places, o.reply.list(3), o.reply.text(4))
	a.tellEarlier(a.shard, news)
	return nil
}

// laneIndex compares the first due time of each lane with what the index of lanes
// says.
func (a *audit) laneIndex() error {
	for _, lane := range a.sortedLanes() {
		if err := a.laneHead(lane); err != nil {
			return err
		}
	}
	return nil
}

func (a *audit) laneHead(lane job.Lane) error {
	key, name := a.keys.laneKey(lane), lane.String()
	for range auditLooks {
		indexed := func() *op { return command("zscore", a.keys.lanes, "zscore", a.keys.lanes, name) }
		before, first, after := indexed(), command("zrange", key, "zrange", key, 0, 0, "withscores"), indexed()
		// One after the other, whatever the client does with a pipeline.
		for _, o := range []*op{before, first, after} {
			if err := a.perform(a.ctx, o); err != nil {
				return err
			}
		}
		empty, known := len(first.reply) == 0, before.reply.at(0) != nil
		due, said := min(firstScore(first.reply), job.NeverMS), score(before.reply.at(0))
		if known == !empty && (empty || due == said) {
			return nil
		}
		if known != (after.reply.at(0) != nil) || said != score(after.reply.at(0)) {
			continue
		}
		again := command("zrange", key, "zrange", key, 0, 0, "withscores")
		if err := a.perform(a.ctx, again); err != nil {
			return err
		}
		if firstScore(again.reply) != firstScore(first.reply) {
			continue
		}
		f := job.Finding{Fault: job.FaultLaneIndex, Lane: name, Detail: headFault(empty, known, due, said)}
		if a.repair {
			if err := a.mendLanes([]job.Lane{lane}); err != nil {
				return err
			}
			f.Repaired = true
		}
		a.find(f)
		return nil
	}
	return nil
}

func headFault(empty, known bool, due, said int64) string {
	switch {
	case empty:
		return "it is empty, and the index has it"
	case !known:
		return "the index does not have it"
	}
	return fmt.Sprintf("its first record is due at %s, the index says %s", dueText(due), dueText(said))
}

func dueText(ms int64) string {
	if ms >= job.NeverMS {
		return "no time"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
}
