package rpc

import (
	"context"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// bulkChangeRequest is what the requests of all Bulk methods have in common.
type bulkChangeRequest interface {
	GetParent() string
	GetFilter() string
	GetDryRun() bool
	GetConfirmation() string
	GetRequestId() string
	GetPageToken() string
}

// changeMatching answers a Bulk method.
func (s *jobService) changeMatching(ctx context.Context, action job.BulkAction, q bulkChangeRequest,
	o job.BulkOptions) (*fermatav1.BulkChangeResponse, error) {
	namespace, err := convert.ParseNamespace("parent", q.GetParent())
	if err != nil {
		return nil, err
	}
	request := job.BulkRequest{
		Action: action, Filter: job.Filter{Namespace: namespace}, Options: o, Caller: callerSubject(ctx),
		DryRun: q.GetDryRun(), Confirmation: q.GetConfirmation(), RequestID: q.GetRequestId(), Token: q.GetPageToken(),
	}
	if err := s.addCondition(&request.Filter, q.GetFilter()); err != nil {
		return nil, err
	}
	page, err := s.bulk.ChangeMatching(ctx, request)
	if err != nil {
		return nil, err
	}
	noteRepetition(ctx, page.Finished)
	r := convert.BulkPageToPB(action, page)
	if action == job.BulkPauseJobs {
		r.PauseId = q.GetRequestId()
	}
	return r, nil
}

func (s *jobService) BulkPauseJobs(ctx context.Context,
	q *fermatav1.BulkPauseJobsRequest) (*fermatav1.BulkChangeResponse, error) {
	return s.changeMatching(ctx, job.BulkPauseJobs, q, job.BulkOptions{Note: q.GetNote()})
}

func (s *jobService) BulkResumeJobs(ctx context.Context,
	q *fermatav1.BulkResumeJobsRequest) (*fermatav1.BulkChangeResponse, error) {
	return s.changeMatching(ctx, job.BulkResumeJobs, q, job.BulkOptions{PauseID: q.GetPauseId(), CatchUp: q.GetCatchUp()})
}

func (s *jobService) BulkRunJobs(ctx context.Context,
	q *fermatav1.BulkRunJobsRequest) (*fermatav1.BulkChangeResponse, error) {
	return s.changeMatching(ctx, job.BulkRunJobs, q,
		job.BulkOptions{Mode: convert.BackoffModes.FromPB(q.GetBackoff()), IgnoreExclusions: q.GetIgnoreExclusions()})
}

func (s *jobService) BulkCancelRuns(ctx context.Context,
	q *fermatav1.BulkCancelRunsRequest) (*fermatav1.BulkChangeResponse, error) {
	return s.changeMatching(ctx, job.BulkCancelRuns, q, job.BulkOptions{})
}

func (s *jobService) BulkDeleteJobs(ctx context.Context,
	q *fermatav1.BulkDeleteJobsRequest) (*fermatav1.BulkChangeResponse, error) {
	return s.changeMatching(ctx, job.BulkDeleteJobs, q, job.BulkOptions{})
}

func (s *jobService) BulkRedriveDeadLetters(ctx context.Context,
	q *fermatav1.BulkRedriveDeadLettersRequest) (*fermatav1.BulkChangeResponse, error) {
	return s.changeMatching(ctx, job.BulkRedriveDeadLetters, q, job.BulkOptions{IgnoreExclusions: q.GetIgnoreExclusions()})
}

func (s *jobService) BulkDiscardDeadLetters(ctx context.Context,
	q *fermatav1.BulkDiscardDeadLettersRequest) (*fermatav1.BulkChangeResponse, error) {
	return s.changeMatching(ctx, job.BulkDiscardDeadLetters, q, job.BulkOptions{})
}
