package registry

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/schedule"
)

// Bounds of Preview.
const (
	DefaultPreview = 10
	MaxPreview     = 1000
)

// Preview returns the next nominal times of a schedule, and the intervals of a
// backoff policy if one is given and the schedule has an interval.
func (r *Registry) Preview(ctx context.Context, p job.PreviewRequest) (job.Preview, error) {
	if p.Count < 0 || p.Count > MaxPreview {
		return job.Preview{}, job.Invalid("count", "is %d, want 1 to %d, or 0 for %d", p.Count, MaxPreview, DefaultPreview)
	}
	if p.Count == 0 {
		p.Count = DefaultPreview
	}
	now, err := r.o.Store.Now(ctx, 0)
	if err != nil {
		return job.Preview{}, err
	}
	anchor := time.UnixMilli(now)
	if p.After.IsZero() {
		p.After = anchor
	}
	violations := job.ValidateSchedule("schedule", p.Schedule, anchor, r.o.Limits)
	if p.Backoff != nil {
		for _, e := range p.Backoff.Validate() {
			violations = append(violations, job.Violation{Field: "backoff_policy." + e.Field, Description: e.Reason})
		}
	}
	if len(violations) > 0 {
		return job.Preview{}, &job.InvalidError{Violations: violations}
	}
	compiled, err := schedule.Compile(p.Schedule, anchor)
	if err != nil {
		return job.Preview{}, job.Invalid("schedule", "%v", err)
	}
	answer := job.Preview{Times: schedule.Upcoming(compiled, p.After, p.Count)}
	if p.Backoff != nil && p.Schedule.Kind == schedule.KindInterval {
		answer.Intervals = intervals(p)
	}
	return answer, nil
}

// intervals lists the interval after 0, 1, 2 ... failures until it stops growing.
func intervals(p job.PreviewRequest) []time.Duration {
	c := job.Compiled{Definition: job.Definition{
		Schedule: p.Schedule, Backoff: *p.Backoff, MinInterval: p.MinInterval, MaxInterval: p.MaxInterval,
	}}
	steps := p.Backoff.Ladder(p.Schedule.Every)
	for failures := range steps {
		steps[failures] = c.EffectiveInterval(int64(failures))
	}
	for n := len(steps); n > 1 && steps[n-1] == steps[n-2]; n-- {
		steps = steps[:n-1]
	}
	return steps
}
