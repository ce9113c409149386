package rpc

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/access"
	"github.com/fermata-io/fermata/internal/backoff"
	"github.com/fermata-io/fermata/internal/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (s *jobService) PreviewSchedule(ctx context.Context, q *fermatav1.PreviewScheduleRequest) (*fermatav1.PreviewScheduleResponse, error) {
	var r reader
	p := job.PreviewRequest{
		Schedule: r.schedule("schedule", q.GetSchedule()),
		After:    r.end("after", "", q.GetAfter()),
		Count:    int(q.GetCount()),
	}
	if policy := q.GetBackoffPolicy(); policy != nil {
		b := r.backoff("backoff_policy", policy)
		p.Backoff, p.MinInterval, p.MaxInterval = &b.Recurring, b.min, b.max
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	if q.GetJob() != "" {
		var err error
		if p.Job, err = parseJob("job", q.GetJob()); err != nil {
			return nil, err
		}
		if c := callerOf(ctx); c != nil && c.gate.authority != nil {
			if err := c.allowedSome(ctx, access.ReadJobs, p.Job.Namespace); err != nil {
				return nil, err
			}
		}
	}
	preview, err := s.jobs.Preview(ctx, p)
	if err != nil {
		return nil, err
	}
	return &fermatav1.PreviewScheduleResponse{
		DueTimes:          each(preview.Times, func(t job.PreviewTime) *timestamppb.Timestamp { return timestamppb.New(t.Nominal) }),
		Times:             each(preview.Times, previewTimeToPB),
		CalendarFrom:      preview.FirstDay,
		BackoffIntervals:  each(preview.Intervals, durationpb.New),
		ProjectedDueTimes: each(preview.Projected, func(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t) }),
	}, nil
}

func previewTimeToPB(t job.PreviewTime) *fermatav1.ScheduledTime {
	return &fermatav1.ScheduledTime{
		NominalTime: timeToPB(t.Nominal), DueTime: timeToPB(t.Due), LatestDueTime: timeToPB(t.Latest), Remark: t.Remark,
	}
}

func (s *jobService) ListPresets(context.Context, *fermatav1.ListPresetsRequest) (*fermatav1.ListPresetsResponse, error) {
	return &fermatav1.ListPresetsResponse{Presets: each(backoff.Presets(), presetToPB)}, nil
}
