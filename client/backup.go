package client

import (
	"context"
	"iter"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Backup is a job with what a cluster knows of it.
type Backup = fermatav1.JobBackup

// Existing says what RestoreJobs does about a job that is there already.
type Existing = fermatav1.RestoreJobsRequest_Existing

// What to do about jobs that are there.
const (
	ExistingFail    = fermatav1.RestoreJobsRequest_EXISTING_FAIL
	ExistingSkip    = fermatav1.RestoreJobsRequest_EXISTING_SKIP
	ExistingReplace = fermatav1.RestoreJobsRequest_EXISTING_REPLACE
)

// Restored is what became of a Backup.
type Restored struct {
	Outcome fermatav1.RestoreJobsResponse_Result_Outcome
	Err     error
}

// ExportJobs lists the jobs that are selected with their checkpoints, in no
// particular order, page by page as they are asked for. It ends after the first
// error.
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
			if token = r.GetNextPageToken(); token == "" {
				return
			}
		}
	}
}

// RestoreJobs registers any number of jobs with what was known of them, in batches,
// in the client's namespace. Each has a result of its own; the error is that of a
// call that failed as a whole, after which the results of the later ones are
// missing. It may be repeated.
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
