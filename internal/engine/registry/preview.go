package registry

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Bounds of Preview.
const (
	DefaultPreview = 10
	MaxPreview     = 1000

	maxRetryDelays = 50
)

// Preview returns the next nominal times of a schedule, with the effects of jitter and clock changes. If the
// schedule has an interval, it returns the intervals of a backoff policy and the projected runs as well. See
// [job.PreviewRequest].
func (r *Registry) Preview(ctx context.Context, p job.PreviewRequest) (job.Preview, error) {
	if p.Count < 0 || p.Count > MaxPreview {
		return job.Preview{}, job.Invalid("count", "is %d, want 1 to %d, or 0 for %d", p.Count, MaxPreview,
			DefaultPreview)
	}
	if p.Count == 0 {
		p.Count = DefaultPreview
	}
	v, err := r.resolvePreview(ctx, p)
	if err != nil {
		return job.Preview{}, err
	}
	compiled, err := schedule.Compile(v.d.Schedule, v.d.AnchorMS.Time(), v.seed)
	if err != nil {
		return job.Preview{}, job.Invalid("schedule", "%v", err)
	}
	after := p.After
	if after.IsZero() {
		after = v.now.Time()
	}
	answer := job.Preview{FirstDay: v.d.FirstDay()}
	for _, t := range schedule.Upcoming(compiled, after, p.Count, scheduleBudget(v.d.Schedule)) {
		answer.Times = append(answer.Times, job.PreviewTime{
			Nominal: t, Due: compiled.Jittered(t), Latest: t.Add(compiled.JitterWindow(t)), Remark: compiled.DescribeShift(t),
		})
	}
	if v.retry {
		answer.RetryDelays = v.d.Retry.Ladder(maxRetryDelays)
	}
	if v.backoff && v.d.Schedule.Kind == schedule.KindInterval {
		answer.Intervals = backoffIntervals(v.d)
		answer.Projected, err = v.projectRuns(ctx, answer.Times, p.Count)
	}
	return answer, err
}

// previewInput is what a preview is computed from.
type previewInput struct {
	d       *job.Definition // as much of one as previews need
	state   *job.State      // of the job, if its own schedule is shown; else nil
	seed    uint64
	now     unixtime.Milli
	backoff bool // there is a policy to show
	retry   bool // there are attempts to show
}

// resolvePreview combines the request with the job that it names.
func (r *Registry) resolvePreview(ctx context.Context, p job.PreviewRequest) (v previewInput, err error) {
	named := p.Job != job.Key{}
	v.d = &job.Definition{Schedule: p.Schedule, MinInterval: p.MinInterval, MaxInterval: p.MaxInterval}
	if named {
		if faults := job.ValidateKey(p.Job); len(faults) > 0 {
			return v, &job.InvalidError{Violations: faults}
		}
		v.d.Key, v.seed = p.Job, backoff.Seed(string(p.Job.Record()), 0, 0)
		v.now, err = r.shardNow(ctx, p.Job)
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
		v.d, v.state, v.backoff, v.retry = record.Definition, &record.State, true, true
	}
	if p.Retry != nil {
		v.d.Retry, v.retry = *p.Retry, true
	}
	if p.Backoff != nil {
		v.d.Backoff, v.d.MinInterval, v.d.MaxInterval, v.backoff = *p.Backoff, p.MinInterval, p.MaxInterval, true
	}
	return v, r.checkPreview(v, p, ownSchedule)
}

// checkPreview validates the request's part.
func (r *Registry) checkPreview(v previewInput, p job.PreviewRequest, ownSchedule bool) error {
	var faults []job.Violation
	if !ownSchedule {
		faults = job.ValidateSchedule("schedule", p.Schedule, v.now.Time(), r.limitsForSearch())
	}
	if p.Backoff != nil {
		for _, e := range p.Backoff.Validate() {
			faults = append(faults, job.Violation{Field: "backoff_policy." + e.Field, Description: e.Reason})
		}
	}
	if p.Retry != nil {
		for _, e := range p.Retry.Validate() {
			faults = append(faults, job.Violation{Field: "retry_policy." + e.Field, Description: e.Reason})
		}
	}
	if len(faults) > 0 {
		return &job.InvalidError{Violations: faults}
	}
	return nil
}

// backoffIntervals lists the interval after 0, 1, 2 ... failures until it stops growing.
func backoffIntervals(d *job.Definition) []time.Duration {
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

// attemptWork is how many steps of [maxCallWork] the decision on one attempt takes for each expression of the
// schedule.
const attemptWork = 8

// projectRuns returns the due times of the next runs if each of them failed at once: of the job's planned run,
// or else of the first of the schedule, and of those that follow, within the work of a call.
func (v previewInput) projectRuns(ctx context.Context, times []job.PreviewTime, count int) ([]time.Time, error) {
	d := *v.d
	if v.state == nil {
		// There is no run to compute the jitter of.
		d.Schedule.Jitter, d.Backoff.Jitter, d.Retry.MaxAttempts = 0, backoff.Jitter{Kind: backoff.JitterNone}, 1
	}
	c, err := job.Compile(&d)
	if err != nil {
		return nil, job.Invalid("schedule", "%v", err)
	}
	state := v.state
	if state == nil {
		if len(times) == 0 {
			return nil, nil
		}
		first := job.New(c, v.now).State
		state = &first
		state.Nominal = unixtime.MilliOf(times[0].Nominal)
		state.Due = state.Nominal
	}
	var work scheduleWork
	more := func() bool {
		work.Charge(int64(attemptWork * d.Schedule.Weight()))
		return !work.Exhausted() && ctx.Err() == nil
	}
	var out []time.Time
	for _, ms := range job.ProjectFailures(c.Within(scheduleBudget(d.Schedule)), *state, v.now, count, more) {
		out = append(out, ms.Time())
	}
	return out, ctx.Err()
}
