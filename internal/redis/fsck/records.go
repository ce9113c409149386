package fsck

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

func (a *check) checkDefinitions() error {
	return a.scanHash(a.keys.Def, smallStepSize, func(ids, defs []string) error {
		for i, field := range ids {
			id := job.RecordID(field)
			a.defined[id] = false
			d, err := codec.DecodeDefinition(id, defs[i])
			switch {
			case err != nil:
				a.unusable[id] = true
				a.addFinding(job.Finding{Fault: job.FaultUnreadable, Record: id,
					Detail: "definition: " + err.Error() + "; register the job again"})
			case d.MaxLag > 0:
				a.maxLag[id] = d.MaxLag
			}
		}
		return nil
	})
}

func (a *check) checkStates() error {
	err := a.scanHash(a.keys.State, stepSize, func(ids, texts []string) error {
		var seen []job.RecordID
		var states []job.State
		for i, field := range ids {
			id := job.RecordID(field)
			if _, ok := a.defined[id]; ok {
				a.defined[id] = true
			}
			state, err := codec.DecodeState(id, texts[i])
			if err != nil {
				a.unusable[id] = true
				a.addFinding(job.Finding{Fault: job.FaultUnreadable, Record: id,
					Detail: "state: " + err.Error() + "; register the job again"})
				continue
			}
			seen, states = append(seen, id), append(states, state)
			a.checkState(id, state)
		}
		if err := a.checkMissingDefinitions(seen); err != nil {
			return err
		}
		if err := a.checkRunPayloads(seen, states); err != nil {
			return err
		}
		if err := a.checkIndexEntries(seen, states); err != nil {
			return err
		}
		return a.checkObjectives(seen, states)
	})
	if err != nil {
		return err
	}
	return a.checkMissingStates()
}

func (a *check) checkState(id job.RecordID, s job.State) {
	a.report.Records[s.Region]++
	a.lanes[s.Lane] = true
	if s.Rename != nil {
		a.renaming[id] = *s.Rename
	}
	if slot, ok := id.RunSlot(); ok {
		a.runs[id.Job()] |= 1 << slot
	} else if id.IsJob() && s.Children != 0 {
		a.slots[id] = s.Children
	}
	if err := s.Check(); err != nil && id.IsJob() {
		a.addFinding(job.Finding{Fault: job.FaultState, Record: id, Lane: s.Lane.String(), Detail: err.Error()})
	}
}

// checkMissingDefinitions rereads records whose definition the earlier scan did not see. Most are newer
// than that scan.
func (a *check) checkMissingDefinitions(ids []job.RecordID) error {
	var doubtful []job.RecordID
	for _, id := range ids {
		if _, ok := a.defined[id.DefinedBy()]; !ok && !a.unusable[id] {
			doubtful = append(doubtful, id)
		}
	}
	parts, err := a.readParts(doubtful, a.store.StoredParts)
	if err != nil {
		return err
	}
	for i, p := range parts {
		if p.State && !p.Definition {
			a.unusable[doubtful[i]] = true
			a.addFinding(job.Finding{Fault: job.FaultNoDefinition, Record: doubtful[i],
				Detail: "register the job again, or delete it"})
		}
	}
	return nil
}

// checkMissingStates rereads definitions whose state was not seen: of jobs, and of runs with a payload of their own,
// which may have ended. State and definition are read at one instant.
func (a *check) checkMissingStates() error {
	var doubtful []job.RecordID
	for id, seen := range a.defined {
		if !seen {
			doubtful = append(doubtful, id)
		}
	}
	slices.Sort(doubtful)
	parts, err := a.readParts(doubtful, a.store.StoredOwnParts)
	if err != nil {
		return err
	}
	for i, p := range parts {
		if !p.State && p.Definition {
			a.addFinding(job.Finding{Fault: job.FaultNoState, Record: doubtful[i], Detail: "register the job again"})
		}
	}
	return nil
}

// readParts reads which parts of records are stored. Both parts of a record are read at one instant.
func (a *check) readParts(ids []job.RecordID, read func(context.Context, int, []job.RecordID) ([]redisstore.StoredParts,
	error)) ([]redisstore.StoredParts, error) {
	var all []redisstore.StoredParts
	for step := range slices.Chunk(ids, smallStepSize) {
		parts, err := read(a.ctx, a.shard, step)
		if err != nil {
			return nil, err
		}
		all = append(all, parts...)
	}
	return all, nil
}

// checkFamilies compares jobs with their runs that are records of their own.
func (a *check) checkFamilies() error {
	doubtful := map[job.RecordID]bool{}
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
		if err := a.recheckFamily(parent); err != nil {
			return err
		}
	}
	return nil
}

// recheckFamily reads a job and all its runs again, by one command: at one instant.
func (a *check) recheckFamily(parent job.RecordID) error {
	records := []job.RecordID{parent}
	for slot := range job.MaxConcurrentRuns {
		records = append(records, parent.Run(slot))
	}
	o := runner.NewFieldsRead(a.shard, a.keys.State, records)
	if err := a.runner.Run(a.ctx, o); err != nil {
		return err
	}
	runs, said := uint64(0), uint64(0)
	for slot := range job.MaxConcurrentRuns {
		if o.Reply.HasTextAt(slot + 1) {
			runs |= 1 << slot
		}
	}
	if o.Reply.HasTextAt(0) {
		s, err := codec.DecodeState(parent, o.Reply.TextAt(0))
		if err != nil {
			return nil // already reported
		}
		said = s.Children
	}
	if said != runs {
		a.addFinding(job.Finding{Fault: job.FaultRuns, Record: parent,
			Detail: fmt.Sprintf("it says that slots %b are taken; there are runs in %b", said, runs)})
	}
	return nil
}
