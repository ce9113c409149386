package registry

import (
	"context"
	"errors"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
)

// readChildRuns reads the runs of a job that have records of their own. A run that ended since the job was
// read is left out.
func (r *Registry) readChildRuns(ctx context.Context, record job.Record) ([]job.Child, error) {
	slots := record.State.ChildSlots()
	if len(slots) == 0 {
		return nil, nil
	}
	key := record.Definition.Key
	ids := make([]job.RecordID, len(slots))
	for i, slot := range slots {
		ids[i] = key.Record().Run(slot)
	}
	records, err := r.o.Store.GetRecords(ctx, r.o.Store.ShardOf(key), ids)
	if err != nil {
		return nil, err
	}
	var children []job.Child
	for i, child := range records {
		if child != nil {
			children = append(children, job.Child{Slot: slots[i], State: child.State})
		}
	}
	return children, nil
}

// holdsRun reports whether the job's own record has the run, not one of its children.
func holdsRun(s job.State, runID string) bool {
	waits := s.Pending != "" && s.Waiting == 0
	return s.HasRun() && s.RunID() == runID || waits && job.ManualRunID(s.Pending) == runID
}

func isChildRun(children []job.Child, runID string) bool {
	return slices.ContainsFunc(children, func(c job.Child) bool { return c.State.HasRun() && c.State.RunID() == runID })
}

// cancelChild cancels a run that has a record of its own.
func (r *Registry) cancelChild(ctx context.Context, record job.Record, v job.RunView) (job.RunView, error) {
	key := record.Definition.Key
	children, err := r.readChildRuns(ctx, record)
	if err != nil {
		return job.RunView{}, err
	}
	for _, child := range children {
		if child.State.RunID() != v.ID {
			continue
		}
		id := key.Record().Run(child.Slot)
		result, err := r.submitChange(ctx, key, job.Change{Record: id, Input: job.CancelRun{RunID: v.ID}})
		if err != nil && !errors.Is(err, job.ErrNotFound) {
			return job.RunView{}, err
		}
		if now, ok := result.Record.State.CurrentRun(); ok && now.ID == v.ID && result.Record.State.Live() {
			if r.o.Canceller != nil {
				r.o.Canceller.CancelAttempt(id, result.Record.State.Token)
			}
			return r.addTraceIDs(record.Definition, now)[0], nil
		}
	}
	// It has ended, by this call or before it.
	ended, err := r.GetRun(ctx, key, v.ID)
	if errors.Is(err, job.ErrNotFound) { // its history is not kept
		v.Phase, v.Outcome = job.RunFinished, job.OutcomeCancelled
		return v, nil
	}
	return ended, err
}

// cancelUnstartedRuns cancels the runs of a deleted job that have not started.
func (r *Registry) cancelUnstartedRuns(ctx context.Context, record job.Record) error {
	record.State.Children &^= record.State.Started
	children, err := r.readChildRuns(ctx, record)
	if err != nil || len(children) == 0 {
		return err
	}
	changes := make([]job.Change, len(children))
	for i, child := range children {
		changes[i] = job.Change{
			Record: record.Definition.Record().Run(child.Slot),
			Input:  job.CancelRun{RunID: child.State.RunID()},
		}
	}
	for _, result := range r.commitChanges(ctx, changes...) {
		// One that keeps changing is about to begin, and ends with that: its job is gone.
		if result.Err != nil && !errors.Is(result.Err, job.ErrNotFound) && !errors.Is(result.Err, job.ErrConflict) {
			err = errors.Join(err, result.Err)
		}
	}
	return err
}
