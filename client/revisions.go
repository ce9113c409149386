package client

import (
	"context"
	"strconv"
	"strings"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Messages about the revisions of a job.
type (
	JobRevision  = fermatav1.JobRevision
	RevisionDiff = fermatav1.DiffJobRevisionsResponse
)

// RevisionName returns the full name of a revision of a job.
func (c *Client) RevisionName(job string, revision int64) string {
	return c.JobName(job) + "/revisions/" + strconv.FormatInt(revision, 10)
}

// JobRevisions returns the current revision of a job, then stored earlier ones, newest first, all without their
// definitions.
func (c *Client) JobRevisions(ctx context.Context, job string) ([]*JobRevision, error) {
	r, err := callWithRetry(ctx, c, c.jobs.ListJobRevisions, &fermatav1.ListJobRevisionsRequest{Parent: c.JobName(job)})
	return r.GetRevisions(), err
}

// JobRevision returns a revision of a job with its definition.
func (c *Client) JobRevision(ctx context.Context, job string, revision int64) (*JobRevision, error) {
	return callWithRetry(ctx, c, c.jobs.GetJobRevision,
		&fermatav1.GetJobRevisionRequest{Name: c.RevisionName(job, revision)})
}

// DiffJobRevisions compares two revisions of a job. to 0 is the current one, from 0 the one before to.
func (c *Client) DiffJobRevisions(ctx context.Context, job string, from, to int64) (*RevisionDiff, error) {
	return callWithRetry(ctx, c, c.jobs.DiffJobRevisions,
		&fermatav1.DiffJobRevisionsRequest{Name: c.JobName(job), FromRevision: from, ToRevision: to})
}

// RestoreRevisionOptions configure [Client.RestoreJobRevision].
type RestoreRevisionOptions struct {
	// Etag is that of the job as it was read. If the job was changed since, the call fails with [ErrConflict].
	// Default "": the revision is restored in any case.
	Etag string
}

// RestoreJobRevision gives a job the definition of an earlier revision, as an edit. A live run keeps its
// definition.
func (c *Client) RestoreJobRevision(ctx context.Context, job string, revision int64,
	o RestoreRevisionOptions) (*Job, error) {
	return callWithRetry(ctx, c, c.jobs.RestoreJobRevision, &fermatav1.RestoreJobRevisionRequest{
		Name: c.RevisionName(job, revision), Etag: o.Etag, RequestId: NewRequestID(),
	})
}

// CurrentRevision returns the number of the revision that a job has, by its etag; 0 if that is unknown.
func CurrentRevision(j *Job) int64 {
	_, revision, _ := strings.Cut(j.GetEtag(), "-")
	n, err := strconv.ParseInt(revision, 36, 64)
	if err != nil {
		return 0
	}
	return n
}
