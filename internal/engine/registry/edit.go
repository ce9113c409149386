package registry

import (
	"context"
	"errors"

	"github.com/fermata-io/fermata/internal/core/job"
)

// mergeTries bounds how often an edit without an etag is merged again because
// somebody else edited in between.
const mergeTries = 8

// Update changes the definition of a job. It answers [job.EtagError] when the
// etag differs, [job.InvalidError], [job.MissingError], or [job.ErrConflict]
// when others kept editing, or took so much work that no call may take more.
func (r *Registry) Update(ctx context.Context, u job.UpdateRequest) (job.Record, error) {
	if fault := job.ValidateRequestID(u.RequestID); fault != "" {
		return job.Record{}, job.Invalid("request_id", "%s", fault)
	}
	limits := forCall(r.o.Limits)
	for range mergeTries {
		record, done, err := r.tryUpdate(ctx, u, limits)
		if done || err != nil {
			return record, err
		}
		if limits.Work.Spent() {
			break
		}
	}
	return job.Record{}, job.ErrConflict
}

// tryUpdate merges once; done is false when the definition changed meanwhile.
func (r *Registry) tryUpdate(ctx context.Context, u job.UpdateRequest, limits job.Limits) (_ job.Record, done bool, _ error) {
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
	merged = keepBookkeeping(merged, present)
	if u.Reseal {
		if done, err := r.reseal(&merged); done || err != nil {
			return record, true, err
		}
	} else if err := r.sealEdit(&merged, present, u.KeepsPayload, limits); err != nil {
		return job.Record{}, false, err
	}
	compiled, err := job.Compile(&merged)
	if err != nil {
		return job.Record{}, false, job.Invalid("job.schedule", "%v", err)
	}
	return r.replace(ctx, u, record, compiled)
}

// replace stores a definition in the place of the one of a record; done is false when that
// changed meanwhile. A payload that is sealed anew is not refused for its bytes.
func (r *Registry) replace(ctx context.Context, u job.UpdateRequest, record job.Record, compiled *job.Compiled) (_ job.Record, done bool, _ error) {
	var edits []edit
	if !u.Reseal {
		edits = []edit{{record.Definition, compiled.Definition}}
	}
	reserved, faults := r.reserveEdits(ctx, edits)
	var result job.ChangeResult
	err := errors.Join(faults...)
	if err == nil {
		event := job.Update{New: compiled, RequestID: u.RequestID, Base: record.Definition.Etag()}
		result, err = r.change(ctx, u.Key, event, &record)
	}
	reserved.settleEdits(ctx, func(i int, shrinks bool) bool { return faults[i] == nil && storesEdit(result, err, shrinks) })
	if err != nil {
		return job.Record{}, false, err
	}
	return result.Record, result.Answer != job.Stale, nil
}

// storesEdit reports whether a change was stored or, if that is not known, whether it counts
// as if it had been: the count may be too high until the next census, not too low.
func storesEdit(result job.ChangeResult, err error, shrinks bool) bool {
	var missing *job.MissingError
	switch {
	case err == nil:
		return result.Answer == job.Applied
	case errors.Is(err, job.ErrNotFound), errors.As(err, &missing):
		return false
	}
	return !shrinks
}

// sealEdit validates a definition that is to replace the present one, and readies its
// payload for being stored, which may be the one that it has.
func (r *Registry) sealEdit(merged, present *job.Definition, kept bool, limits job.Limits) error {
	if !kept {
		r.align(merged, present)
	}
	if v := append(job.Validate(merged, limits), r.payloadFaults(merged, present, limits)...); len(v) > 0 {
		return &job.InvalidError{Violations: v}
	}
	if kept || merged.PayloadKey != "" {
		return r.keep(merged, present)
	}
	r.seal(merged, merged.Payload)
	return nil
}

// keepBookkeeping leaves alone what clients cannot set.
func keepBookkeeping(d job.Definition, present *job.Definition) job.Definition {
	d.Key = present.Key
	d.Generation, d.AnchorMS, d.Revision = present.Generation, present.AnchorMS, present.Revision
	d.CreatedMS, d.UpdatedMS = present.CreatedMS, present.UpdatedMS
	d.CreateRequestID, d.UpdateRequestIDs = present.CreateRequestID, present.UpdateRequestIDs
	d.Trace, d.Unknown = present.Trace, present.Unknown
	d.KeepFirstDay(present)
	return d
}

// Delete removes a job; live runs are left to finish, those that have not begun are
// cancelled. An etag refuses the deletion unless the job still has it.
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
	result, err := r.change(ctx, key, event, known)
	switch {
	case err != nil:
		return err
	case result.Answer == job.Stale:
		return &job.EtagError{Key: key, Have: result.Record.Definition.Etag(), Want: etag}
	case !result.Deleted:
		return r.dropWaiting(ctx, result.Record)
	}
	deleted := result.Record.Definition
	if deleted == nil {
		deleted = &job.Definition{Key: key} // the census does the rest
	}
	r.release(ctx, deleted)
	return nil
}

// Pause holds a job. A note of more than [job.MaxNote] bytes is refused.
func (r *Registry) Pause(ctx context.Context, key job.Key, note string) (job.Record, error) {
	if err := validateNote(note); err != nil {
		return job.Record{}, err
	}
	result, err := r.change(ctx, key, job.Pause{Note: note}, nil)
	return result.Record, err
}

func validateNote(note string) error {
	if len(note) > job.MaxNote {
		return job.Invalid("note", "has %d bytes, at most %d are allowed", len(note), job.MaxNote)
	}
	return nil
}

// Resume ends a pause. What passed meanwhile is left out or, with catchUp, handed
// to the misfire policy.
func (r *Registry) Resume(ctx context.Context, key job.Key, catchUp bool) (job.Record, error) {
	result, err := r.change(ctx, key, job.Resume{CatchUp: catchUp}, nil)
	return result.Record, err
}

// missingRun turns a missing job or run into an error that names the run.
func missingRun(err error, key job.Key, runID string) error {
	var missing *job.MissingError
	if errors.As(err, &missing) {
		return &job.MissingError{Key: key, RunID: runID}
	}
	return err
}
