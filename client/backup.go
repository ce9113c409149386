package client

import (
	"context"
	"iter"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Backup is a job with its state.
type Backup = fermatav1.JobBackup

// Existing is what RestoreJobs does with a job that exists already.
type Existing = fermatav1.RestoreJobsRequest_Existing

// Values of [Existing].
const (
	ExistingFail    = fermatav1.RestoreJobsRequest_EXISTING_FAIL
	ExistingSkip    = fermatav1.RestoreJobsRequest_EXISTING_SKIP
	ExistingReplace = fermatav1.RestoreJobsRequest_EXISTING_REPLACE
)

// Restored is the result of restoring a Backup.
type Restored struct {
	Outcome fermatav1.RestoreJobsResponse_Result_Outcome
	Err     error
}

// ExportJobs returns the selected jobs with their checkpoints, in no particular order. It requests pages as they
// are needed, and ends after the first error.
func (c *Client) ExportJobs(ctx context.Context, s Selection) iter.Seq2[*Backup, error] {
	return func(yield func(*Backup, error) bool) {
		for token := ""; ; {
			r, err := callWithRetry(ctx, c, c.backups.ExportJobs, &fermatav1.ExportJobsRequest{
				Parent: c.namespaceName(), PageToken: token, Queue: s.Queue, IdPrefix: s.IDPrefix, Labels: s.Labels,
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, b := range r.GetJobs() {
				if !yield(b, nil) {
					return
				}
			}
			token = r.GetNextPageToken()
			if token == "" {
				return
			}
		}
	}
}

// RestoreJobs creates any number of jobs with their state, in batches, in the client's namespace. Each backup
// has its own result. The error is that of a call that failed as a whole; the results of later backups are then
// missing. The call can be repeated.
func (c *Client) RestoreJobs(ctx context.Context, backups []*Backup, existing Existing) ([]Restored, error) {
	results := make([]Restored, 0, len(backups))
	for len(backups) > 0 {
		q := &fermatav1.RestoreJobsRequest{Parent: c.namespaceName(), Existing: existing}
		size := 0
		for _, b := range backups {
			size += proto.Size(b)
			if n := len(q.Jobs); n == maxBatchJobs || (n > 0 && size > maxBatchJobBytes) {
				break
			}
			q.Jobs = append(q.Jobs, b)
		}
		answer, err := callWithRetry(ctx, c, c.backups.RestoreJobs, q)
		if err != nil {
			return results, err
		}
		for _, r := range answer.GetResults() {
			results = append(results, newRestored(r))
		}
		backups = backups[len(q.Jobs):]
	}
	return results, nil
}

func newRestored(r *fermatav1.RestoreJobsResponse_Result) Restored {
	if codes.Code(r.GetCode()) == codes.OK {
		return Restored{Outcome: r.GetOutcome()}
	}
	return Restored{Err: status.ErrorProto(statusProto(r))}
}
