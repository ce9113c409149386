package registry

import (
	"context"
	"errors"

	"github.com/fermata-io/fermata/internal/core/job"
)

// mergeTries is the maximum number of merges of an edit without an etag. An edit is merged again if another
// one was stored meanwhile.
const mergeTries = 8

// Update changes the definition of a job. Its errors are [job.EtagError] if the etag differs,
// [job.InvalidError], [job.MissingError], or [job.ErrConflict] if others kept editing, or if the merges took
// the work that a call may take.
func (r *Registry) Update(ctx context.Context, u job.UpdateRequest) (job.Record, error) {
	if fault := job.ValidateRequestID(u.RequestID); fault != "" {
		return job.Record{}, job.Invalid("request_id", "%s", fault)
	}
	turns := takeTurnsAside(ctx)
	defer turns.finish()
	limits, endTurn := r.limitsInTurns(ctx, u.Key.Namespace, new(scheduleWork), turns)
	defer endTurn()
	rejoin := func() error {
		endTurn()
		return turns.rejoin(ctx)
	}
	for range mergeTries {
		record, done, err := r.tryUpdate(ctx, u, limits, rejoin)
		if done || err != nil {
			return record, err
		}
		if limits.Work.Exhausted() {
			break
		}
	}
	return job.Record{}, job.ErrConflict
}

// tryUpdate merges once; done is false if the definition changed meanwhile.
func (r *Registry) tryUpdate(ctx context.Context, u job.UpdateRequest, limits job.Limits,
	rejoin func() error) (_ job.Record, done bool, _ error) {
	record, err := r.Get(ctx, u.Key)
	if err != nil {
		return job.Record{}, false, err
	}
	present := record.Definition
	if u.Check != nil {
		if err := u.Check(*present); err != nil {
			return job.Record{}, false, err
		}
	}
	if present.UpdateRequestIDs.Has(u.RequestID) {
		return record, true, nil
	}
	if have := present.Etag(); u.Etag != "" && u.Etag != have {
		return job.Record{}, false, &job.EtagError{Key: u.Key, Have: have, Want: u.Etag}
	}
	merged, err := u.Merge(*present)
	if err != nil {
		return job.Record{}, false, err
	}
	unknown := merged.Unknown
	merged = keepBookkeeping(merged, present)
	if u.Restores {
		merged.Unknown = unknown
	}
	if u.Reseal {
		if done, err := r.resealPayload(&merged); done || err != nil {
			return record, true, err
		}
	} else if err := r.prepareEdit(&merged, present, u, limits); err != nil {
		return job.Record{}, false, err
	}
	err = rejoin()
	if err != nil {
		return job.Record{}, false, err
	}
	compiled, err := job.Compile(&merged)
	if err != nil {
		return job.Record{}, false, job.Invalid("job.schedule", "%v", err)
	}
	return r.replaceDefinition(ctx, u, record, compiled)
}

// replaceDefinition stores a definition in place of that of a record; done is false if the stored one changed
// meanwhile. Sealing a payload again is not refused by the quota of bytes.
func (r *Registry) replaceDefinition(ctx context.Context, u job.UpdateRequest, record job.Record,
	compiled *job.Compiled) (_ job.Record, done bool, _ error) {
	var edits []definitionEdit
	if !u.Reseal {
		edits = []definitionEdit{{record.Definition, compiled.Definition}}
	}
	claim, faults := r.claimQuotaForEdits(ctx, edits)
	var result job.ChangeResult
	err := errors.Join(faults...)
	defer claim.settleEdits(ctx, func(i int, shrinks bool) bool {
		return faults[i] == nil && countsAsStored(result, err, shrinks)
	})
	if err == nil {
		event := job.Update{New: compiled, RequestID: u.RequestID, Base: record.Definition.Etag(),
			By: r.callerEdit(ctx), Reseal: u.Reseal, NoRevision: claim.withheld[0]}
		result, err = r.changeJob(ctx, u.Key, event, &record)
	}
	if err != nil {
		return job.Record{}, false, err
	}
	return result.Record, result.Answer != job.Stale, nil
}

