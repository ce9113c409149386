package rpc

import (
	"context"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/job"
)

// This file removes from answers the names of jobs that the caller may not see and that have what a job of the answer
// waits for: a lock, a unit of a queue, or a target. Jobs of other queues of the namespace may have it.

// holdOfJob is a hold in an answer, with the namespace of its job.
type holdOfJob struct {
	namespace string
	hold      *job.Hold
}

// holder is the key of the job that has what the run waits for.
func (h holdOfJob) holder() job.Key { return job.Key{Namespace: h.namespace, ID: h.hold.By} }

// hideHolders removes the names of holders that the caller may not see. One read serves all holds of an answer, and
// callers who may see all queues of the namespaces need none. If that read fails, the names are removed: the call
// itself has been carried out.
func (j queueScopedJobs) hideHolders(ctx context.Context, holds []holdOfJob) {
	var doubtful []holdOfJob
	var keys []job.Key
	for _, h := range holds {
		if h.hold.By != "" && guard.RoleScopeFrom(ctx, h.namespace) != nil {
			doubtful, keys = append(doubtful, h), append(keys, h.holder())
		}
	}
	if len(keys) == 0 {
		return
	}
	visible, err := j.inner.FindVisibleJobs(ctx, keys)
	for _, h := range doubtful {
		if err != nil || !visible[h.holder()] {
			h.hold.By = ""
		}
	}
}

// hideHoldersOfJobs is hideHolders for jobs. A zero record stays as it is.
func (j queueScopedJobs) hideHoldersOfJobs(ctx context.Context, records ...*job.Record) {
	holds := make([]holdOfJob, 0, len(records))
	for _, r := range records {
		if r.Definition != nil {
			holds = append(holds, holdOfJob{r.Definition.Namespace, &r.State.Held})
		}
	}
	j.hideHolders(ctx, holds)
}

// hideHoldersOfRuns is hideHolders for runs of jobs of one namespace.
func (j queueScopedJobs) hideHoldersOfRuns(ctx context.Context, namespace string, runs ...*job.RunView) {
	holds := make([]holdOfJob, len(runs))
	for i, v := range runs {
		holds[i] = holdOfJob{namespace, &v.Hold}
	}
	j.hideHolders(ctx, holds)
}

// hideHoldersOfChanges is hideHolders for the jobs of changes, which it copies: they may share a record.
func (j queueScopedJobs) hideHoldersOfChanges(ctx context.Context, changes []job.ApplyResult) []job.ApplyResult {
	var copies []*job.Record
	for i := range changes {
		for _, side := range []**job.Record{&changes[i].Before, &changes[i].After} {
			if *side != nil {
				copied := **side
				*side, copies = &copied, append(copies, &copied)
			}
		}
	}
	j.hideHoldersOfJobs(ctx, copies...)
	return changes
}

// pointersTo returns pointers to the parts that part selects of each entry of a list.
func pointersTo[T, P any](list []T, part func(*T) *P) []*P {
	pointers := make([]*P, len(list))
	for i := range list {
		pointers[i] = part(&list[i])
	}
	return pointers
}
