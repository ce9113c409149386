package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

const (
	// auditStep is how many fields one command of an audit looks at. Definitions
	// carry payloads.
	auditStep      = 500
	auditStepLarge = 50
	// auditLooks is how often a suspicion is looked into. A record that changes
	// each time is alive, and not at fault.
	auditLooks = 5
)

// Audit compares all that is stored in a shard: states, definitions, histories, the
// index of each lane and the index of lanes. It takes no lock and may run beside
// everything else: a suspicion counts only if nothing of the record changed while
// it was looked at again. With repair, what can be repaired without a loss is:
// entries of the indexes are set to what the records say, and histories without
// a record go.
func (s *Store) Audit(ctx context.Context, shard int, repair bool) (job.AuditReport, error) {
	if shard < 0 || shard >= len(s.shards) {
		return job.AuditReport{}, fmt.Errorf("audit: there is no shard %d", shard)
	}
	a := &audit{
		Store: s, ctx: ctx, shard: shard, keys: s.shards[shard], repair: repair,
		lanes: map[job.Lane]bool{}, defined: map[string]bool{}, unusable: map[string]bool{},
		slots: map[string]uint64{}, runs: map[string]uint64{},
	}
	for _, pass := range []func() error{a.definitions, a.states, a.families, a.indexedLanes, a.entries, a.laneIndex, a.histories} {
		if err := pass(); err != nil {
			return a.report, err
		}
	}
	return a.report, nil
}

type audit struct {
	*Store
	ctx    context.Context
	shard  int
	keys   shardKeys
	repair bool
	report job.AuditReport

	lanes    map[job.Lane]bool // that states or the index of lanes name
	defined  map[string]bool   // records with a definition that no state has been seen of
	unusable map[string]bool   // records that are kept out of the schedule, whatever their state says
	slots    map[string]uint64 // job -> slots that it says are taken
	runs     map[string]uint64 // job -> slots of the runs that are there
}

func (a *audit) find(f job.Finding) {
	if len(a.report.Findings) == job.MaxFindings {
		a.report.More = true
		return
	}
	a.report.Findings = append(a.report.Findings, f)
}

// scanHash hands the fields of a hash to take, with their values.
func (a *audit) scanHash(key string, step int, take func(fields, values []string) error) error {
	for at := "0"; ; {
		o := command("hscan", key, "hscan", key, at, "count", step)
		if err := a.perform(a.ctx, o); err != nil {
			return err
		}
		pairs := o.reply.list(1)
		var fields, values []string
		for i := 0; i+1 < len(pairs); i += 2 {
			fields, values = append(fields, pairs.text(i)), append(values, pairs.text(i+1))
		}
		if err := take(fields, values); err != nil {
			return err
		}
		if at = o.reply.text(0); at == "0" {
			return nil
		}
	}
}

func (a *audit) definitions() error {
	return a.scanHash(a.keys.def, auditStepLarge, func(ids, defs []string) error {
		for i, id := range ids {
			a.defined[id] = true
			if _, err := decodeDefinition(id, defs[i]); err != nil {
				a.unusable[id] = true
				a.find(job.Finding{Fault: job.FaultUnreadable, Record: id, Detail: "definition: " + err.Error() + "; register the job again"})
			}
		}
		return nil
	})
}

func (a *audit) states() error {
	err := a.scanHash(a.keys.state, auditStep, func(ids, texts []string) error {
		var seen []string
		var states []job.State
		for i, id := range ids {
			state, err := decodeState(id, texts[i])
			if err != nil {
				delete(a.defined, id)
				a.unusable[id] = true
				a.find(job.Finding{Fault: job.FaultUnreadable, Record: id, Detail: "state: " + err.Error() + "; register the job again"})
				continue
			}
			seen, states = append(seen, id), append(states, state)
			a.state(id, state)
		}
		if err := a.withoutDefinition(seen); err != nil {
			return err
		}
		return a.indexed(seen, states)
	})
	if err != nil {
		return err
	}
	return a.withoutState()
}

func (a *audit) state(id string, s job.State) {
	a.report.Records[s.Region]++
	a.lanes[s.Lane] = true
	if _, child, _ := job.ParseRecord(id); isRun(child) {
		slot, _ := job.ChildSlot(child)
		a.runs[job.ParentOf(id)] |= 1 << slot
	} else if child == "" && s.Children != 0 {
		a.slots[id] = s.Children
	}
	if err := s.Check(); err != nil && !isChild(id) {
		a.find(job.Finding{Fault: job.FaultState, Record: id, Lane: s.Lane.String(), Detail: err.Error()})
	}
}

