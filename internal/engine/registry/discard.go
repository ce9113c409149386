package registry

import (
	"context"
	"errors"
	"strconv"

	"github.com/fermata-io/fermata/internal/core/job"
)

// DiscardDeadLetter deletes the dead letter of a run: its own record or, of a one-time job, the job. A
// [job.MissingPartError] means that there is no such dead letter.
func (r *Registry) DiscardDeadLetter(ctx context.Context, record job.RecordID, runID string) error {
	if runID == "" {
		return job.Invalid("run_id", "is empty")
	}
	key := record.Key()
	parent, err := r.Get(ctx, key)
	if err != nil {
		return err
	}
	missing := &job.MissingPartError{Key: key, Collection: "deadLetters", ID: letterID(record)}
	if record.IsJob() {
		// The history may keep no runs: then the job is the only evidence.
		runs, err := r.readHistory(ctx, parent)
		if err != nil {
			return err
		}
		if len(runs) > 0 && runs[0].ID != runID {
			return missing
		}
	}
	result, err := r.submitChange(ctx, key, job.Change{Record: record, Input: job.Discard{RunID: runID}})
	switch {
	case errors.Is(err, job.ErrNotFound):
		return missing
	case err == nil && result.Answer != job.Applied:
		return missing
	}
	return err
}

// letterID is the last part of the name of a dead letter.
func letterID(record job.RecordID) string {
	if slot, ok := record.LetterSlot(); ok {
		return strconv.Itoa(slot)
	}
	return "job"
}
