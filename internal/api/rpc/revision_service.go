package rpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// JobRevisions reads the definitions that a job had before, and restores them.
type JobRevisions interface {
	Revisions(ctx context.Context, key job.Key) (job.JobRevisions, error)
	// DiffRevisions returns two revisions; to 0 is the current one, from 0 the one before to.
	DiffRevisions(ctx context.Context, key job.Key, from, to uint32) (job.RevisionDiff, error)
	RestoreRevision(ctx context.Context, key job.Key, revision uint32, etag, requestID string) (job.Record, error)
}

// CallerEdit describes a call that edits jobs, for the revisions that it stores.
func CallerEdit(ctx context.Context) job.Edit {
	method, _ := grpc.Method(ctx)
	return job.Edit{
		Identity: job.ClipWithDigest(callerSubject(ctx), job.MaxTrailText), Method: method[strings.LastIndexByte(method, '/')+1:],
	}
}

func (s *jobService) ListJobRevisions(ctx context.Context,
	q *fermatav1.ListJobRevisionsRequest) (*fermatav1.ListJobRevisionsResponse, error) {
	key, err := convert.ParseJobName("parent", q.GetParent())
	if err != nil {
		return nil, err
	}
	all, err := s.revisions.Revisions(ctx, key)
	if err != nil {
		return nil, err
	}
	out := &fermatav1.ListJobRevisionsResponse{}
	for i, r := range all {
		out.Revisions = append(out.Revisions, convert.RevisionToPB(r, i == 0))
	}
	return out, nil
}

func (s *jobService) GetJobRevision(ctx context.Context,
	q *fermatav1.GetJobRevisionRequest) (*fermatav1.JobRevision, error) {
	key, revision, err := convert.ParseRevisionName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	all, err := s.revisions.Revisions(ctx, key)
	if err != nil {
		return nil, err
	}
	r := all.Find(revision)
	if r == nil {
		return nil, job.MissingRevisionError(key, revision)
	}
	p := convert.RevisionToPB(*r, r == &all[0])
	p.Job = convert.RevisedJobToPB(r.Definition)
	return p, nil
}

func (s *jobService) DiffJobRevisions(ctx context.Context,
	q *fermatav1.DiffJobRevisionsRequest) (*fermatav1.DiffJobRevisionsResponse, error) {
	key, err := convert.ParseJobName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	from, err := convert.ParseRevision("from_revision", q.GetFromRevision())
	if err != nil {
		return nil, err
	}
	to, err := convert.ParseRevision("to_revision", q.GetToRevision())
	if err != nil {
		return nil, err
	}
	diff, err := s.revisions.DiffRevisions(ctx, key, from, to)
	if err != nil {
		return nil, err
	}
	return convert.RevisionDiffToPB(diff), nil
}

func (s *jobService) RestoreJobRevision(ctx context.Context,
	q *fermatav1.RestoreJobRevisionRequest) (*fermatav1.Job, error) {
	key, revision, err := convert.ParseRevisionName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	return s.recordOrError(s.revisions.RestoreRevision(ctx, key, revision, q.GetEtag(), q.GetRequestId()))
}

// addRevisionName adds the name of the revision that a call has made to its audit record.
func addRevisionName(r *job.TrailRecord, p *fermatav1.Job) {
	if name := convert.NameOfCurrentRevision(p); name != "" {
		r.Names = append(r.Names, name)
	}
}