// withoutDefinition looks at those of which the scan of definitions, which came
// before, has seen none: most are newer than it.
func (a *audit) withoutDefinition(ids []string) error {
	var doubtful []string
	for _, id := range ids {
		if a.defined[definedBy(id)] || a.unusable[id] {
			continue
		}
		doubtful = append(doubtful, id)
	}
	raw, err := a.rawInSteps(doubtful)
	if err != nil {
		return err
	}
	for i, r := range raw {
		if r.hasState && !r.hasDef {
			a.unusable[doubtful[i]] = true
			a.find(job.Finding{Fault: job.FaultNoDefinition, Record: doubtful[i], Detail: "register the job again, or delete it"})
		}
	}
	return nil
}

func (a *audit) withoutState() error {
	var doubtful []string
	for id := range a.defined {
		doubtful = append(doubtful, id)
	}
	slices.Sort(doubtful)
	for ids := range slices.Chunk(doubtful, auditStep) {
		// A job is created and deleted as a whole, so a state that is missing on both
		// sides of a definition is missing.
		first := a.readFields(a.shard, a.keys.state, ids)
		if err := a.perform(a.ctx, first); err != nil {
			return err
		}
		var missing []string
		for i, id := range ids {
			if !first.reply.has(i) {
				missing = append(missing, id)
			}
		}
		raw, err := a.rawInSteps(missing)
		if err != nil {
			return err
		}
		again := a.readFields(a.shard, a.keys.state, missing)
		if len(missing) == 0 {
			continue
		}
		if err := a.perform(a.ctx, again); err != nil {
			return err
		}
		for i, r := range raw {
			if !r.hasState && r.hasDef && !again.reply.has(i) {
				a.find(job.Finding{Fault: job.FaultNoState, Record: missing[i], Detail: "register the job again"})
			}
		}
	}
	return nil
}

func (a *audit) rawInSteps(ids []string) ([]rawRecord, error) {
	var all []rawRecord
	for step := range slices.Chunk(ids, auditStepLarge) {
		raw, err := a.readRaw(a.ctx, a.shard, step)
		if err != nil {
			return nil, err
		}
		all = append(all, raw...)
	}
	return all, nil
}

