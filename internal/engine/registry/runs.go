package registry

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// RunJob requests a manual run and returns the run of the request. An empty request id is generated, and the
// trace is that of the call. joined: another manual run waited already, and the request joined it.
func (r *Registry) RunJob(ctx context.Context, key job.Key,
	q job.RequestManualRun) (v job.RunView, joined bool, err error) {
	if q.RequestID == "" {
		q.RequestID = strings.ToLower(rand.Text())
	}
	if fault := job.ValidateManualID(q.RequestID); fault != "" {
		return job.RunView{}, false, job.Invalid("request_id", "%s", fault)
	}
	if q.Mode > job.ManualResetOnSuccess {
		return job.RunView{}, false, job.Invalid("backoff", "is unknown")
	}
	q.Trace = r.callerTrace(ctx)
	result, err := r.changeJob(ctx, key, q, nil)
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
		return job.RunView{}, false, r.excludedTimeError(ctx, result.Record, q)
	case job.Duplicate:
		runID, joined, _ := state.RequestedRun(q.RequestID)
		v, err = r.findEarlierRun(ctx, result.Record, runID)
		return v, joined, err
	}
	if pending, ok := state.PendingRun(); ok {
		v, err = r.viewPendingRun(ctx, result.Record, pending)
		return r.addTraceIDs(result.Record.Definition, v)[0], result.Answer == job.Joined, err
	}
	current, _ := state.CurrentRun()
	return r.addTraceIDs(result.Record.Definition, current)[0], result.Answer == job.Joined, nil
}

// excludedTimeError explains why the schedule excludes a manual run now, and what to do.
func (r *Registry) excludedTimeError(ctx context.Context, record job.Record, q job.RequestManualRun) error {
	refusal := &job.PreconditionError{Key: record.Definition.Key, Reason: job.ReasonExcludedTime}
	if q.IgnoreExclusions {
		refusal.Text = "its schedule excludes this time, and a manual run that was requested before waits until then; " +
			"cancel run " + job.ManualRunID(record.State.Pending) + " and ask again"
		return refusal
	}
	refusal.Text = "its schedule excludes this time"
	if now, err := r.shardNow(ctx, record.Definition.Key); err == nil {
		if compiled, err := job.Compile(record.Definition); err == nil {
			if until, ok := compiled.NextAllowed(now); ok && until > now {
				refusal.Text += ", until " + until.Time().UTC().Format(time.RFC3339)
			}
		}
	}
	refusal.Text += "; set ignore_exclusions (fermata jobs run --ignore-exclusions) to run it anyway"
	return refusal
}

// viewPendingRun completes the view of a waiting manual run, which may have a record of its own.
func (r *Registry) viewPendingRun(ctx context.Context, record job.Record, pending job.RunView) (job.RunView, error) {
	if record.State.Waiting == 0 {
		return pending, nil
	}
	children, err := r.readChildRuns(ctx, record)
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

// findEarlierRun finds a manual run that was requested before. If its history is not kept, all that is known
// is that it has ended.
func (r *Registry) findEarlierRun(ctx context.Context, record job.Record, runID string) (job.RunView, error) {
	v, err := r.findRun(ctx, record, runID)
	if errors.Is(err, job.ErrNotFound) {
		return job.RunView{Run: job.Run{ID: runID, Trigger: job.TriggerManual}, Phase: job.RunFinished}, nil
	}
	return v, err
}

// ListRuns lists the current run first, then the waiting manual run, then the runs beside it, then finished runs,
// newest first, then dead letters.
func (r *Registry) ListRuns(ctx context.Context, key job.Key) ([]job.RunView, error) {
	record, err := r.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return r.readRuns(ctx, record)
}

func (r *Registry) readRuns(ctx context.Context, record job.Record) ([]job.RunView, error) {
	children, err := r.readChildRuns(ctx, record)
	if err != nil {
		return nil, err
	}
	finished, err := r.readHistory(ctx, record)
	if err != nil {
		return nil, err
	}
	views := unfinishedRuns(record.State, children)
	for _, run := range finished {
		views = append(views, job.RunView{Run: run, Phase: job.RunFinished})
	}
	return r.addTraceIDs(record.Definition, views...), nil
}

// unfinishedRuns returns the runs that are planned, waiting or live.
func unfinishedRuns(s job.State, children []job.Child) []job.RunView {
	var views []job.RunView
	if v, ok := s.CurrentRun(); ok {
		views = append(views, v)
	}
	if v, ok := s.PendingRun(); ok && !isChildRun(children, v.ID) {
		views = append(views, v)
	}
	for _, c := range children {
		if v, ok := c.State.CurrentRun(); ok {
			views = append(views, v)
		}
	}
	return views
}

// GetRun returns one run of a job, or a [job.MissingError].
func (r *Registry) GetRun(ctx context.Context, key job.Key, runID string) (job.RunView, error) {
	record, err := r.Get(ctx, key)
	if err != nil {
		return job.RunView{}, missingRunError(err, key, runID)
	}
	v, err := r.findRun(ctx, record, runID)
	if err == nil {
		err = r.addOwnPayload(ctx, record, &v)
	}
	return v, err
}

func (r *Registry) findRun(ctx context.Context, record job.Record, runID string) (job.RunView, error) {
	views, err := r.readRuns(ctx, record)
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

// CancelRun ends the run with this id: a waiting run at once, a live run when its handler has returned. A
// finished run is returned as it is.
func (r *Registry) CancelRun(ctx context.Context, key job.Key, runID string) (job.RunView, error) {
	record, err := r.Get(ctx, key)
	if err != nil {
		return job.RunView{}, missingRunError(err, key, runID)
	}
	before, err := r.findRun(ctx, record, runID)
	if err != nil {
		return job.RunView{}, err
	}
	if before.Phase == job.RunFinished {
		return before, nil
	}
	if !holdsRun(record.State, runID) {
		return r.cancelChild(ctx, record, before)
	}
	result, err := r.changeJob(ctx, key, job.CancelRun{RunID: runID}, &record)
	if err != nil {
		return job.RunView{}, missingRunError(err, key, runID)
	}
	state := result.Record.State
	if result.Answer == job.NoSuchRun {
		// It ended since it was read.
		return r.GetRun(ctx, key, runID)
	}
	if now, ok := state.CurrentRun(); ok && now.ID == runID && state.Live() {
		if r.o.Canceller != nil {
			r.o.Canceller.CancelAttempt(key.Record(), state.Token)
		}
		return r.addTraceIDs(record.Definition, now)[0], nil
	}
	before.Phase, before.Outcome, before.FinishedMS = job.RunFinished, job.OutcomeCancelled, state.LastFinished
	return before, nil
}
