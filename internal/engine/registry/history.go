package registry

import (
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
)

// This file reads the histories of jobs, for the whole package. A dead letter stays in the queue of its run when the
// job moves to another one. Dead runs whose dead letters are in queues that the caller may not reach are left out here, so
// that no reader has to think of them.

// readHistory returns the ended runs of a job that its history keeps, newest first, and after them the dead letters
// that the history has forgotten.
func (r *Registry) readHistory(ctx context.Context, record job.Record) ([]job.Run, error) {
	runs, err := r.o.Store.Runs(ctx, record.Definition.Key, record.Definition.HistoryLimit)
	if err != nil {
		return nil, err
	}
	visible, err := r.dropHiddenRuns(ctx, []job.Record{record}, [][]job.Run{runs})
	if err != nil {
		return nil, err
	}
	return visible[0], nil
}

// RecentRuns returns the latest runs of each of these jobs that its history keeps, at most so many of each, the last
// end first. Runs that are left out take no place.
func (r *Registry) RecentRuns(ctx context.Context, records []job.Record, most int) ([][]job.Run, error) {
	read := most
	if r.reachableQueues(ctx) != nil {
		read += job.DeadLettersPerJob
	}
	histories, err := r.o.Store.RecentRuns(ctx, records, read)
	if err == nil {
		histories, err = r.dropHiddenRuns(ctx, records, histories)
	}
	if err != nil {
		return nil, err
	}
	for i, runs := range histories {
		histories[i] = runs[:min(len(runs), most)]
	}
	return histories, nil
}

// deadRun names a run that has a dead letter.
type deadRun struct {
	job job.Key
	id  string
}

// dropHiddenRuns leaves out of the history of each job the dead runs that the caller may not see.
func (r *Registry) dropHiddenRuns(ctx context.Context, records []job.Record,
	histories [][]job.Run) ([][]job.Run, error) {
	hidden, err := r.findHiddenRuns(ctx, records, histories)
	if err != nil || len(hidden) == 0 {
		return histories, err
	}
	for i, runs := range histories {
		key := records[i].Definition.Key
		histories[i] = slices.DeleteFunc(runs, func(run job.Run) bool { return hidden[deadRun{key, run.ID}] })
	}
	return histories, nil
}

// findHiddenRuns returns the dead runs of histories whose dead letters are in queues that the caller may not reach. It
// reads states only, and nothing for callers who may reach all queues.
func (r *Registry) findHiddenRuns(ctx context.Context, records []job.Record,
	histories [][]job.Run) (map[deadRun]bool, error) {
	scope := r.reachableQueues(ctx)
	if scope == nil {
		return nil, nil
	}
	letters := r.lettersOf(records, histories)
	states, err := r.o.Store.ReadStates(ctx, letters)
	hidden := map[deadRun]bool{}
	for i, state := range states {
		if state != nil && !scope(job.QueueKey{Namespace: state.Lane.Namespace, Queue: state.Lane.Queue}) {
			hidden[deadRun{letters[i].Record.Key(), state.RunID()}] = true
		}
	}
	return hidden, err
}

// lettersOf returns the places of the dead letters of jobs with a dead run in their history. That of a one-time job is
// the job itself, which has moved with it.
func (r *Registry) lettersOf(records []job.Record, histories [][]job.Run) (letters []job.IndexEntry) {
	for i, runs := range histories {
		if !slices.ContainsFunc(runs, endedDead) {
			continue
		}
		key := records[i].Definition.Key
		for slot := range job.DeadLettersPerJob {
			letters = append(letters, job.IndexEntry{Shard: r.o.Store.ShardOf(key), Record: key.Record().Letter(slot)})
		}
	}
	return letters
}

func endedDead(run job.Run) bool {
	return run.DeadLetter || run.Outcome == job.OutcomeDead || run.Outcome == job.OutcomeQuarantined
}