// prepareEdit validates a definition that is to replace the present one, and seals its payload or keeps a stored
// one.
func (r *Registry) prepareEdit(merged, present *job.Definition, u job.UpdateRequest, limits job.Limits) error {
	from := present
	switch {
	case u.Restores:
		from = new(*merged)
	case !u.KeepsPayload:
		r.reuseStoredPayload(merged, present)
	}
	if v := append(job.Validate(merged, limits), r.payloadFaults(merged, present, limits)...); len(v) > 0 {
		return &job.InvalidError{Violations: v}
	}
	if u.KeepsPayload || merged.PayloadKey != "" {
		return r.keepStoredPayload(merged, from)
	}
	if !u.NamesBoundFields {
		if err := r.authenticateDefinition(from); err != nil {
			return err
		}
	}
	r.sealPayload(merged, merged.Payload)
	return nil
}

// keepBookkeeping keeps the fields that clients cannot set.
func keepBookkeeping(d job.Definition, present *job.Definition) job.Definition {
	d.Key = present.Key
	d.Generation, d.AnchorMS, d.Revision = present.Generation, present.AnchorMS, present.Revision
	d.CreatedMS, d.UpdatedMS = present.CreatedMS, present.UpdatedMS
	d.CreateRequestID, d.UpdateRequestIDs = present.CreateRequestID, present.UpdateRequestIDs
	d.Trace, d.Unknown, d.LastEdit = present.Trace, present.Unknown, present.LastEdit
	d.KeepFirstDay(present)
	return d
}

// Delete deletes a job. Its live runs continue until they finish; those that have not started are cancelled.
// With an etag, a job that has another one is not deleted.
func (r *Registry) Delete(ctx context.Context, key job.Key, etag string) error {
	var event job.Delete
	var known *job.Record
	if etag != "" {
		record, err := r.Get(ctx, key)
		if err != nil {
			return err
		}
		if have := record.Definition.Etag(); have != etag {
			return &job.EtagError{Key: key, Have: have, Want: etag}
		}
		event.Base, known = etag, &record
	}
	result, err := r.changeJob(ctx, key, event, known)
	switch {
	case err != nil:
		return err
	case result.Answer == job.Stale:
		return &job.EtagError{Key: key, Have: result.Record.Definition.Etag(), Want: etag}
	case !result.Deleted:
		return r.cancelUnstartedRuns(ctx, result.Record)
	}
	r.returnDeleted(ctx, deletedDefinition(key, &result))
	return nil
}

// Pause pauses a job. A note of more than [job.MaxNote] bytes is refused.
func (r *Registry) Pause(ctx context.Context, key job.Key, note string) (job.Record, error) {
	if err := validateNote(note); err != nil {
		return job.Record{}, err
	}
	result, err := r.changeJob(ctx, key, job.Pause{Note: note}, nil)
	return result.Record, err
}

func validateNote(note string) error {
	if len(note) > job.MaxNote {
		return job.Invalid("note", "has %d bytes, at most %d are allowed", len(note), job.MaxNote)
	}
	return nil
}

// Resume ends a pause. Nominal times that passed meanwhile are left out or, with catchUp, handled by the
// misfire policy.
func (r *Registry) Resume(ctx context.Context, key job.Key, catchUp bool) (job.Record, error) {
	result, err := r.changeJob(ctx, key, job.Resume{CatchUp: catchUp}, nil)
	return result.Record, err
}

// missingRunError turns the error of a missing job or run into one that names the run.
func missingRunError(err error, key job.Key, runID string) error {
	var missing *job.MissingError
	if errors.As(err, &missing) {
		return &job.MissingError{Key: key, RunID: runID}
	}
	return err
}
