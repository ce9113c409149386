package registry

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// RunNow asks for a manual run and returns the run that the request stands for. An empty
// request id is made up, and the trace is that of the call. joined tells that another
// manual run already waited and this is one with it.
func (r *Registry) RunNow(ctx context.Context, key job.Key, q job.RunNow) (v job.RunView, joined bool, err error) {
	if q.RequestID == "" {
		q.RequestID = strings.ToLower(rand.Text())
	}
	if fault := job.ValidateManualID(q.RequestID); fault != "" {
		return job.RunView{}, false, job.Invalid("request_id", "%s", fault)
	}
	if q.Mode > job.ManualResetOnSuccess {
		return job.RunView{}, false, job.Invalid("backoff", "is unknown")
	}
	q.Trace = r.caller(ctx)
	result, err := r.change(ctx, key, q, nil)
	if err != nil {
		return job.RunView{}, false, err
	}
	state := result.Record.State
	switch result.Answer {
	case job.NoSuchRun:
		return job.RunView{}, false, &job.MissingError{Key: key}
	case job.TooMany:
		return job.RunView{}, false, &job.PreconditionError{
			Key: key, Reason: job.ReasonTooManyRuns, Text: "it has no room for another run beside those it has",
		}
	case job.Excluded:
		return job.RunView{}, false, r.excludedTime(ctx, result.Record, q)
	case job.Duplicate:
		runID, joined, _ := state.AskedRun(q.RequestID)
		v, err = r.ranBefore(ctx, result.Record, runID)
		return v, joined, err
	}
	if pending, ok := state.PendingRun(); ok {
		v, err = r.waiting(ctx, result.Record, pending)
		return r.traced(result.Record.Definition, v)[0], result.Answer == job.Joined, err
	}
	current, _ := state.CurrentRun()
	return r.traced(result.Record.Definition, current)[0], result.Answer == job.Joined, nil
}

// excludedTime says why a manual run is refused that the schedule excludes, and what to do.
func (r *Registry) excludedTime(ctx context.Context, record job.Record, q job.RunNow) error {
	refusal := &job.PreconditionError{Key: record.Definition.Key, Reason: job.ReasonExcludedTime}
	if q.IgnoreExclusions {
		refusal.Text = "its schedule excludes this time, and a manual run that was asked for before waits until that is over; cancel run " +
			job.ManualRunID(record.State.Pending) + " and ask again"
		return refusal
	}
	refusal.Text = "its schedule excludes this time"
	if now, err := r.now(ctx, record.Definition.Key); err == nil {
		if compiled, err := job.Compile(record.Definition); err == nil {
			if until, ok := compiled.Clear(now); ok && until > now {
				refusal.Text += ", until " + time.UnixMilli(until).UTC().Format(time.RFC3339)
			}
		}
	}
	refusal.Text += "; set ignore_exclusions (fermata jobs run --ignore-exclusions) to run it all the same"
	return refusal
}

// waiting completes the view of a manual run that waits, if it is a record of its
// own.
func (r *Registry) waiting(ctx context.Context, record job.Record, pending job.RunView) (job.RunView, error) {
	if record.State.Waiting == 0 {
		return pending, nil
	}
	children, err := r.children(ctx, record)
	if err != nil {
		return job.RunView{}, err
	}
	for _, c := range children {
		if v, ok := c.State.CurrentRun(); ok && v.ID == pending.ID {
			return v, nil
		}
	}
	return pending, nil // it has ended already
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

// Runs lists the current run first, then the manual run that waits, then the runs
// beside it, then finished runs, newest first, then dead letters.
func (r *Registry) Runs(ctx context.Context, key job.Key) ([]job.RunView, error) {
	record, err := r.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return r.runs(ctx, record)
}

func (r *Registry) runs(ctx context.Context, record job.Record) ([]job.RunView, error) {
	children, err := r.children(ctx, record)
	if err != nil {
		return nil, err
	}
	finished, err := r.o.Store.Runs(ctx, record.Definition.Key, record.Definition.HistoryLimit)
	if err != nil {
		return nil, err
	}
	views := unfinished(record.State, children)
	for _, run := range finished {
		views = append(views, job.RunView{Run: run, Phase: job.RunFinished})
	}
	return r.traced(record.Definition, views...), nil
}

// unfinished are the runs that are planned, waiting or live.
func unfinished(s job.State, children []job.Child) []job.RunView {
	var views []job.RunView
	if v, ok := s.CurrentRun(); ok {
		views = append(views, v)
	}
	if v, ok := s.PendingRun(); ok && !isChild(children, v.ID) {
		views = append(views, v)
	}
	for _, c := range children {
		if v, ok := c.State.CurrentRun(); ok {
			views = append(views, v)
		}
	}
	return views
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
	if !owns(record.State, runID) {
		return r.cancelChild(ctx, record, before)
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
		return r.traced(record.Definition, now)[0], nil
	}
	before.Phase, before.Outcome, before.FinishedMS = job.RunFinished, job.OutcomeCancelled, state.LastFinished
	return before, nil
}
