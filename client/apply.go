package client

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// DesiredJob is the desired state of a job; see [Client.ApplyJobs].
type DesiredJob = fermatav1.DesiredJob

// JobChange is the change that a [DesiredJob] needs, or an error: [ChangeError] returns it.
type JobChange = fermatav1.JobChange

// ChangeAction is what a [JobChange] does.
type ChangeAction = fermatav1.JobChange_Action

// Values of [ChangeAction]. ActionPassed is planned for a one-time job that does not exist and whose time has
// passed.
const (
	ActionCreate    = fermatav1.JobChange_ACTION_CREATE
	ActionUpdate    = fermatav1.JobChange_ACTION_UPDATE
	ActionUnchanged = fermatav1.JobChange_ACTION_UNCHANGED
	ActionDelete    = fermatav1.JobChange_ACTION_DELETE
	ActionPassed    = fermatav1.JobChange_ACTION_EXPIRED
)

// ApplyOptions configure [Client.PlanJobs] and [Client.ApplyJobs].
type ApplyOptions struct {
	// Force takes over jobs of other owners. Otherwise such a job is an error.
	Force bool
}

// OwnerLabel is the label that names the set of files that a job belongs to.
const OwnerLabel = "fermata.io/owner"

// Limits of one call of PlanJobs or ApplyJobs. The response holds each job twice.
const (
	maxDesiredJobs = 500
	maxBatchBytes  = 4 << 20
)

// PlanJobs validates the desired jobs and returns the changes that ApplyJobs would make, without changing
// anything. The number of jobs is not limited. Each has its own change; [ChangeError] returns its error.
func (c *Client) PlanJobs(ctx context.Context, desired []*DesiredJob, o ApplyOptions) ([]*JobChange, error) {
	return inBatches(desired, func(batch []*DesiredJob) ([]*JobChange, error) {
		a, err := callWithRetry(ctx, c, c.jobs.PlanJobs,
			&fermatav1.PlanJobsRequest{Parent: c.namespaceName(), DesiredJobs: batch, Force: o.Force})
		return a.GetChanges(), err
	})
}

// ApplyJobs creates, replaces, deletes, pauses and resumes jobs until they are as desired, in batches. A desired
// job with an etag, usually that of [JobChange].Before in the plan, is applied only if the job still has that
// etag. Without an etag, the job must not exist or must equal the desired one. Each desired job has its own
// change; [ChangeError] returns its error. Retryable errors are retried. The returned error is that of a call
// that failed as a whole; the changes of later jobs are then missing. The call can be repeated.
func (c *Client) ApplyJobs(ctx context.Context, desired []*DesiredJob, o ApplyOptions) ([]*JobChange, error) {
	return inBatches(desired, func(batch []*DesiredJob) ([]*JobChange, error) {
		return c.applyBatch(ctx, batch, o)
	})
}

// applyBatch applies a batch and retries the jobs with retryable errors.
func (c *Client) applyBatch(ctx context.Context, batch []*DesiredJob, o ApplyOptions) ([]*JobChange, error) {
	changes := make([]*JobChange, len(batch))
	left := make([]int, len(batch))
	for i := range left {
		left[i] = i
	}
	for attempt := 1; ; attempt++ {
		q := &fermatav1.ApplyJobsRequest{Parent: c.namespaceName(), Force: o.Force}
		for _, i := range left {
			q.DesiredJobs = append(q.DesiredJobs, batch[i])
		}
		a, err := callWithRetry(ctx, c, c.jobs.ApplyJobs, q)
		if err == nil && len(a.GetChanges()) != len(left) {
			err = status.Errorf(codes.Internal, "%d changes for %d jobs", len(a.GetChanges()), len(left))
		}
		if err != nil {
			return nil, wrapError(err)
		}
		var again []int
		var wait time.Duration
		for n, i := range left {
			changes[i] = a.GetChanges()[n]
			if pause, worthwhile := delayAfter(ChangeError(changes[i]), attempt); worthwhile {
				again, wait = append(again, i), max(wait, pause)
			}
		}
		left = again
		if len(left) == 0 || attempt >= c.options.Attempts || !waitFor(ctx, wait) {
			return changes, nil
		}
	}
}

// ChangeError returns why a desired job was not applied, or nil if it was.
func ChangeError(c *JobChange) error { return itemError(c) }

// inBatches calls do with as many jobs as one call may have.
func inBatches(desired []*DesiredJob, do func([]*DesiredJob) ([]*JobChange, error)) ([]*JobChange, error) {
	changes := make([]*JobChange, 0, len(desired))
	for len(desired) > 0 {
		n, size := 0, 0
		for n < len(desired) && n < maxDesiredJobs {
			size += proto.Size(desired[n])
			if n > 0 && size > maxBatchBytes {
				break
			}
			n++
		}
		done, err := do(desired[:n])
		for n > 1 && isTooLarge(err) {
			n = (n + 1) / 2
			done, err = do(desired[:n])
		}
		changes = append(changes, done...)
		if err != nil {
			return changes, err
		}
		desired = desired[n:]
	}
	return changes, nil
}

// isTooLarge reports whether a smaller call may succeed.
func isTooLarge(err error) bool { return ErrorReason(err) == "TOO_LARGE" }
