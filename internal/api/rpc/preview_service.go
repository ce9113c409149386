package rpc

import (
	"cmp"
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (s *jobService) PreviewSchedule(ctx context.Context,
	q *fermatav1.PreviewScheduleRequest) (*fermatav1.PreviewScheduleResponse, error) {
	r := s.newReader()
	p := job.PreviewRequest{
		Schedule: r.Schedule("schedule", q.GetSchedule()),
		After:    r.End("after", "", q.GetAfter()),
		Count:    int(q.GetCount()),
	}
	namespace := ""
	if q.GetJob() != "" {
		var err error
		if p.Job, err = convert.ParseJobName("job", q.GetJob()); err != nil {
			return nil, err
		}
		namespace = p.Job.Namespace
	}
	of := job.QueueKey{Namespace: cmp.Or(namespace, job.DefaultNamespace), Queue: job.DefaultQueue}
	if q.GetPolicyQueue() != "" {
		var err error
		if of, err = convert.ParseQueueName("policy_queue", q.GetPolicyQueue()); err != nil {
			return nil, err
		}
		if namespace != "" && of.Namespace != namespace {
			return nil, job.Invalid("policy_queue", "is of namespace %q, but job of %q", job.Clip(of.Namespace, 80), namespace)
		}
		namespace = of.Namespace
		if scope := guard.RoleScopeFrom(ctx, namespace); scope != nil {
			if err := scope.Check(ctx, of.Queue); err != nil {
				return nil, err
			}
		}
	}
	if c := guard.CallerFrom(ctx); namespace != "" && c != nil {
		if err := c.AuthorizeAnyQueue(ctx, authz.ReadJobs, namespace); err != nil {
			return nil, err
		}
	}
	of = visibleDefaults(ctx, of)
	d := job.Definition{Key: job.Key{Namespace: of.Namespace}, Queue: of.Queue, Schedule: p.Schedule}
	if q.GetBackoffPolicy() != nil {
		d := d
		r.Policies("", &d, nil, q.GetBackoffPolicy())
		p.Backoff, p.MinInterval, p.MaxInterval = &d.Backoff, d.MinInterval, d.MaxInterval
	}
	if q.GetRetryPolicy() != nil {
		r.Policies("", &d, q.GetRetryPolicy(), nil)
		p.Retry = &d.Retry
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	preview, err := s.queries.Preview(ctx, p)
	if err != nil {
		return nil, err
	}
	return previewToPB(preview), nil
}

func previewToPB(preview job.Preview) *fermatav1.PreviewScheduleResponse {
	nominal := func(t job.PreviewTime) *timestamppb.Timestamp { return timestamppb.New(t.Nominal) }
	return &fermatav1.PreviewScheduleResponse{
		DueTimes:          convert.Map(preview.Times, nominal),
		Times:             convert.Map(preview.Times, convert.PreviewTimeToPB),
		CalendarFrom:      preview.FirstDay,
		BackoffIntervals:  convert.DurationsToPB(preview.Intervals),
		ProjectedDueTimes: convert.Map(preview.Projected, timestamppb.New),
		RetryDelays:       convert.DurationsToPB(preview.RetryDelays),
	}
}

// visibleDefaults is the queue whose defaults a preview may show to a caller: without the queue, or the
// namespace too, if the roles of the caller do not cover them.
func visibleDefaults(ctx context.Context, of job.QueueKey) job.QueueKey {
	scope := guard.RoleScopeFrom(ctx, of.Namespace)
	switch {
	case scope == nil || scope.Covers(of.Queue):
		return of
	case scope.CoversAny(authz.ReadJobs):
		return job.QueueKey{Namespace: of.Namespace}
	}
	return job.QueueKey{}
}

func (s *jobService) ListPresets(context.Context,
	*fermatav1.ListPresetsRequest) (*fermatav1.ListPresetsResponse, error) {
	presets := convert.Map(s.defaults.AllPresets(), func(p backoff.Preset) *fermatav1.Preset {
		return convert.PresetToPB(s.defaults, p)
	})
	return &fermatav1.ListPresetsResponse{Presets: presets}, nil
}