// indexed compares the entries that states should have with those that there are.
func (a *audit) indexed(ids []string, states []job.State) error {
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

func (a *audit) scoreOp(lane job.Lane, id string) *op {
	key := a.keys.laneKey(lane)
	return command("zscore", key, "zscore", key, id)
}

// agrees tells whether an entry is in the region of the state.
func agrees(s job.State, o *op) bool {
	region, _ := job.SplitScore(score(o.reply.at(0)))
	return o.reply.at(0) != nil && region == s.Region
}

// lookAgain reads state, entry and state, in this order, until the state stood
// still: only then was the entry read at an instant of which the state is known.
func (a *audit) lookAgain(id string) error {
	for range auditLooks {
		before, err := a.stateText(id)
		if err != nil || before == "" {
			return err
		}
		s, err := decodeState(id, before)
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

func (a *audit) stateText(id string) (string, error) {
	o := a.readFields(a.shard, a.keys.state, []string{id})
	err := a.perform(a.ctx, o)
	return o.reply.text(0), err
}

func (a *audit) wrongEntry(id string, s job.State, o *op) error {
	f := job.Finding{Fault: job.FaultIndexRegion, Record: id, Lane: s.Lane.String()}
	if o.reply.at(0) == nil {
		f.Fault, f.Detail = job.FaultIndexMissing, fmt.Sprintf("its state is %s", s.Region)
	} else {
		region, _ := job.SplitScore(score(o.reply.at(0)))
		f.Detail = fmt.Sprintf("its state is %s, its entry %s", s.Region, region)
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

// families compares what jobs and their runs say of each other. Both are read
// again, the job on both sides.
func (a *audit) families() error {
	doubtful := map[string]bool{}
	for parent, slots := range a.slots {
		if a.runs[parent] != slots {
			doubtful[parent] = true
		}
	}
	for parent, slots := range a.runs {
		if a.slots[parent] != slots {
			doubtful[parent] = true
		}
	}
	for _, parent := range slices.Sorted(maps.Keys(doubtful)) {
		if err := a.family(parent); err != nil {
			return err
		}
	}
	return nil
}

func (a *audit) family(parent string) error {
	records := []string{parent}
	for slot := range job.MaxConcurrentRuns {
		records = append(records, job.ChildRecord(parent, slot))
	}
	for range auditLooks {
		before, err := a.stateText(parent)
		if err != nil {
			return err
		}
		o := a.readFields(a.shard, a.keys.state, records)
		if err := a.perform(a.ctx, o); err != nil {
			return err
		}
		if o.reply.text(0) != before {
			continue // one command, but not one instant with what was read before
		}
		runs := uint64(0)
		for slot := range job.MaxConcurrentRuns {
			if o.reply.has(slot + 1) {
				runs |= 1 << slot
			}
		}
		s, err := decodeState(parent, before)
		if before == "" {
			s, err = job.State{}, nil
		}
		if err == nil && s.Children != runs {
			a.find(job.Finding{Fault: job.FaultRuns, Record: parent, Detail: fmt.Sprintf("it says that slots %b are taken; there are runs in %b", s.Children, runs)})
		}
		return nil
	}
	return nil
}

// indexedLanes adds the lanes that only the index of lanes names.
func (a *audit) indexedLanes() error {
	heads, err := a.Lanes(a.ctx, []int{a.shard})
	for _, h := range heads[a.shard] {
		a.lanes[h.Lane] = true
	}
	return err
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
			ids := o.reply.texts()
			if len(ids) == 0 {
				break
			}
			states := a.readFields(a.shard, a.keys.state, ids)
			if err := a.perform(a.ctx, states); err != nil {
				return err
			}
			for i, id := range ids {
				if s, err := decodeState(id, states.reply.text(i)); states.reply.has(i) && (err != nil || s.Lane == lane) {
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

// isLetter: a dead letter that takes the slot of an older one leaves its entry in
// the lane that the job had then, until it is swept.
func isLetter(id string) bool {
	_, child, _ := job.ParseRecord(id)
	return child != "" && !isRun(child)
}

func (a *audit) extraEntry(id string, lane job.Lane) error {
	for range auditLooks {
		before, err := a.stateText(id)
		if err != nil {
			return err
		}
		s, err := decodeState(id, before)
		if before != "" && (err != nil || s.Lane == lane || isLetter(id)) {
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
func (a *audit) takeOut(id string, lane *job.Lane, field string) error {
	names := []string{a.keys.meta, a.keys.state, a.keys.hist, a.keys.lanes, a.keys.lock}
	place := ""
	if lane != nil {
		names, place = append(names, a.keys.laneKey(*lane)), "6"
	}
	return a.perform(a.ctx, call(a.scripts.mend, a.shard, names, []any{id, place, field}))
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
			names := []string{a.keys.meta, a.keys.state, a.keys.hist, a.keys.lanes, a.keys.lock, key}
			if err := a.perform(a.ctx, call(a.scripts.mend, a.shard, names, nil)); err != nil {
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

// histories looks for ended runs whose record is gone.
func (a *audit) histories() error {
	return a.scanHash(a.keys.hist, auditStep, func(fields, _ []string) error {
		records := make([]string, len(fields))
		for i, field := range fields {
			records[i] = field[:max(0, strings.LastIndexByte(field, '.'))]
		}
		if len(records) == 0 {
			return nil
		}
		states := a.readFields(a.shard, a.keys.state, records)
		if err := a.perform(a.ctx, states); err != nil {
			return err
		}
		for i, field := range fields {
			if states.reply.has(i) {
				continue
			}
			if err := a.orphanedRun(records[i], field); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *audit) orphanedRun(record, field string) error {
	still := a.readFields(a.shard, a.keys.hist, []string{field})
	if err := a.perform(a.ctx, still); err != nil || !still.reply.has(0) {
		return err
	}
	if text, err := a.stateText(record); err != nil || text != "" {
		return err
	}
	f := job.Finding{Fault: job.FaultHistory, Record: record, Detail: "an ended run of a record that does not exist: " + field}
	if a.repair {
		if err := a.takeOut(record, nil, field); err != nil {
			return err
		}
		f.Repaired = true
	}
	a.find(f)
	return nil
}
