package rpc

import (
	"context"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// backupService implements fermatav1.BackupServiceServer.
type backupService struct {
	fermatav1.UnimplementedBackupServiceServer
	jobs     JobBackups
	defaults *backoff.Defaults // nil: there are none
}

func (s *backupService) ExportJobs(ctx context.Context,
	q *fermatav1.ExportJobsRequest) (*fermatav1.ExportJobsResponse, error) {
	filter, err := filterFromPB(q)
	if err != nil {
		return nil, err
	}
	page, err := s.jobs.ExportJobs(ctx, filter, int(q.GetPageSize()), q.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &fermatav1.ExportJobsResponse{
		Jobs: convert.Map(page.Backups, convert.BackupToPB), NextPageToken: page.Next,
	}, nil
}

func (s *backupService) RestoreJobs(ctx context.Context,
	q *fermatav1.RestoreJobsRequest) (*fermatav1.RestoreJobsResponse, error) {
	if n := len(q.GetJobs()); n > maxBatch {
		return nil, job.Invalid("jobs", "has %d entries, at most %d are allowed", n, maxBatch)
	}
	namespace, err := convert.ParseNamespace("parent", q.GetParent())
	if err != nil {
		return nil, err
	}
	existing := convert.ExistingPolicies.FromPB(q.GetExisting())
	if existing == convert.Unknown {
		return nil, job.Invalid("existing", "is unknown")
	}
	answers := make([]job.RestoreAnswer, len(q.GetJobs()))
	var good []job.Backup
	var place []int
	for i, p := range q.GetJobs() {
		b, err := convert.BackupFromPB(s.defaults, namespace, p)
		if err != nil {
			answers[i].Err = err
			continue
		}
		good, place = append(good, b), append(place, i)
	}
	for i, answer := range s.jobs.Restore(ctx, good, existing) {
		answers[place[i]] = answer
	}
	return &fermatav1.RestoreJobsResponse{Results: convert.Map(answers, restoredToPB)}, nil
}

func restoredToPB(a job.RestoreAnswer) *fermatav1.RestoreJobsResponse_Result {
	if a.Err == nil {
		return &fermatav1.RestoreJobsResponse_Result{
			Outcome: convert.RestoreOutcomes.ToPB(a.Outcome), Warnings: a.Warnings,
		}
	}
	st, _ := apierror.ToStatus(a.Err)
	p := st.Proto()
	return &fermatav1.RestoreJobsResponse_Result{Code: p.GetCode(), Message: p.GetMessage(), Details: p.GetDetails()}
}
