package client

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Wish is the desired state of a job; see [Client.ApplyJobs].
type Wish = fermatav1.JobWish

// Change is the result of applying a [Wish].
type Change = fermatav1.JobChange

// OwnerLabel is the label that names the set of files that a job belongs to.
const OwnerLabel = "fermata.io/owner"

// Limits of one call of PlanJobs or ApplyJobs. The response holds each job twice.
const (
	maxBatchWishes = 500
	maxBatchBytes  = 4 << 20
)

// PlanJobs validates wishes and returns the changes that ApplyJobs would make, without changing anything. The
// number of wishes is not limited. Each wish has its own change; [ChangeError] returns its error. With force,
// the plan takes over jobs of other owners.
func (c *Client) PlanJobs(ctx context.Context, wishes []*Wish, force bool) ([]*Change, error) {
	return inBatches(wishes, func(batch []*Wish) ([]*Change, error) {
		a, err := callWithRetry(ctx, c, c.jobs.PlanJobs,
			&fermatav1.PlanJobsRequest{Parent: c.namespaceName(), Wishes: batch, Force: force})
		return a.GetChanges(), err
	})
}

// ApplyJobs creates, replaces, deletes, pauses and resumes jobs until they match the wishes, in batches. A wish
// with an etag, usually that of [Change.Before] in the plan, is applied only if the job still has that etag.
// Without an etag, the job must not exist or must equal the wish. Each wish has its own change; [ChangeError]
// returns its error. Retryable errors are retried. The returned error is that of a call that failed as a whole;
// the changes of later wishes are then missing. The call can be repeated.
func (c *Client) ApplyJobs(ctx context.Context, wishes []*Wish, force bool) ([]*Change, error) {
	return inBatches(wishes, func(batch []*Wish) ([]*Change, error) {
		return c.applyBatch(ctx, batch, force)
	})
}

// applyBatch applies a batch and retries the wishes with retryable errors.
func (c *Client) applyBatch(ctx context.Context, batch []*Wish, force bool) ([]*Change, error) {
	changes := make([]*Change, len(batch))
	left := make([]int, len(batch))
	for i := range left {
		left[i] = i
	}
	for attempt := 1; ; attempt++ {
		q := &fermatav1.ApplyJobsRequest{Parent: c.namespaceName(), Force: force}
		for _, i := range left {
			q.Wishes = append(q.Wishes, batch[i])
		}
		a, err := callWithRetry(ctx, c, c.jobs.ApplyJobs, q)
		if err == nil && len(a.GetChanges()) != len(left) {
			err = status.Errorf(codes.Internal, "%d answers to %d wishes", len(a.GetChanges()), len(left))
		}
		if err != nil {
			return nil, err
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

// ChangeError returns why a wish was not applied, or nil if it was.
func ChangeError(c *Change) error {
	if codes.Code(c.GetCode()) == codes.OK {
		return nil
	}
	return status.ErrorProto(statusProto(c))
}

// inBatches calls do with as many wishes as one call may have.
func inBatches(wishes []*Wish, do func([]*Wish) ([]*Change, error)) ([]*Change, error) {
	changes := make([]*Change, 0, len(wishes))
	for len(wishes) > 0 {
		n, size := 0, 0
		for n < len(wishes) && n < maxBatchWishes {
			size += proto.Size(wishes[n])
			if n > 0 && size > maxBatchBytes {
				break
			}
			n++
		}
		done, err := do(wishes[:n])
		for n > 1 && isTooLarge(err) {
			n = (n + 1) / 2
			done, err = do(wishes[:n])
		}
		changes = append(changes, done...)
		if err != nil {
			return changes, err
		}
		wishes = wishes[n:]
	}
	return changes, nil
}

// isTooLarge reports whether a smaller call may succeed.
func isTooLarge(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetReason() == "TOO_LARGE" {
			return true
		}
	}
	return false
}
