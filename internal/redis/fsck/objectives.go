package fsck

import (
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// checkObjectives compares the index of objectives with the entries that states should have.
func (a *check) checkObjectives(ids []job.RecordID, states []job.State) error {
	var suspects []job.RecordID
	var instants []int64
	var ops []*runner.Op
	for i, id := range ids {
		if at := a.objectiveBreaksAt(id, &states[i]); at != 0 {
			suspects, instants, ops = append(suspects, id), append(instants, at), append(ops, a.objectiveOp(id))
		}
	}
	if err := a.runner.Run(a.ctx, ops...); err != nil {
		return err
	}
	for i, id := range suspects {
		if watchedInTime(ops[i], instants[i]) {
			continue
		}
		if err := a.recheckObjective(id); err != nil {
			return err
		}
	}
	return nil
}

// objectiveBreaksAt is when a waiting run breaks its objective; 0 if it needs no entry. A record that an
// older version without this index decided last needs none; a repair adds its entry.
func (a *check) objectiveBreaksAt(id job.RecordID, s *job.State) int64 {
	if s.Region != job.RegionDue || a.unusable[id] || !s.Watched() && !a.repair {
		return 0
	}
	d := job.Definition{MaxLag: a.maxLag[id.DefinedBy()]}
	return int64(d.BreachAtMS(s))
}

func (a *check) objectiveOp(id job.RecordID) *runner.Op {
	return runner.NewCommand("zscore", a.keys.Objectives, "zscore", a.keys.Objectives, string(id))
}

func watchedInTime(o *runner.Op, at int64) bool {
	return o.Reply.ValueAt(0) != nil && o.Reply.ScoreAt(0) <= at
}

// recheckObjective reads state, entry and state until the state did not change, as recheckRecord does.
func (a *check) recheckObjective(id job.RecordID) error {
	for range maxRechecks {
		before, err := a.stateText(id)
		if err != nil || before == "" {
			return err
		}
		s, err := codec.DecodeState(id, before)
		if err != nil {
			return nil
		}
		o := a.objectiveOp(id)
		if err := a.runner.Run(a.ctx, o); err != nil {
			return err
		}
		after, err := a.stateText(id)
		at := a.objectiveBreaksAt(id, &s)
		if err != nil || at == 0 || watchedInTime(o, at) {
			return err
		}
		if before == after {
			return a.reportMissingObjective(id, s, at)
		}
	}
	return nil
}

func (a *check) reportMissingObjective(id job.RecordID, s job.State, at int64) error {
	f := job.Finding{
		Fault: job.FaultObjective, Record: id, Lane: s.Lane.String(),
		Detail: fmt.Sprintf("its objective is not looked at by %s", formatDue(at)),
	}
	if a.repair {
		move := job.ObjectiveMove{
			Objective: job.Objective{Record: id, Known: &job.Record{State: s}}, ToMS: unixtime.Milli(at),
		}
		if err := a.store.MoveObjectives(a.ctx, a.shard, []job.ObjectiveMove{move}); err != nil {
			return err
		}
		f.Repaired = true
	}
	a.addFinding(f)
	return nil
}
