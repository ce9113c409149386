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

// Wish is what a job should be; see [Client.ApplyJobs].
type Wish = fermatav1.JobWish

// Change is what becomes of a [Wish].
type Change = fermatav1.JobChange

// OwnerLabel tells which set of files a job belongs to.
const OwnerLabel = "fermata.io/owner"

// Bounds of one call of PlanJobs or ApplyJobs: the answer holds each job twice.
const (
	maxBatchWishes = 500
	maxBatchBytes  = 4 << 20
)

// PlanJobs tells what ApplyJobs would do about any number of wishes, and what is wrong
// with them, without changing anything. Each has a change of its own, whose
// [ChangeError] is nil where it is sound. With force, jobs of other owners are planned
// to be taken over.
func (c *Client) PlanJobs(ctx context.Context, wishes []*Wish, force bool) ([]*Change, error) {
	return inBatches(wishes, func(batch []*Wish) ([]*Change, error) {
		a, err := callWithRetry(ctx, c, c.jobs.PlanJobs, &fermatav1.PlanJobsRequest{Parent: c.namespaceName(), Wishes: batch, Force: force})
		return a.GetChanges(), err
	})
}

// ApplyJobs creates, replaces, deletes, pauses and resumes jobs until they are what is
// wished, in batches. A wish is granted if its job is still the one that its etag
// names, which is that of [Change.Before] in the plan; without one there must be no
// such job, or the same. Each has a result of its own, [ChangeError]. What the cluster
// says is worth repeating is repeated. The error is that of a call that failed as a
// whole, after which the results of the later ones are missing; all of it may be
// called again.
func (c *Client) ApplyJobs(ctx context.Context, wishes []*Wish, force bool) ([]*Change, error) {
	return inBatches(wishes, func(batch []*Wish) ([]*Change, error) {
		return c.applyBatch(ctx, batch, force)
	})
}

// applyBatch repeats the wishes of a batch whose errors ask for it.
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
		if left = again; len(left) == 0 || attempt >= c.options.Attempts || !waitFor(ctx, wait) {
			return changes, nil
		}
	}
}

// ChangeError is why a wish was not granted; nil if it was.
func ChangeError(c *Change) error {
	if codes.Code(c.GetCode()) == codes.OK {
		return nil
	}
	return status.ErrorProto(statusProto(c))
}

// inBatches makes calls with as many wishes as one may have.
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

// isTooLarge tells of a call that a smaller one can stand for.
func isTooLarge(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetReason() == "TOO_LARGE" {
			return true
		}
	}
	return false
}
