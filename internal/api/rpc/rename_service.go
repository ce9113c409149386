package rpc

import (
	"context"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// JobRenames gives jobs other names.
type JobRenames interface {
	Rename(ctx context.Context, q job.RenameRequest) (job.Record, error)
}

func (s *jobService) RenameJob(ctx context.Context, q *fermatav1.RenameJobRequest) (*fermatav1.Job, error) {
	key, err := convert.ParseJobName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	return s.recordOrError(s.renames.Rename(ctx,
		job.RenameRequest{Key: key, NewID: q.GetNewId(), Etag: q.GetEtag(), RequestID: q.GetRequestId()}))
}
