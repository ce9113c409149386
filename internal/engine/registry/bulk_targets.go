package registry

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
)

// maxPlanBytes bounds the names of a plan, as they are stored; one job beyond it may have all its runs in the plan. It
// has room for [job.MaxUnconfirmedMatches] of the longest names.
const maxPlanBytes = 32 << 10

// storedSize is at most how many bytes a match takes in the progress of a change.
func storedSize(t job.BulkTarget) int {
	const marks = 48 // names of the fields, an instant and what is between them
	return len(t.Record) + len(t.RunID) + len(t.Etag) + marks
}

// findTargets finds a page of the matches of a change. next is where the listing continues; "" after the last page.
func (r *Registry) findTargets(ctx context.Context, q job.BulkRequest, place string) (targets []job.BulkTarget,
	next string, err error) {
	q.Filter.TrustedPlace = true // it is stored, or signed
	switch q.Action {
	case job.BulkRedriveDeadLetters, job.BulkDiscardDeadLetters:
		return r.findLetterTargets(ctx, q, place)
	case job.BulkCancelRuns:
		return r.findRunTargets(ctx, q, place)
	}
	l, err := r.listMatches(ctx, q, place)
	if err != nil {
		return nil, "", err
	}
	for i := range l.items {
		record := &l.items[i]
		target := jobTarget(record)
		if q.Action == job.BulkResumeJobs {
			target.AtMS = record.State.PausedMS
		}
		targets = append(targets, target)
	}
	return targets, l.next, nil
}

func jobTarget(record *job.Record) job.BulkTarget {
	return job.BulkTarget{Record: record.Definition.Record(), Etag: record.Definition.Etag()}
}

// listMatches lists a page of the jobs that match the filter and whose state the action is for.
func (r *Registry) listMatches(ctx context.Context, q job.BulkRequest, place string) (*pageBuilder[job.Record], error) {
	l, err := r.listJobs(q.Filter, bulkPlanSize, place, q.Action.String(), func(record job.Record) bool {
		return isBulkCandidate(q, &record.State) && matchesFilter(q.Filter, &record)
	})
	if err != nil {
		return nil, err
	}
	// Most jobs may not match, and no payloads are sent.
	l.step, l.budget = filterChunk, maxPlanBytes
	l.weight = func(record job.Record) int { return storedSize(jobTarget(&record)) }
	return l, l.fillPage(ctx)
}

// isBulkCandidate reports whether an action applies to a job in this state. A walk may list a job twice, so those that
// the same change has changed are left out.
func isBulkCandidate(q job.BulkRequest, s *job.State) bool {
	switch q.Action {
	case job.BulkPauseJobs:
		return !s.Paused
	case job.BulkResumeJobs:
		return s.Paused && (q.Options.PauseID == "" || s.PausedBy(q.Options.PauseID))
	case job.BulkRunJobs:
		_, _, known := s.RequestedRun(q.RequestID)
		return q.DryRun || !known
	case job.BulkCancelRuns:
		return isCancellable(s) || s.Pending != "" || s.Children != 0
	}
	return true
}

// isCancellable reports whether the current run has begun, or was requested by hand.
func isCancellable(s *job.State) bool {
	return s.HasRun() && !s.Cancel && (s.Live() || s.Attempt > 0 || s.Trigger == job.TriggerManual)
}

// findRunTargets finds the runs to cancel, those with records of their own included.
func (r *Registry) findRunTargets(ctx context.Context, q job.BulkRequest, place string) (targets []job.BulkTarget,
	next string, err error) {
	l, err := r.listMatches(ctx, q, place)
	if err != nil {
		return nil, "", err
	}
	children, err := r.readChildrenOf(ctx, l.items)
	if err != nil {
		return nil, "", err
	}
	size := 0
	for i := range l.items {
		runs := cancellableRuns(&l.items[i], children)
		targets = append(targets, runs...)
		for _, run := range runs {
			size += storedSize(run)
		}
		if len(targets) >= bulkPlanSize || size >= maxPlanBytes {
			return targets, l.tokenAfter(i + 1), nil
		}
	}
	return targets, l.next, nil
}

// cancellableRuns are the runs of a job to cancel.
func cancellableRuns(record *job.Record, children map[job.RecordID]*job.Record) (runs []job.BulkTarget) {
	s, key := &record.State, record.Definition.Key
	if isCancellable(s) {
		runs = append(runs, job.BulkTarget{Record: key.Record(), RunID: s.RunID()})
	}
	if s.Pending != "" && s.Waiting == 0 {
		runs = append(runs, job.BulkTarget{Record: key.Record(), RunID: job.ManualRunID(s.Pending)})
	}
	for _, slot := range s.ChildSlots() {
		id := key.Record().Run(slot)
		if child := children[id]; child != nil && isCancellable(&child.State) {
			runs = append(runs, job.BulkTarget{Record: id, RunID: child.State.RunID()})
		}
	}
	return runs
}

// readChildrenOf reads the runs of several jobs that have records of their own, by one call per shard.
func (r *Registry) readChildrenOf(ctx context.Context, jobs []job.Record) (map[job.RecordID]*job.Record, error) {
	byShard := map[int][]job.RecordID{}
	for i := range jobs {
		key := jobs[i].Definition.Key
		for _, slot := range jobs[i].State.ChildSlots() {
			shard := r.o.Store.ShardOf(key)
			byShard[shard] = append(byShard[shard], key.Record().Run(slot))
		}
	}
	children := map[job.RecordID]*job.Record{}
	for shard, ids := range byShard {
		found, err := r.o.Store.GetRecords(ctx, shard, ids)
		if err != nil {
			return nil, err
		}
		for i, child := range found {
			children[ids[i]] = child
		}
	}
	return children, nil
}

func (r *Registry) findLetterTargets(ctx context.Context, q job.BulkRequest, place string) (targets []job.BulkTarget,
	next string, err error) {
	l, err := r.listLetters(q.Filter, bulkPlanSize, place, q.Action.String())
	if err != nil {
		return nil, "", err
	}
	l.budget = maxPlanBytes
	l.weight = func(letter job.DeadLetter) int { return storedSize(letterTarget(&letter)) }
	if err := l.fillPage(ctx); err != nil {
		return nil, "", err
	}
	for i := range l.items {
		targets = append(targets, letterTarget(&l.items[i]))
	}
	return targets, l.next, nil
}

func letterTarget(letter *job.DeadLetter) job.BulkTarget {
	dead := &letter.Stored.State
	return job.BulkTarget{Record: letter.Record, RunID: dead.RunID(), AtMS: dead.LastFinished}
}
