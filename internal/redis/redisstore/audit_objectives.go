package redisstore

import (
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
)

// watched compares the entries of the index of objectives that states should have with those
// that there are.
func (a *audit) watched(ids []job.RecordID, states []job.State) error {
	var suspects []job.RecordID
	var instants []int64
	var ops []*op
	for i, id := range ids {
		if at := a.breaksAt(id, &states[i]); at != 0 {
			suspects, instants, ops = append(suspects, id), append(instants, at), append(ops, a.objectiveOp(id))
		}
	}
	if err := a.perform(a.ctx, ops...); err != nil {
		return err
	}
	for i, id := range suspects {
		if inTime(ops[i], instants[i]) {
			continue
		}
		if err := a.watchedNow(id); err != nil {
			return err
		}
	}
	return nil
}

// breaksAt is when the run of a record that waits breaks its objective; 0: there is nothing
// to be found. What a version that keeps no such index decided last is as it should be, and
// is brought in by a repair.
func (a *audit) breaksAt(id job.RecordID, s *job.State) int64 {
	if s.Region != job.RegionDue || a.unusable[id] || !s.Watched() && !a.repair {
		return 0
	}
	d := job.Definition{MaxLag: a.maxLag[definedBy(id)]}
	return d.BreaksAt(s)
}

func (a *audit) objectiveOp(id job.RecordID) *op {
	return command("zscore", a.keys.objectives, "zscore", a.keys.objectives, string(id))
}

func inTime(o *op, at int64) bool { return o.reply.at(0) != nil && score(o.reply.at(0)) <= at }

// watchedNow reads state, entry and state until the state stood still, as lookAgain does.
func (a *audit) watchedNow(id job.RecordID) error {
	for range auditLooks {
		before, err := a.stateText(id)
		if err != nil || before == "" {
			return err
		}
		s, err := codec.DecodeState(id, before)
		if err != nil {
			return nil
		}
		o := a.objectiveOp(id)
		if err := a.perform(a.ctx, o); err != nil {
			return err
		}
		after, err := a.stateText(id)
		at := a.breaksAt(id, &s)
		if err != nil || at == 0 || inTime(o, at) {
			return err
		}
		if before == after {
			return a.unwatched(id, s, at)
		}
	}
	return nil
}

func (a *audit) unwatched(id job.RecordID, s job.State, at int64) error {
	f := job.Finding{
		Fault: job.FaultObjective, Record: id, Lane: s.Lane.String(),
		Detail: fmt.Sprintf("its objective is not looked at by %s", dueText(at)),
	}
	if a.repair {
		move := job.ObjectiveMove{Objective: job.Objective{Record: id, Known: &job.Record{State: s}}, ToMS: at}
		if err := a.MoveObjectives(a.ctx, a.shard, []job.ObjectiveMove{move}); err != nil {
			return err
		}
		f.Repaired = true
	}
	a.find(f)
	return nil
}
