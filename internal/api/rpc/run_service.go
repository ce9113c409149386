package rpc

import (
	"context"
	"errors"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (s *jobService) RunJob(ctx context.Context, q *fermatav1.RunJobRequest) (*fermatav1.RunJobResponse, error) {
	key, err := convert.ParseJobName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	v, joined, err := s.runs.RunJob(ctx, key, job.RequestManualRun{
		RequestID: q.GetRequestId(), Mode: convert.BackoffModes.FromPB(q.GetBackoff()),
		IgnoreExclusions: q.GetIgnoreExclusions(),
	})
	if err != nil {
		return nil, err
	}
	return &fermatav1.RunJobResponse{Run: convert.RunToPB(key, v), Coalesced: joined}, nil
}

func (s *jobService) RunJobWithPayload(ctx context.Context,
	q *fermatav1.RunJobWithPayloadRequest) (*fermatav1.Run, error) {
	key, err := convert.ParseJobName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	request, err := convert.RunWithPayloadFromPB(q)
	if err != nil {
		return nil, err
	}
	v, err := s.runs.RunJobWithPayload(ctx, key, request)
	if err != nil {
		return nil, err
	}
	return convert.RunToPB(key, v), nil
}

func (s *jobService) ListRuns(ctx context.Context, q *fermatav1.ListRunsRequest) (*fermatav1.ListRunsResponse, error) {
	namespace, all, err := convert.ParseJobsParent("parent", q.GetParent())
	if err != nil {
		return nil, err
	}
	if all {
		return s.listEndedRuns(ctx, namespace, q)
	}
	key, err := convert.ParseJobName("parent", q.GetParent())
	if err == nil {
		err = requireNoRunFilters(q)
	}
	if err != nil {
		return nil, err
	}
	views, err := s.runs.ListRuns(ctx, key)
	if err != nil {
		return nil, err
	}
	response := &fermatav1.ListRunsResponse{Runs: make([]*fermatav1.Run, len(views))}
	for i, v := range views {
		response.Runs[i] = convert.RunToPB(key, v)
	}
	return response, nil
}

func (s *jobService) GetRun(ctx context.Context, q *fermatav1.GetRunRequest) (*fermatav1.Run, error) {
	return s.oneRun(ctx, q.GetName(), s.runs.GetRun)
}

func (s *jobService) CancelRun(ctx context.Context, q *fermatav1.CancelRunRequest) (*fermatav1.Run, error) {
	return s.oneRun(ctx, q.GetName(), s.runs.CancelRun)
}

func (s *jobService) oneRun(ctx context.Context, name string,
	call func(context.Context, job.Key, string) (job.RunView, error),
) (*fermatav1.Run, error) {
	key, runID, err := convert.ParseRunName("name", name)
	if err != nil {
		return nil, err
	}
	v, err := call(ctx, key, runID)
	if err != nil {
		return nil, err
	}
	return convert.RunToPB(key, v), nil
}

func isNotFound(err error) bool { return errors.Is(err, job.ErrNotFound) }
