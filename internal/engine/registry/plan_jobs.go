package registry

import (
	"context"
	"errors"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Bounds of what one call reads: jobs in one go, and bytes of payloads in all, so that
// the answer is a message of common size.
const (
	readAtOnce = 32
	maxRead    = 6 << 20
)

// PlanJobs returns what Apply would do about up to MaxBatch desired jobs, with all their errors. It changes
// nothing. Two desired states for one job are refused.
func (r *Registry) PlanJobs(ctx context.Context, desiredJobs []job.DesiredJob, force bool) []job.ApplyResult {
	w := r.planDesiredJobs(ctx, desiredJobs, force)
	for i := range w.answers {
		switch a := &w.answers[i]; {
		case desiredJobs[i].Delete:
			a.Err = job.Invalid("delete", "is for ApplyJobs only")
		case a.Err == nil && a.Action == job.ApplyCreate && w.hasEnded(i):
			a.Action = job.ApplyPassed
		}
	}
	return w.answers
}

// applyCall is the state of one PlanJobs or Apply call.
type applyCall struct {
	r              *Registry
	desiredJobs    []job.DesiredJob
	answers        []job.ApplyResult
	desired        []*job.Definition // complete definitions, as they would be stored
	changesSources []bool            // the same values would come from other sources
	by             job.Edit
	now            unixtime.Milli
	limits         job.Limits // with the work of the call
}

// planDesiredJobs compares desired jobs with the stored jobs.
func (r *Registry) planDesiredJobs(ctx context.Context, desiredJobs []job.DesiredJob, force bool) *applyCall {
	w := &applyCall{r: r, desiredJobs: desiredJobs, answers: make([]job.ApplyResult, len(desiredJobs)),
		desired: make([]*job.Definition, len(desiredJobs)), changesSources: make([]bool, len(desiredJobs)),
		limits: r.limitsForSearch()}
	if len(desiredJobs) > MaxBatch {
		return w.failAll(job.Invalid("desired_jobs", "has %d entries, at most %d are allowed", len(desiredJobs), MaxBatch))
	}
	present, err := w.readPresentJobs(ctx)
	if err != nil {
		return w.failAll(err)
	}
	for i := range desiredJobs {
		a := &w.answers[i]
		if a.Err != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return w.failAll(err) // the caller has gone
		}
		a.Err = w.setPresentJob(i, present[desiredJobs[i].Definition.Key])
		if a.Err != nil {
			continue
		}
		if a.Before != nil && a.Before.State.Deleting {
			renaming := a.Before.State.Rename != nil
			a.Before, a.Err = nil, &job.BusyError{Key: desiredJobs[i].Definition.Key, Renaming: renaming}
			if desiredJobs[i].Delete {
				a.Action, a.Err = job.ApplyDelete, nil
			}
			continue
		}
		if desiredJobs[i].Delete {
			a.Action = job.ApplyDelete
			continue
		}
		a.Err = w.compareDefinition(i, force)
	}
	return w
}

// setPresentJob sets the stored job of a desired job, nil if there is none, unless the desired job may not change it.
func (w *applyCall) setPresentJob(i int, present *job.Record) error {
	if present == nil {
		return w.desiredJobs[i].Allowed(nil)
	}
	if err := w.desiredJobs[i].Allowed(present.Definition); err != nil {
		return err
	}
	w.answers[i].Before = present
	return nil
}

func (w *applyCall) failAll(err error) *applyCall {
	for i := range w.answers {
		if w.answers[i].Err == nil {
			w.answers[i].Err = err
		}
	}
	return w
}

// readPresentJobs reads the stored jobs, and the time. All shards have nearly the same time: one of them is
// precise enough to validate a definition, which is validated again when it is stored.
func (w *applyCall) readPresentJobs(ctx context.Context) (map[job.Key]*job.Record, error) {
	present := map[job.Key]*job.Record{}
	var keys []job.Key
	for i := range w.desiredJobs {
		key := w.desiredJobs[i].Definition.Key
		if v := job.ValidateKey(key); len(v) > 0 {
			w.answers[i].Err = desiredJobError(&w.desiredJobs[i], v)
			continue
		}
		if _, twice := present[key]; twice {
			w.answers[i].Err = job.Invalid("job_id", "%q is named twice", key.ID)
			continue
		}
		present[key] = nil
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return present, nil
	}
	var err error
	w.now, err = w.r.o.Store.Now(ctx, w.r.o.Store.ShardOf(keys[0]))
	if err != nil {
		return nil, err
	}
	size := 0
	for part := range slices.Chunk(keys, readAtOnce) {
		records, err := w.r.o.Store.Get(ctx, part)
		if err != nil {
			return nil, err
		}
		for i, record := range records {
			present[part[i]] = record
			if record != nil {
				size += record.ResponseSize()
			}
		}
		if size > maxRead && len(keys) > 1 {
			return nil, job.ErrTooLarge
		}
	}
	return present, nil
}

