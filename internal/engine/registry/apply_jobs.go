package registry

import (
	"context"
	"errors"

	"github.com/fermata-io/fermata/internal/core/job"
)

// pauseNote is the note of jobs that Apply pauses.
const pauseNote = "paused by its configuration"

// ApplyJobs makes stored jobs equal to the desired jobs: those that differ are created, replaced, deleted, paused or
// resumed, each in a step of its own. A step is refused if the job does not have the etag of the desired job any
// more. A job that is equal already is left alone.
func (r *Registry) ApplyJobs(ctx context.Context, desiredJobs []job.DesiredJob, force bool) []job.ApplyResult {
	w := r.planDesiredJobs(ctx, desiredJobs, force)
	for i := range w.answers {
		if a := &w.answers[i]; a.Err == nil {
			a.Err = w.checkPrecondition(i)
		}
	}
	w.createNewJobs(ctx)
	for _, first := range []bool{true, false} {
		w.changeExistingJobs(ctx, first)
	}
	w.deleteJobs(ctx)
	return w.answers
}

// checkPrecondition refuses a desired job whose etag is not that of the stored job. A repeated one finds the job as
// its first copy left it.
func (w *applyCall) checkPrecondition(i int) error {
	desiredJob, a := &w.desiredJobs[i], &w.answers[i]
	key := desiredJob.Definition.Key
	switch {
	case a.Action == job.ApplyUnchanged:
		return nil
	case desiredJob.Delete && desiredJob.Etag == "":
		return job.Invalid("etag", "is missing: name the job that is to be deleted")
	case a.Before == nil && (desiredJob.Etag == "" || desiredJob.Delete):
		return nil
	case a.Before == nil:
		return &job.MissingError{Key: key}
	}
	have := a.Before.Definition.Etag()
	onlyPause := !desiredJob.Delete && w.matchesStored(i)
	switch {
	case have == desiredJob.Etag || onlyPause:
		return nil
	case desiredJob.Etag == "":
		return &job.ExistsError{Key: key, Reason: "it has another definition"}
	}
	return &job.EtagError{Key: key, Have: have, Want: desiredJob.Etag}
}

// createNewJobs creates the jobs that do not exist.
func (w *applyCall) createNewJobs(ctx context.Context) {
	var requests []job.CreateRequest
	var place []int
	for i, a := range w.answers {
		if a.Err == nil && a.Action == job.ApplyCreate {
			request := job.CreateRequest{Definition: w.desiredJobs[i].Definition}
			if w.desiredJobs[i].Pause {
				request.PauseNote = pauseNote
			}
			requests = append(requests, request)
			place = append(place, i)
		}
	}
	if len(requests) == 0 {
		return
	}
	for n, made := range w.r.CreateBatch(ctx, requests) {
		a := &w.answers[place[n]]
		a.Err = made.Err
		if a.Err == nil {
			a.After = new(made.Record)
		}
	}
}

// changeExistingJobs is one of two rounds that replace definitions, pause and resume. A job that is to be
// paused is paused before its definition changes, and a job that is to be resumed gets its definition first.
func (w *applyCall) changeExistingJobs(ctx context.Context, first bool) {
	var changes []job.Change
	var place []int
	covers := w.r.reachableQueues(ctx)
	w.by = w.r.callerEdit(ctx)
	for i := range w.answers {
		a := &w.answers[i]
		if a.Err != nil || a.Action != job.ApplyUpdate {
			continue
		}
		for _, ev := range w.nextEvents(i, first) {
			changes = append(changes, job.Change{Record: a.Before.Definition.Record(), Input: ev, Covers: covers})
			place = append(place, i)
		}
	}
	changes, place, settle := w.claimQuota(ctx, changes, place)
	var results []job.ChangeResult
	defer func() { settle(results) }()
	if len(changes) == 0 {
		return
	}
	results = w.r.commitChanges(ctx, changes...)
	for n, result := range results {
		w.applyResult(place[n], result)
	}
}

// claimQuota removes from the changes, and from their indexes, the definitions that are too large for the
// limit of their namespace. Call settle with the results of the others.
func (w *applyCall) claimQuota(ctx context.Context, changes []job.Change, place []int) (_ []job.Change, _ []int,
	settle func([]job.ChangeResult)) {
	var edits []definitionEdit
	of := make([]int, len(changes)) // the edit of each change, or -1
	for n, c := range changes {
		of[n] = -1
		if u, ok := c.Input.(job.Update); ok {
			of[n] = len(edits)
			edits = append(edits, definitionEdit{w.answers[place[n]].Before.Definition, u.New.Definition})
		}
	}
	claim, faults := w.r.claimQuotaForEdits(ctx, edits)
	var good []job.Change
	var places, editOf []int
	for n, c := range changes {
		if e := of[n]; e >= 0 && faults[e] != nil {
			w.answers[place[n]].Err = faults[e]
			continue
		}
		update, ok := c.Input.(job.Update)
		if ok {
			update.NoRevision = claim.withheld[of[n]]
			c.Input = update
		}
		good, places, editOf = append(good, c), append(places, place[n]), append(editOf, of[n])
	}
	return good, places, func(results []job.ChangeResult) {
		at := map[int]job.ChangeResult{}
		for n, result := range results {
			at[editOf[n]] = result
		}
		claim.settleEdits(ctx, func(i int, shrinks bool) bool {
			return faults[i] == nil && countsAsStored(at[i], at[i].Err, shrinks)
		})
	}
}

