package registry

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/backoff"
	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/schedule"
)

// Bounds of Preview.
const (
	DefaultPreview = 10
	MaxPreview     = 1000
)

// Preview returns the next nominal times of a schedule with what jitter and clock
// changes make of them and, if the schedule has an interval, the intervals of a
// backoff policy and the runs that it would project. See [job.PreviewRequest].
func (r *Registry) Preview(ctx context.Context, p job.PreviewRequest) (job.Preview, error) {
	if p.Count < 0 || p.Count > MaxPreview {
		return job.Preview{}, job.Invalid("count", "is %d, want 1 to %d, or 0 for %d", p.Count, MaxPreview, DefaultPreview)
	}
	if p.Count == 0 {
		p.Count = DefaultPreview
	}
	v, err := r.previewed(ctx, p)
	if err != nil {
		return job.Preview{}, err
	}
	compiled, err := schedule.Compile(v.d.Schedule, time.UnixMilli(v.d.AnchorMS), v.seed)
	if err != nil {
		return job.Preview{}, job.Invalid("schedule", "%v", err)
	}
	after := p.After
	if after.IsZero() {
		after = time.UnixMilli(v.now)
	}
	var answer job.Preview
	for _, t := range schedule.Upcoming(compiled, after, p.Count, schedule.NewBudget(5)) {
		answer.Times = append(answer.Times, job.PreviewTime{
			Nominal: t, Due: compiled.Jittered(t), Latest: t.Add(compiled.JitterWindow(t)), Remark: compiled.Remark(t),
		})
	}
	if v.backoff && v.d.Schedule.Kind == schedule.KindInterval {
		answer.Intervals = intervals(v.d)
		answer.Projected = v.projected(answer.Times, p.Count)
	}
	return answer, nil
}

// previewed is what a preview is of.
type previewed struct {
	d       *job.Definition // as much of one as previews need
	state   *job.State      // of the job, if its own schedule is shown; else nil
	seed    uint64
	now     int64
	backoff bool // there is a policy to show
}

// previewed puts together what the request says and what the job it names has.
func (r *Registry) previewed(ctx context.Context, p job.PreviewRequest) (v previewed, err error) {
	named := p.Job != job.Key{}
	v.d = &job.Definition{Schedule: p.Schedule, MinInterval: p.MinInterval, MaxInterval: p.MaxInterval}
	if named {
		if faults := job.ValidateKey(p.Job); len(faults) > 0 {
			return v, &job.InvalidError{Violations: faults}
		}
		v.seed = backoff.Seed(p.Job.Record(), 0, 0)
		v.now, err = r.now(ctx, p.Job)
	} else {
		v.now, err = r.o.Store.Now(ctx, 0)
	}
	if err != nil {
		return v, err
	}
	v.d.AnchorMS = v.now
	ownSchedule := named && p.Schedule.Equal(schedule.Spec{})
	if ownSchedule {
		record, err := r.Get(ctx, p.Job)
		if err != nil {
			return v, err
		}
		v.d, v.state, v.backoff = record.Definition, &record.State, true
	}
	if p.Backoff != nil {
		v.d.Backoff, v.d.MinInterval, v.d.MaxInterval, v.backoff = *p.Backoff, p.MinInterval, p.MaxInterval, true
	}
	return v, r.checkPreview(v, p, ownSchedule)
}

// checkPreview refuses what is wrong with the request's part.
func (r *Registry) checkPreview(v previewed, p job.PreviewRequest, ownSchedule bool) error {
	var faults []job.Violation
	if !ownSchedule {
		faults = job.ValidateSchedule("schedule", p.Schedule, time.UnixMilli(v.now), r.o.Limits)
	}
	if p.Backoff != nil {
		for _, e := range p.Backoff.Validate() {
			faults = append(faults, job.Violation{Field: "backoff_policy." + e.Field, Description: e.Reason})
		}
	}
	if len(faults) > 0 {
		return &job.InvalidError{Violations: faults}
	}
	return nil
}

// intervals lists the interval after 0, 1, 2 ... failures until it stops growing.
func intervals(d *job.Definition) []time.Duration {
	c := job.Compiled{Definition: d}
	steps := d.Backoff.Ladder(d.Schedule.Every)
	for failures := range steps {
		steps[failures] = c.EffectiveInterval(int64(failures))
	}
	for n := len(steps); n > 1 && steps[n-1] == steps[n-2]; n-- {
		steps = steps[:n-1]
	}
	return steps
}

// projected are the due times of the next runs if each of them failed at once: the
// job's planned one, or else the first of the schedule, and what the policy makes of
// one failure more each time.
func (v previewed) projected(times []job.PreviewTime, count int) []time.Time {
	var at time.Time
	switch {
	case v.state != nil && v.state.HasRun():
		at = time.UnixMilli(v.state.Due)
	case len(times) > 0:
		at = times[0].Nominal
	default:
		return nil
	}
	var failures int64
	if v.state != nil {
		failures = int64(v.state.Failures)
	}
	c := job.Compiled{Definition: v.d}
	end := v.d.Schedule.EndAt
	var out []time.Time
	for len(out) < count && (end.IsZero() || at.Before(end)) {
		out = append(out, at)
		failures++
		at = schedule.RoundUp(at.Add(c.EffectiveInterval(failures)))
		if at.UnixMilli() >= job.NeverMS {
			break
		}
	}
	return out
}
