package registry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// changeTargets changes matches in parts, until all are done or BulkTime is over. repeat: an earlier call may have
// changed some of them, which count as changed.
func (c *bulkChange) changeTargets(ctx context.Context, targets []job.BulkTarget, repeat bool) (*bulkResult, error) {
	result := &bulkResult{}
	began := time.Now()
	for size := newPartSize(); int(result.Matched) < len(targets); size.grow() {
		part := targets[result.Matched:]
		part = part[:min(size.next, len(part))]
		if err := c.changePart(ctx, part, repeat, result, size); err != nil {
			return nil, err
		}
		if time.Since(began) >= c.o.BulkTime {
			break
		}
	}
	result.Names = slices.Clone(targets[:min(int(result.Matched), job.MaxBulkNames)])
	return result, nil
}

// changePart submits the changes of some matches, adds their results, and notes their sizes.
func (c *bulkChange) changePart(ctx context.Context, targets []job.BulkTarget, repeat bool, result *bulkResult,
	size *partSize) error {
	same, err := c.findUnreplaced(ctx, targets, repeat)
	if err != nil {
		return err
	}
	scope := c.reachableQueues(ctx)
	var changes []job.Change
	var changed []job.BulkTarget
	for i, target := range targets {
		if !same[i] {
			result.refuse(job.RefusedGone, target)
			continue
		}
		changes = append(changes, job.Change{Record: target.Record, Input: c.inputFor(ctx, target), Covers: scope})
		changed = append(changed, target)
	}
	var deleted []*job.Definition
	answers := c.commitChanges(ctx, changes...)
	size.noteResults(answers)
	for i, answer := range answers {
		target := changed[i]
		reason, err := c.judgeResult(&answer, repeat)
		if err == nil && reason == "" {
			err = c.followChange(ctx, target, &answer)
		}
		switch {
		case err != nil:
			c.returnDeleted(ctx, deleted...)
			return err
		case reason != "":
			result.refuse(reason, target)
			continue
		}
		result.Changed++
		if answer.Deleted && target.Record.IsJob() {
			deleted = append(deleted, deletedDefinition(target.Record.Key(), &answer))
		}
	}
	c.returnDeleted(ctx, deleted...)
	result.Matched += int64(len(targets))
	return nil
}

// findUnreplaced reports for each match whether it is still the job that was found: before a repetition, others may
// have deleted a job and created another one. The other actions compare what they change in the same atomic step.
func (c *bulkChange) findUnreplaced(ctx context.Context, targets []job.BulkTarget, repeat bool) ([]bool, error) {
	same := slices.Repeat([]bool{true}, len(targets))
	if !repeat || c.Action != job.BulkPauseJobs && c.Action != job.BulkRunJobs {
		return same, nil
	}
	keys := make([]job.Key, len(targets))
	for i, target := range targets {
		keys[i] = target.Record.Key()
	}
	err := c.readJobs(ctx, keys, func(i int, record *job.Record) {
		same[i] = record != nil && creationOf(record.Definition.Etag()) == creationOf(targets[i].Etag)
	})
	return same, err
}

// creationOf returns the part of an etag that edits do not change.
func creationOf(etag string) string {
	created, _, _ := strings.Cut(etag, "-")
	return created
}

// inputFor returns the input that changes a match, and that has no second effect.
func (c *bulkChange) inputFor(ctx context.Context, target job.BulkTarget) job.Input {
	o := &c.Options
	switch c.Action {
	case job.BulkPauseJobs:
		return job.Pause{Note: o.Note, ID: c.RequestID}
	case job.BulkResumeJobs:
		return job.Resume{CatchUp: o.CatchUp, PausedMS: target.AtMS}
	case job.BulkRunJobs:
		return job.RequestManualRun{RequestID: c.RequestID, Mode: o.Mode, IgnoreExclusions: o.IgnoreExclusions,
			Trace: c.callerTrace(ctx)}
	case job.BulkCancelRuns:
		return job.CancelRun{RunID: target.RunID}
	case job.BulkDeleteJobs:
		return job.Delete{Base: target.Etag}
	case job.BulkRedriveDeadLetters:
		return job.Redrive{IgnoreExclusions: o.IgnoreExclusions, FinishedMS: target.AtMS}
	}
	return job.Discard{RunID: target.RunID, FinishedMS: target.AtMS}
}

// judgeResult returns why a match was not changed, "" if it was, or the error that ends the call.
func (c *bulkChange) judgeResult(result *job.ChangeResult, repeat bool) (reason string, err error) {
	gone := job.RefusedGone
	if repeat && c.endsItsTarget() {
		gone = ""
	}
	switch {
	case errors.Is(result.Err, job.ErrNotFound):
		return gone, nil
	case errors.Is(result.Err, job.ErrCorrupt):
		return job.RefusedUnusable, nil
	case errors.Is(result.Err, job.ErrConflict):
		return job.RefusedKeepsChanging, nil
	case result.Err != nil:
		return "", result.Err
	}
	switch result.Answer {
	case job.TooMany:
		return job.RefusedTooManyRuns, nil
	case job.Excluded:
		return job.RefusedExcludedTime, nil
	case job.NoSuchRun, job.NotDead:
		return gone, nil
	case job.Stale:
		if repeat && c.Action == job.BulkResumeJobs {
			return "", nil
		}
		return job.RefusedChanged, nil
	}
	s := &result.Record.State
	if s.Rename != nil || !result.Deleted && s.Deleting && c.Action != job.BulkDeleteJobs {
		return gone, nil
	}
	return "", nil
}

// endsItsTarget reports whether a match no longer exists after the change.
func (c *bulkChange) endsItsTarget() bool {
	switch c.Action {
	case job.BulkCancelRuns, job.BulkDeleteJobs, job.BulkRedriveDeadLetters, job.BulkDiscardDeadLetters:
		return true
	}
	return false
}

// followChange does what follows from a stored change: the node of a worker is notified of a cancellation, and runs of
// a deleted job that have not started are cancelled.
func (c *bulkChange) followChange(ctx context.Context, target job.BulkTarget, result *job.ChangeResult) error {
	s := &result.Record.State
	switch {
	case result.Deleted:
	case c.Action == job.BulkCancelRuns && s.Live() && s.RunID() == target.RunID && c.o.Canceller != nil:
		c.o.Canceller.CancelAttempt(target.Record, s.Token)
	case c.endsJob() && s.Deleting && target.Record.IsJob() && result.Record.Definition != nil:
		return c.cancelUnstartedRuns(ctx, result.Record)
	}
	return nil
}

func (c *bulkChange) endsJob() bool {
	return c.Action == job.BulkDeleteJobs || c.Action == job.BulkDiscardDeadLetters
}

// refuse counts a match that was not changed.
func (r *bulkResult) refuse(reason string, target job.BulkTarget) {
	r.Refused++
	i := slices.IndexFunc(r.Refusals, func(f job.BulkRefusal) bool { return f.Reason == reason })
	if i < 0 {
		i = len(r.Refusals)
		r.Refusals = append(r.Refusals, job.BulkRefusal{Reason: reason})
	}
	f := &r.Refusals[i]
	f.Count++
	size := storedSize(target)
	if len(f.Names) < job.MaxBulkNames && r.refusedBytes+size <= maxRefusedBytes {
		f.Names = append(f.Names, target)
		r.refusedBytes += size
	}
}