// compareDefinition completes the definition of a desired job and decides the action.
func (w *applyCall) compareDefinition(i int, force bool) error {
	desiredJob, a := &w.desiredJobs[i], &w.answers[i]
	if a.Before == nil {
		desiredJob.Definition.MarkAsOwn(desiredJob.Doubtful)
	}
	d := desiredJob.Definition
	if a.Before == nil {
		d.Generation, d.Revision = 1, 1
		d.AnchorMS, d.CreatedMS, d.UpdatedMS = w.now, w.now, w.now
		if desiredJob.AsRead {
			return job.Invalid("job.payload_sealed",
				"there is no such job whose payload it could keep; give the payload itself")
		}
	} else {
		present := a.Before.Definition
		d = keepBookkeeping(d, present)
		if desiredJob.Refresh {
			w.changesSources[i] = d.PolicySources() != present.PolicySources()
		} else {
			w.changesSources[i] = d.KeepSources(present, desiredJob.Doubtful)
		}
		a.PayloadHidden = desiredJob.HidesPayload(present)
		switch {
		case desiredJob.AsRead:
			d.Payload, d.PayloadKey = present.Payload, present.PayloadKey
		case !a.PayloadHidden:
			w.r.reuseStoredPayload(&d, present)
		}
	}
	var stored *job.Definition
	if a.Before != nil {
		stored = a.Before.Definition
	}
	replaced := stored
	if stored != nil && desiredJob.HidesStored(stored) {
		replaced = nil // a payload that is kept is not checked, by which it could be guessed
	}
	if v := append(job.Validate(&d, w.limits), w.r.payloadFaults(&d, replaced, w.limits)...); len(v) > 0 ||
		desiredJob.Err != nil {
		return desiredJobError(desiredJob, v)
	}
	if a.PayloadHidden {
		d.Payload, d.PayloadKey = stored.Payload, stored.PayloadKey
	}
	if _, err := job.Compile(&d); err != nil {
		return job.Invalid("job.schedule", "%v", err)
	}
	shown := d
	if stored != nil && !d.Schedule.SamePhase(stored.Schedule) {
		shown.AnchorMS = w.now // as the edit will have it
	}
	w.desired[i], a.After = &d, &job.Record{Definition: &shown}
	if a.Before == nil {
		a.Action, a.PauseChanges = job.ApplyCreate, desiredJob.Pause
		return nil
	}
	if err := job.MayTakeOwnership(a.Before.Definition, &d); err != nil && !force {
		return err
	}
	a.After.State = a.Before.State
	paused := a.Before.State.Paused
	a.PauseChanges = desiredJob.Pause && !paused || desiredJob.Resume && paused
	a.Action = job.ApplyUnchanged
	if a.PauseChanges || !w.matchesStored(i) {
		a.Action = job.ApplyUpdate
	}
	return nil
}

// desiredJobError returns all errors of a desired job: those of reading it, and the violations of bounds.
func desiredJobError(desiredJob *job.DesiredJob, v []job.Violation) error {
	var unread *job.InvalidError
	if errors.As(desiredJob.Err, &unread) {
		v = append(slices.Clone(unread.Violations), v...)
	} else if desiredJob.Err != nil {
		return desiredJob.Err
	}
	return &job.InvalidError{Violations: v}
}

// hasEnded reports whether the schedule of a job that does not exist has no times left: the job has run, and
// was removed after its retention.
func (w *applyCall) hasEnded(i int) bool {
	d := w.answers[i].After.Definition
	if d.Schedule.Kind == schedule.KindOnce {
		return !d.Schedule.At.After(w.now.Time())
	}
	end := d.Schedule.EndAt
	return !end.IsZero() && !end.After(w.now.Time())
}
