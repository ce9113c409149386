package client

import (
	"context"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// RenameOptions configure [Client.RenameJob].
type RenameOptions struct {
	// Etag is that of the job as it was read. If the job was changed since, the call fails with [ErrConflict].
	// Default "": the job is renamed in any case.
	Etag string
}

// RenameJob gives a job another id in its namespace. The job keeps its state, history, dead letters and revisions. Runs
// that are live have to end before.
func (c *Client) RenameJob(ctx context.Context, job, newID string, o RenameOptions) (*Job, error) {
	return callWithRetry(ctx, c, c.jobs.RenameJob, &fermatav1.RenameJobRequest{
		Name: c.JobName(job), NewId: newID, Etag: o.Etag, RequestId: NewRequestID(),
	})
}
