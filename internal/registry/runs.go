package registry

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/fermata-io/fermata/internal/job"
)

// RunNow asks for a manual run and returns the run that the request stands for.
// joined tells that another manual run already waited and this is one with it.
func (r *Registry) RunNow(ctx context.Context, key job.Key, requestID string) (v job.RunView, joined bool, err error) {
	if requestID == "" {
		requestID = strings.ToLower(rand.Text())
	}
	if fault := job.ValidateManualID(requestID); fault != "" {
		return job.RunView{}, false, job.Invalid("request_id", "%s", fault)
	}
	result, err := r.change(ctx, key, job.RunNow{RequestID: requestID}, nil)
	if err != nil {
		return job.RunView{}, false, err
	}
	state := result.Record.State
	switch result.Answer {
	case job.NoSuchRun:
		return job.RunView{}, false, &job.MissingError{Key: key}
	case job.Duplicate:
		v, err = r.ranBefore(ctx, result.Record, job.ManualRunID(requestID))
		return v, false, err
	}
	if pending, ok := state.PendingRun(); ok {
		return pending, result.Answer == job.Joined, nil
	}
	current, _ := state.CurrentRun()
	return current, result.Answer == job.Joined, nil
}

// ranBefore finds a manual run that was asked for before. When its history is not
// kept, all that is known is that it has ended.
func (r *Registry) ranBefore(ctx context.Context, record job.Record, runID string) (job.RunView, error) {
	v, err := r.find(ctx, record, runID)
	if errors.Is(err, job.ErrNotFound) {
		return job.RunView{Run: job.Run{ID: runID, Trigger: job.TriggerManual}, Phase: job.RunFinished}, nil
	}
	return v, err
}

// Runs lists the current run first, then the manual run that waits, then
// finished runs, newest first, then dead letters.
func (r *Registry) Runs(ctx context.Context, key job.Key) ([]job.RunView, error) {
	record, err := r.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return r.runs(ctx, record)
}

func (r *Registry) runs(ctx context.Context, record job.Record) ([]job.RunView, error) {
	finished, err := r.o.Store.Runs(ctx, record.Definition.Key, record.Definition.HistoryLimit)
	if err != nil {
		return nil, err
	}
	views := make([]job.RunView, 0, len(finished)+2)
	if v, ok := record.State.CurrentRun(); ok {
		views = append(views, v)
	}
	if v, ok := record.State.PendingRun(); ok {
		views = append(views, v)
	}
	for _, run := range finished {
		views = append(views, job.RunView{Run: run, Phase: job.RunFinished})
	}
	return views, nil
}

// Run returns one run of a job, or a [job.MissingError].
func (r *Registry) Run(ctx context.Context, key job.Key, runID string) (job.RunView, error) {
	record, err := r.Get(ctx, key)
	if err != nil {
		return job.RunView{}, missingRun(err, key, runID)
	}
	return r.find(ctx, record, runID)
}

func (r *Registry) find(ctx context.Context, record job.Record, runID string) (job.RunView, error) {
	views, err := r.runs(ctx, record)
	if err != nil {
		return job.RunView{}, err
	}
	for _, v := range views {
		if v.ID == runID {
			return v, nil
		}
	}
	return job.RunView{}, &job.MissingError{Key: record.Definition.Key, RunID: runID}
}

// Cancel ends the run of this id: a waiting one at once, a live one when its
// handler has given up. A run that has finished is returned as it is.
func (r *Registry) Cancel(ctx context.Context, key job.Key, runID string) (job.RunView, error) {
	record, err := r.Get(ctx, key)
	if err != nil {
		return job.RunView{}, missingRun(err, key, runID)
	}
	before, err := r.find(ctx, record, runID)
	if err != nil {
		return job.RunView{}, err
	}
	if before.Phase == job.RunFinished {
		return before, nil
	}
	result, err := r.change(ctx, key, job.CancelRun{RunID: runID}, &record)
	if err != nil {
		return job.RunView{}, missingRun(err, key, runID)
	}
	state := result.Record.State
	if result.Answer == job.NoSuchRun {
		// It ended since it was read.
		return r.Run(ctx, key, runID)
	}
	if now, ok := state.CurrentRun(); ok && now.ID == runID && state.Live() {
		if r.o.Canceller != nil {
			r.o.Canceller.CancelAttempt(key.Record(), state.Token)
		}
		return now, nil
	}
	before.Phase, before.Outcome, before.FinishedMS = job.RunFinished, job.OutcomeCancelled, state.LastFinished
	return before, nil
}
