package client

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// ExistingAction is what [Admin.RestoreJobs] does with a job that exists already.
type ExistingAction = fermatav1.RestoreJobsRequest_Existing

// Values of [ExistingAction].
const (
	ExistingFail    = fermatav1.RestoreJobsRequest_EXISTING_FAIL
	ExistingSkip    = fermatav1.RestoreJobsRequest_EXISTING_SKIP
	ExistingReplace = fermatav1.RestoreJobsRequest_EXISTING_REPLACE
)

// RestoreOptions configure [Admin.RestoreJobs].
type RestoreOptions struct {
	// Existing is what happens to a job that exists already. Default [ExistingFail].
	Existing ExistingAction
}

// RestoreOutcome is what happened to a job.
type RestoreOutcome = fermatav1.RestoreJobsResponse_Result_Outcome

// Values of [RestoreOutcome].
const (
	RestoreCreated   = fermatav1.RestoreJobsResponse_Result_OUTCOME_CREATED
	RestoreUnchanged = fermatav1.RestoreJobsResponse_Result_OUTCOME_UNCHANGED
	RestoreSkipped   = fermatav1.RestoreJobsResponse_Result_OUTCOME_SKIPPED
	RestoreReplaced  = fermatav1.RestoreJobsResponse_Result_OUTCOME_REPLACED
)

// RestoreResult is the result of restoring one [JobBackup].
type RestoreResult struct {
	Outcome RestoreOutcome
	Err     error
	// Warnings say what of the backup was left out, or is restored and cannot run.
	Warnings []string
}

// ExportJobs returns the selected jobs with their checkpoints, in no particular order. It requests pages as they
// are needed, and ends after the first error.
func (a Admin) ExportJobs(ctx context.Context, s Selection) iter.Seq2[*JobBackup, error] {
	return func(yield func(*JobBackup, error) bool) {
		for token := ""; ; {
			r, err := callWithRetry(ctx, a.c, a.c.backups.ExportJobs, &fermatav1.ExportJobsRequest{
				Parent: a.c.namespaceName(), PageToken: token, Queue: s.Queue, IdPrefix: s.IDPrefix, Labels: s.Labels,
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
func (a Admin) RestoreJobs(ctx context.Context, backups []*JobBackup, o RestoreOptions) ([]RestoreResult, error) {
	results := make([]RestoreResult, 0, len(backups))
	for len(backups) > 0 {
		q := &fermatav1.RestoreJobsRequest{Parent: a.c.namespaceName(), Existing: o.Existing}
		size := 0
		for _, b := range backups {
			size += proto.Size(b)
			if n := len(q.Jobs); n == maxBatchJobs || (n > 0 && size > maxBatchJobBytes) {
				break
			}
			q.Jobs = append(q.Jobs, b)
		}
		answer, err := callWithRetry(ctx, a.c, a.c.backups.RestoreJobs, q)
		if err != nil {
			return results, err
		}
		for _, r := range answer.GetResults() {
			results = append(results, RestoreResult{Outcome: r.GetOutcome(), Err: itemError(r), Warnings: r.GetWarnings()})
		}
		backups = backups[len(q.Jobs):]
	}
	return results, nil
}