// nextEvents returns the events of a desired job in a round: in the first one to pause or else to replace the
// definition, in the second one the rest.
func (w *applyCall) nextEvents(i int, first bool) []job.Input {
	desiredJob, a := &w.desiredJobs[i], &w.answers[i]
	pauses, resumes := a.PauseChanges && desiredJob.Pause, a.PauseChanges && desiredJob.Resume
	switch {
	case pauses && first:
		return []job.Input{job.Pause{Note: pauseNote}}
	case resumes && !first:
		return []job.Input{job.Resume{}}
	case w.matchesStored(i) || first == pauses:
		return nil
	}
	d := *w.desired[i]
	a.Err = w.sealPayload(i, &d)
	if a.Err != nil {
		return nil
	}
	compiled, err := job.Compile(&d)
	if err != nil {
		a.Err = job.Invalid("job.schedule", "%v", err)
		return nil
	}
	return []job.Input{job.Update{New: compiled, Base: a.Before.Definition.Etag(), By: w.by}}
}

// matchesStored reports whether the stored definition is equal to the desired job. It is not if a payload has to be
// sealed and is not, or if the desired job has values of policies from other sources.
func (w *applyCall) matchesStored(i int) bool {
	d := w.desired[i]
	unsealed := d.PayloadKey == "" && !w.desiredJobs[i].AsRead && w.r.requiresSealing()
	return w.answers[i].Before.Definition.Equal(d) && !unsealed && !w.changesSources[i]
}

// sealPayload seals the payload of a desired definition, or keeps the stored one.
func (w *applyCall) sealPayload(i int, d *job.Definition) error {
	if w.desiredJobs[i].AsRead || d.PayloadKey != "" {
		return w.r.keepStoredPayload(d, w.answers[i].Before.Definition)
	}
	w.r.sealPayload(d, d.Payload)
	return nil
}

func (w *applyCall) applyResult(i int, result job.ChangeResult) {
	a := &w.answers[i]
	key := w.desiredJobs[i].Definition.Key
	switch {
	case errors.Is(result.Err, job.ErrNotFound), result.Err == nil && result.Record.State.Deleting:
		a.Err = &job.MissingError{Key: key}
	case result.Err != nil:
		a.Err = result.Err
	default:
		a.Err = w.checkOutcome(i, result)
	}
}

// checkOutcome answers a change by the stored job, which others may have changed since it was read.
func (w *applyCall) checkOutcome(i int, result job.ChangeResult) error {
	a := &w.answers[i]
	if err := w.desiredJobs[i].Allowed(result.Record.Definition); err != nil {
		a.Before, a.After = nil, nil
		return err
	}
	if result.Answer == job.Stale && !w.r.matchesDefinition(w.desired[i], result.Record.Definition) {
		return &job.EtagError{Key: w.desiredJobs[i].Definition.Key, Have: result.Record.Definition.Etag(),
			Want: a.Before.Definition.Etag()}
	}
	a.After = &result.Record // stored by this call, its first copy, or another caller
	return nil
}

// deleteJobs deletes jobs.
func (w *applyCall) deleteJobs(ctx context.Context) {
	var changes []job.Change
	var place []int
	for i, a := range w.answers {
		if a.Err == nil && a.Action == job.ApplyDelete && a.Before != nil {
			changes = append(changes, job.Change{Record: a.Before.Definition.Record(),
				Input: job.Delete{Base: w.desiredJobs[i].Etag}, Covers: w.r.reachableQueues(ctx)})
			place = append(place, i)
		}
	}
	if len(changes) == 0 {
		return
	}
	var deleted []*job.Definition
	for n, result := range w.r.commitChanges(ctx, changes...) {
		a := &w.answers[place[n]]
		switch {
		case errors.Is(result.Err, job.ErrNotFound):
		case result.Err != nil:
			a.Err = result.Err
		case result.Answer == job.Stale:
			a.Err = w.desiredJobs[place[n]].Allowed(result.Record.Definition)
			if a.Err != nil {
				a.Before = nil
				continue
			}
			a.Err = &job.EtagError{Key: a.Before.Definition.Key, Have: result.Record.Definition.Etag(),
				Want: w.desiredJobs[place[n]].Etag}
		case !result.Deleted:
			a.Err = w.r.cancelUnstartedRuns(ctx, result.Record)
		default:
			deleted = append(deleted, deletedDefinition(a.Before.Definition.Key, &result))
		}
	}
	w.r.returnDeleted(ctx, deleted...)
}

// matchesDefinition reports whether a definition is equal to the stored one, sealed or not.
func (r *Registry) matchesDefinition(d, stored *job.Definition) bool {
	aligned := *d
	r.reuseStoredPayload(&aligned, stored)
	aligned.KeepFirstDay(stored)
	return stored.Equal(&aligned)
}
