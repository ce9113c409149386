package registry

import (
	"context"
	"errors"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
)

// Explain returns why a job does not run right now: by its state, its children, the limits that it shares with
// others, the holder of its shard, and the workers of its queue. It names only jobs that the caller may see.
func (r *Registry) Explain(ctx context.Context, key job.Key) (job.ExplainedJob, error) {
	record, err := r.Get(ctx, key)
	if err != nil {
		return job.ExplainedJob{}, err
	}
	children, err := r.readChildRuns(ctx, record)
	if err != nil {
		return job.ExplainedJob{}, err
	}
	now, err := r.shardNow(ctx, key)
	if err != nil {
		return job.ExplainedJob{}, err
	}
	compiled, err := job.Compile(record.Definition)
	if err != nil {
		return job.ExplainedJob{}, errors.Join(job.ErrCorrupt, err)
	}
	facts, err := r.gatherFacts(ctx, record)
	if err != nil {
		return job.ExplainedJob{}, err
	}
	if err := r.hideHolders(ctx, &record, children, &facts); err != nil {
		return job.ExplainedJob{}, err
	}
	return job.ExplainedJob{
		Explanation: job.Explain(compiled, record.State, children, facts, now),
		Record:      record,
		Runs:        r.addTraceIDs(record.Definition, unfinishedRuns(record.State, children)...),
	}, nil
}

// gatherFacts gathers what an explanation needs beside the job's own records.
func (r *Registry) gatherFacts(ctx context.Context, record job.Record) (job.Facts, error) {
	d, lane := record.Definition, record.State.Lane
	queue := job.QueueKey{Namespace: lane.Namespace, Queue: lane.Queue}
	var f job.Facts
	if r.o.Cluster != nil {
		f = r.o.Cluster.JobFacts(ctx, r.o.Store.ShardOf(d.Key), queue)
	}
	var err error
	f.Queue, err = r.o.SharedLimits.ReadQueueSettings(ctx, queue)
	if err != nil {
		return f, err
	}
	if limit := f.Queue.MaxConcurrency; limit > 0 {
		room, err := r.o.SharedLimits.FreeUnits(ctx, job.QueueLimitName(queue), limit)
		if err != nil {
			return f, err
		}
		f.QueueLive = limit - room
	}
	if d.Target == "" {
		return f, nil
	}
	cell := r.o.SharedLimits.ReadCells(ctx, []string{job.TargetName(d.Namespace, d.Target)})[0]
	if cell.Err != nil {
		return f, cell.Err
	}
	// A text of a later version is ignored: the state has the hold of the target.
	f.Target, _ = backoff.ParseCircuit(cell.Text)
	return f, nil
}
