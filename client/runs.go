package client

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// RunBackoff is what a manual run does to the failure count of its job.
type RunBackoff = fermatav1.RunJobRequest_Backoff

// Values of [RunBackoff].
const (
	// ResetBackoff clears the count now. The default.
	ResetBackoff = fermatav1.RunJobRequest_BACKOFF_RESET
	// KeepBackoff leaves the count and the planned run unchanged.
	KeepBackoff = fermatav1.RunJobRequest_BACKOFF_KEEP
	// ResetBackoffOnSuccess clears the count if the run succeeds.
	ResetBackoffOnSuccess = fermatav1.RunJobRequest_BACKOFF_RESET_ON_SUCCESS
)

// RunOptions configure a manual run. The zero value uses the defaults.
type RunOptions struct {
	// Backoff is what the run does to the failure count of its job. Default [ResetBackoff].
	Backoff RunBackoff
	// RequestID makes the call idempotent: an id among the last eight of the job does not start another run. Set
	// it if the program may repeat the call after a restart. Default: a random id for each call.
	RequestID string
	// IgnoreExclusions starts the run and its retries also at times that the job's schedule excludes. Otherwise
	// RunJob fails at such a time, with the reason EXCLUDED_TIME.
	IgnoreExclusions bool
}

// RunJob requests a manual run. joined reports whether it joined one that was already waiting.
func (c *Client) RunJob(ctx context.Context, job string, o RunOptions) (run *Run, joined bool, err error) {
	if o.RequestID == "" {
		o.RequestID = cmp.Or(requestIDOf(ctx), NewRequestID())
	}
	r, err := callWithRetry(ctx, c, c.jobs.RunJob, &fermatav1.RunJobRequest{
		Name: c.JobName(job), RequestId: o.RequestID, Backoff: o.Backoff, IgnoreExclusions: o.IgnoreExclusions,
	})
	return r.GetRun(), r.GetCoalesced(), err
}

// RunJobWithPayload requests a manual run with another payload than that of the job. All attempts of this run have the
// payload; the job stays as it is. The run joins no other, and its outcome does not count for the backoff of the job:
// o.Backoff has no effect. Nodes of a version without this method fail with codes.Unimplemented.
func (c *Client) RunJobWithPayload(ctx context.Context, job string, payload []byte, o RunOptions) (*Run, error) {
	if o.RequestID == "" {
		o.RequestID = cmp.Or(requestIDOf(ctx), NewRequestID())
	}
	return callWithRetry(ctx, c, c.jobs.RunJobWithPayload, &fermatav1.RunJobWithPayloadRequest{
		Name: c.JobName(job), RequestId: o.RequestID, Payload: payload, IgnoreExclusions: o.IgnoreExclusions,
	})
}

// Runs returns the current run first, then finished ones, newest first, then dead letters.
func (c *Client) Runs(ctx context.Context, job string) ([]*Run, error) {
	r, err := callWithRetry(ctx, c, c.jobs.ListRuns, &fermatav1.ListRunsRequest{Parent: c.JobName(job)})
	return r.GetRuns(), err
}

// GetRun returns a run by its full name: that of [Run].Name, or the result of [Client.RunName].
func (c *Client) GetRun(ctx context.Context, run string) (*Run, error) {
	return callWithRetry(ctx, c, c.jobs.GetRun, &fermatav1.GetRunRequest{Name: run})
}

// WaitRun waits until a run has ended, with all its attempts, and returns it. The run is named as for
// [Client.GetRun]. WaitRun polls every 50 ms at first and every 2 s after some seconds. It retries while nodes do
// not answer, until ctx ends, and then returns the error of ctx. If the job keeps no history, the error is
// [ErrNotFound] after the end of the run.
func (c *Client) WaitRun(ctx context.Context, run string) (*Run, error) {
	for wait := firstPollInterval; ; wait = min(wait*5/4, maxPollInterval) {
		r, err := c.pollRun(ctx, run)
		switch {
		case err == nil && r.GetState() == fermatav1.Run_STATE_FINISHED:
			return r, nil
		case err != nil && ctx.Err() == nil && !IsUnavailable(err) && !hasCode(err, codes.DeadlineExceeded):
			return nil, err
		}
		pause := wait
		if deadline, ok := ctx.Deadline(); ok {
			pause = min(pause, time.Until(deadline)-finalPollTimeout)
		}
		if pause <= 0 || !waitFor(ctx, pause) {
			return nil, cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
		}
	}
}

const (
	firstPollInterval = 50 * time.Millisecond
	maxPollInterval   = 2 * time.Second
	// finalPollTimeout is how long before the context's deadline WaitRun polls for the last time.
	finalPollTimeout = 50 * time.Millisecond
	// pollTimeout is the timeout of one poll; the next one may reach another node.
	pollTimeout = 10 * time.Second
)

func (c *Client) pollRun(ctx context.Context, run string) (*Run, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return c.GetRun(ctx, run)
}

// CancelRun cancels a run, named as for [Client.GetRun]. A waiting run ends at once, a live one when its handler
// returns.
func (c *Client) CancelRun(ctx context.Context, run string) (*Run, error) {
	return callWithRetry(ctx, c, c.jobs.CancelRun, &fermatav1.CancelRunRequest{Name: run})
}

// Backfill is a range of past scheduled times to run again.
type Backfill struct {
	// ID identifies the backfill, also for CancelBackfill, and makes the call idempotent: the same id is not
	// started twice. Default: a random id.
	ID string
	// From is inclusive, To exclusive. Both are in the past.
	From, To time.Time
	// Parallel runs up to the job's overlap_limit runs at once, concurrently with its other runs. Otherwise they
	// run one after the other.
	Parallel bool
}

// BackfillJob starts a backfill. The job's status lists it until it is done.
func (c *Client) BackfillJob(ctx context.Context, job string, b Backfill) (id string, j *Job, err error) {
	if b.ID == "" {
		b.ID = cmp.Or(requestIDOf(ctx), NewRequestID())
	}
	q := &fermatav1.BackfillJobRequest{
		Name: c.JobName(job), RequestId: b.ID, StartTime: timestamppb.New(b.From), EndTime: timestamppb.New(b.To),
	}
	if b.Parallel {
		q.OverlapPolicy = fermatav1.OverlapPolicy_OVERLAP_POLICY_ALLOW_ALL
	}
	j, err = callWithRetry(ctx, c, c.jobs.BackfillJob, q)
	return b.ID, j, err
}

// BackfillRef identifies a backfill.
type BackfillRef struct {
	// Job is the id or the full name of the job, ID that of its backfill.
	Job, ID string
}

// CancelBackfill ends a backfill. Its started runs continue.
func (c *Client) CancelBackfill(ctx context.Context, b BackfillRef) (j *Job, err error) {
	err = c.retryCall(ctx, func(attempt int) error {
		q := &fermatav1.CancelBackfillRequest{Name: c.JobName(b.Job), BackfillId: b.ID}
		j, err = c.jobs.CancelBackfill(ctx, q)
		if attempt > 1 && IsNotFound(err) {
			// A retry finds no backfill if the first attempt succeeded and its response was lost.
			j, err = c.jobs.GetJob(ctx, &fermatav1.GetJobRequest{Name: q.GetName()})
		}
		return err
	})
	return j, err
}
