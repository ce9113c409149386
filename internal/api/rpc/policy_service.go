package rpc

import (
	"context"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (s *jobService) HintJob(ctx context.Context, q *fermatav1.HintJobRequest) (*fermatav1.Job, error) {
	key, err := convert.ParseJobName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	var h job.Hint
	if q.GetHint() != nil {
		var r convert.Reader
		h = r.Hint("hint", q.GetHint())
		if err := r.Err(); err != nil {
			return nil, err
		}
	}
	return s.recordOrError(s.operations.Hint(ctx, key, h))
}

func (s *jobService) BackfillJob(ctx context.Context, q *fermatav1.BackfillJobRequest) (*fermatav1.Job, error) {
	key, err := convert.ParseJobName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	var r convert.Reader
	request := job.BackfillRequest{RequestID: q.GetRequestId(), Overlap: job.OverlapBufferAll}
	if p := q.GetOverlapPolicy(); p != fermatav1.OverlapPolicy_OVERLAP_POLICY_UNSPECIFIED {
		request.Overlap = convert.OverlapPolicies.FromPB(p)
	}
	if t := r.Begin("start_time", "", q.GetStartTime()); !t.IsZero() {
		request.FromMS = unixtime.MilliOf(t)
	}
	if t := r.End("end_time", "", q.GetEndTime()); !t.IsZero() {
		request.ToMS = unixtime.MilliOf(t)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return s.recordOrError(s.operations.Backfill(ctx, key, request))
}

func (s *jobService) CancelBackfill(ctx context.Context, q *fermatav1.CancelBackfillRequest) (*fermatav1.Job, error) {
	key, err := convert.ParseJobName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	return s.recordOrError(s.operations.CancelBackfill(ctx, key, q.GetBackfillId()))
}

func (s *jobService) ExplainJob(ctx context.Context,
	q *fermatav1.ExplainJobRequest) (*fermatav1.ExplainJobResponse, error) {
	key, err := convert.ParseJobName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	e, err := s.queries.Explain(ctx, key)
	if err != nil {
		return nil, err
	}
	return &fermatav1.ExplainJobResponse{
		Summary: e.Explanation.Summary,
		Reasons: convert.Map(e.Explanation.Reasons, convert.ReasonToPB),
		Job:     s.jobToPB(e.Record),
		Runs:    convert.Map(e.Runs, func(v job.RunView) *fermatav1.Run { return convert.RunToPB(key, v) }),
	}, nil
}
