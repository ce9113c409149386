package rpc

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// backupService implements fermatav1.BackupServiceServer.
type backupService struct {
	fermatav1.UnimplementedBackupServiceServer
	jobs     Jobs
	defaults *backoff.Defaults // nil: there are none
}

func (s *backupService) ExportJobs(ctx context.Context, q *fermatav1.ExportJobsRequest) (*fermatav1.ExportJobsResponse, error) {
	filter, err := filterOf(q)
	if err != nil {
		return nil, err
	}
	page, err := s.jobs.Backups(ctx, filter, int(q.GetPageSize()), q.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &fermatav1.ExportJobsResponse{Jobs: each(page.Backups, backupToPB), NextPageToken: page.Next}, nil
}

func backupToPB(b job.Backup) *fermatav1.JobBackup {
	p := &fermatav1.JobBackup{Job: definitionToPB(&b.Definition)}
	if b.Checkpoint != nil {
		p.Checkpoint = checkpointToPB(b.Definition.Key, b.Checkpoint)
	}
	return p
}

func (s *backupService) RestoreJobs(ctx context.Context, q *fermatav1.RestoreJobsRequest) (*fermatav1.RestoreJobsResponse, error) {
	if n := len(q.GetJobs()); n > maxBatch {
		return nil, job.Invalid("jobs", "has %d entries, at most %d are allowed", n, maxBatch)
	}
	namespace, err := parseNamespace("parent", q.GetParent())
	if err != nil {
		return nil, err
	}
	existing := existings.model(q.GetExisting())
	if existing == unknown {
		return nil, job.Invalid("existing", "is unknown")
	}
	answers := make([]job.RestoreAnswer, len(q.GetJobs()))
	var good []job.Backup
	var place []int
	for i, p := range q.GetJobs() {
		b, err := s.readBackup(namespace, p)
		if err != nil {
			answers[i].Err = err
			continue
		}
		good, place = append(good, b), append(place, i)
	}
	for i, answer := range s.jobs.Restore(ctx, good, existing) {
		answers[place[i]] = answer
	}
	return &fermatav1.RestoreJobsResponse{Results: each(answers, restoredToPB)}, nil
}

// readBackup reads a job with its checkpoint into a namespace.
func (s *backupService) readBackup(namespace string, p *fermatav1.JobBackup) (job.Backup, error) {
	name := p.GetJob().GetName()
	key := job.Key{Namespace: namespace, ID: lastPart(name)}
	if key.ID == "" {
		return job.Backup{}, job.Invalid("job.name", "is empty")
	}
	r := reader{defaults: s.defaults}
	b := job.Backup{Definition: r.definition(key, p.GetJob())}
	b.Definition.PayloadKey = p.GetJob().GetPayloadKeyId()
	if p.GetCheckpoint() != nil {
		b.Checkpoint = r.checkpoint("checkpoint", p.GetCheckpoint())
	}
	return b, r.err()
}

func restoredToPB(a job.RestoreAnswer) *fermatav1.RestoreJobsResponse_Result {
	if a.Err == nil {
		return &fermatav1.RestoreJobsResponse_Result{Outcome: restoreOutcomes.pb(a.Outcome)}
	}
	st, _ := toStatus(a.Err)
	p := st.Proto()
	return &fermatav1.RestoreJobsResponse_Result{Code: p.GetCode(), Message: p.GetMessage(), Details: p.GetDetails()}
}

var existings = enum[fermatav1.RestoreJobsRequest_Existing, job.Existing]{
	{fermatav1.RestoreJobsRequest_EXISTING_UNSPECIFIED, job.ExistingFail},
	{fermatav1.RestoreJobsRequest_EXISTING_FAIL, job.ExistingFail},
	{fermatav1.RestoreJobsRequest_EXISTING_SKIP, job.ExistingSkip},
	{fermatav1.RestoreJobsRequest_EXISTING_REPLACE, job.ExistingReplace},
}

var restoreOutcomes = enum[fermatav1.RestoreJobsResponse_Result_Outcome, job.RestoreOutcome]{
	{fermatav1.RestoreJobsResponse_Result_OUTCOME_CREATED, job.RestoreCreated},
	{fermatav1.RestoreJobsResponse_Result_OUTCOME_UNCHANGED, job.RestoreUnchanged},
	{fermatav1.RestoreJobsResponse_Result_OUTCOME_SKIPPED, job.RestoreSkipped},
	{fermatav1.RestoreJobsResponse_Result_OUTCOME_REPLACED, job.RestoreReplaced},
}
