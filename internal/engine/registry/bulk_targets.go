package registry

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
)

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
		target := job.BulkTarget{Record: record.Definition.Record(), Etag: record.Definition.Etag()}
		if q.Action == job.BulkResumeJobs {
			target.AtMS = record.State.PausedMS
		}
		targets = append(targets, target)
	}
	return targets, l.next, nil
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
	l.step, l.weight = filterChunk, func(job.Record) int { return 0 }
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
	for i := range l.items {
		s, key := &l.items[i].State, l.items[i].Definition.Key
		if isCancellable(s) {
			targets = append(targets, job.BulkTarget{Record: key.Record(), RunID: s.RunID()})
		}
		if s.Pending != "" && s.Waiting == 0 {
			targets = append(targets, job.BulkTarget{Record: key.Record(), RunID: job.ManualRunID(s.Pending)})
		}
		for _, slot := range s.ChildSlots() {
			id := key.Record().Run(slot)
			if child := children[id]; child != nil && isCancellable(&child.State) {
				targets = append(targets, job.BulkTarget{Record: id, RunID: child.State.RunID()})
			}
		}
		if len(targets) >= bulkPlanSize {
			return targets, l.tokenAfter(i + 1), nil
		}
	}
	return targets, l.next, nil
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
	if err := l.fillPage(ctx); err != nil {
		return nil, "", err
	}
	for i := range l.items {
		dead := &l.items[i].Stored.State
		targets = append(targets, job.BulkTarget{Record: l.items[i].Record, RunID: dead.RunID(), AtMS: dead.LastFinished})
	}
	return targets, l.next, nil
}
