package rpc

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (s *jobService) HintJob(ctx context.Context, q *fermatav1.HintJobRequest) (*fermatav1.Job, error) {
	key, err := parseJob("name", q.GetName())
	if err != nil {
		return nil, err
	}
	var h job.Hint
	if q.GetHint() != nil {
		var r reader
		h = r.hint("hint", q.GetHint())
		if err := r.err(); err != nil {
			return nil, err
		}
	}
	return s.answer(s.jobs.Hint(ctx, key, h))
}

func (s *jobService) BackfillJob(ctx context.Context, q *fermatav1.BackfillJobRequest) (*fermatav1.Job, error) {
	key, err := parseJob("name", q.GetName())
	if err != nil {
		return nil, err
	}
	var r reader
	request := job.BackfillRequest{RequestID: q.GetRequestId(), Overlap: job.OverlapBufferAll}
	if p := q.GetOverlapPolicy(); p != fermatav1.OverlapPolicy_OVERLAP_POLICY_UNSPECIFIED {
		request.Overlap = overlaps.model(p)
	}
	if t := r.begin("start_time", "", q.GetStartTime()); !t.IsZero() {
		request.FromMS = t.UnixMilli()
	}
	if t := r.end("end_time", "", q.GetEndTime()); !t.IsZero() {
		request.ToMS = t.UnixMilli()
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return s.answer(s.jobs.Backfill(ctx, key, request))
}

func (s *jobService) CancelBackfill(ctx context.Context, q *fermatav1.CancelBackfillRequest) (*fermatav1.Job, error) {
	key, err := parseJob("name", q.GetName())
	if err != nil {
		return nil, err
	}
	return s.answer(s.jobs.CancelBackfill(ctx, key, q.GetBackfillId()))
}

func (s *jobService) ExplainJob(ctx context.Context, q *fermatav1.ExplainJobRequest) (*fermatav1.ExplainJobResponse, error) {
	key, err := parseJob("name", q.GetName())
	if err != nil {
		return nil, err
	}
	e, err := s.jobs.Explain(ctx, key)
	if err != nil {
		return nil, err
	}
	return &fermatav1.ExplainJobResponse{
		Summary: e.Explanation.Summary,
		Reasons: each(e.Explanation.Reasons, reasonToPB),
		Job:     s.record(e.Record),
		Runs:    each(e.Runs, func(v job.RunView) *fermatav1.Run { return runToPB(key, v) }),
	}, nil
}

func reasonToPB(r job.Reason) *fermatav1.Reason {
	return &fermatav1.Reason{
		Kind: reasonKinds.pb(r.Kind), Message: r.Message, SinceTime: msToPB(r.SinceMS), UntilTime: msToPB(r.UntilMS),
		Key: r.Key, By: r.By,
	}
}

var reasonKinds = enum[fermatav1.Reason_Kind, job.ReasonKind]{
	{fermatav1.Reason_KIND_NOT_DUE, job.ReasonNotDue},
	{fermatav1.Reason_KIND_RETRY, job.ReasonRetry},
	{fermatav1.Reason_KIND_BACKOFF, job.ReasonBackoff},
	{fermatav1.Reason_KIND_HINT, job.ReasonHint},
	{fermatav1.Reason_KIND_PAUSED, job.ReasonPaused},
	{fermatav1.Reason_KIND_RUNNING, job.ReasonRunning},
	{fermatav1.Reason_KIND_OVERLAP, job.ReasonOverlap},
	{fermatav1.Reason_KIND_LOCK, job.ReasonLock},
	{fermatav1.Reason_KIND_TARGET, job.ReasonTarget},
	{fermatav1.Reason_KIND_PACE, job.ReasonPace},
	{fermatav1.Reason_KIND_QUEUE_CONCURRENCY, job.ReasonQueueConcurrency},
	{fermatav1.Reason_KIND_QUEUE_RATE, job.ReasonQueueRate},
	{fermatav1.Reason_KIND_NO_WORKER, job.ReasonNoWorker},
	{fermatav1.Reason_KIND_NO_SLOT, job.ReasonNoSlot},
	{fermatav1.Reason_KIND_NO_HOLDER, job.ReasonNoHolder},
	{fermatav1.Reason_KIND_DEAD, job.ReasonDead},
	{fermatav1.Reason_KIND_DONE, job.ReasonDone},
	{fermatav1.Reason_KIND_SCHEDULE, job.ReasonSchedule},
	{fermatav1.Reason_KIND_PAYLOAD, job.ReasonPayload},
	{fermatav1.Reason_KIND_QUEUE_PAUSED, job.ReasonQueuePaused},
	{fermatav1.Reason_KIND_EXCLUSION, job.ReasonExclusion},
}
