package registry

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// MaxBackfillTimes bounds the nominal times of one backfill.
const MaxBackfillTimes = 10_000

// Backfill runs the nominal times of a past range. A request id of a backfill that is in progress, or among
// the last [job.MaxRecent] of the job, has no second effect. Its errors are [job.InvalidError], or
// [job.PreconditionError] if the schedule has no nominal times, or the job no room for another backfill.
func (r *Registry) Backfill(ctx context.Context, key job.Key, q job.BackfillRequest) (job.Record, error) {
	if q.RequestID == "" {
		q.RequestID = strings.ToLower(rand.Text())
	}
	record, err := r.Get(ctx, key)
	if err != nil {
		return job.Record{}, err
	}
	now, err := r.shardNow(ctx, key)
	if err != nil {
		return job.Record{}, err
	}
	if v := checkBackfill(q, now); len(v) > 0 {
		return job.Record{}, &job.InvalidError{Violations: v}
	}
	if err := checkBackfillTimes(record.Definition, q); err != nil {
		return job.Record{}, err
	}
	event := job.StartBackfill{Backfill: job.Backfill{
		ID: q.RequestID, NextMS: q.FromMS - 1, ToMS: q.ToMS - 1,
		Concurrency: backfillConcurrency(record.Definition, q.Overlap),
	}}
	result, err := r.changeJob(ctx, key, event, &record)
	switch {
	case err != nil:
		return job.Record{}, err
	case result.Answer == job.TooMany:
		return job.Record{}, &job.PreconditionError{
			Key: key, Reason: job.ReasonTooManyBackfills,
			Text: "it has no room for another backfill; wait for one to end or cancel one",
		}
	}
	return result.Record, nil
}

func checkBackfill(q job.BackfillRequest, now unixtime.Milli) []job.Violation {
	var list []job.Violation
	refuse := func(bad bool, field, description string) {
		if bad {
			list = append(list, job.Violation{Field: field, Description: description})
		}
	}
	if fault := job.ValidateManualID(q.RequestID); fault != "" {
		refuse(true, "request_id", fault)
	}
	refuse(q.FromMS <= 0, "start_time", "is required, and lies after 1970-01-01T00:00:00Z")
	refuse(q.ToMS <= q.FromMS, "end_time", "is not after start_time")
	refuse(q.ToMS > now, "end_time", "lies in the future")
	refuse(q.Overlap != job.OverlapBufferAll && q.Overlap != job.OverlapAllowAll, "overlap_policy",
		"want OVERLAP_POLICY_BUFFER_ALL or OVERLAP_POLICY_ALLOW_ALL")
	return list
}

// checkBackfillTimes refuses ranges with no nominal time, or with too many.
func checkBackfillTimes(d *job.Definition, q job.BackfillRequest) error {
	if !d.Recurring() || d.Schedule.FixedDelay {
		return &job.PreconditionError{
			Key: d.Key, Reason: job.ReasonNoNominalTimes,
			Text: "its schedule has no nominal times that a past range could hold",
		}
	}
	compiled, err := job.Compile(d)
	if err != nil {
		return fmt.Errorf("%w: %w", job.ErrCorrupt, err)
	}
	switch n, counted := compiled.PastTimes(q.FromMS, q.ToMS, MaxBackfillTimes); {
	case !counted:
		return job.Invalid("end_time", "the exclusions of the schedule leave so few of so many times that "+
			"to count them takes too long; ask for a part of the range")
	case n == 0:
		return job.Invalid("end_time", "there is no nominal time in the range")
	case n > MaxBackfillTimes:
		return job.Invalid("end_time", "there are more than %d nominal times in the range; ask for a part of it",
			MaxBackfillTimes)
	}
	return nil
}

// backfillConcurrency returns how many runs of a backfill may be live at once.
func backfillConcurrency(d *job.Definition, o job.Overlap) uint8 {
	if o != job.OverlapAllowAll {
		return 1
	}
	limit := d.OverlapLimit
	if limit == 0 {
		limit = job.DefaultOverlapLimit
	}
	return uint8(min(limit, job.MaxConcurrentRuns))
}

// CancelBackfill ends a backfill; its started runs continue.
func (r *Registry) CancelBackfill(ctx context.Context, key job.Key, id string) (job.Record, error) {
	if fault := job.ValidateManualID(id); fault != "" {
		return job.Record{}, job.Invalid("backfill_id", "%s", fault)
	}
	result, err := r.changeJob(ctx, key, job.StopBackfill{ID: id}, nil)
	switch {
	case err != nil:
		return job.Record{}, err
	case result.Answer == job.NoSuchRun:
		return job.Record{}, &job.MissingPartError{Key: key, Collection: "backfills", ID: id}
	}
	return result.Record, nil
}
