package registry

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// hintGrace is how far in the past the next run of a hint may lie: the clocks of callers differ from that of
// the shard.
const hintGrace = time.Minute

// Hint overrides when the job runs next, or how often; a hint without a source clears the present one. An
// UntilMS of zero is [job.DefaultHintLife] from now, or the next run if that is later. Its errors are
// [job.InvalidError], or [job.PreconditionError] if the schedule has no interval to override.
func (r *Registry) Hint(ctx context.Context, key job.Key, h job.Hint) (job.Record, error) {
	record, err := r.Get(ctx, key)
	if err != nil {
		return job.Record{}, err
	}
	if h.Source != job.HintNone {
		now, err := r.shardNow(ctx, key)
		if err != nil {
			return job.Record{}, err
		}
		if h.UntilMS == 0 {
			h.UntilMS = max(now.Add(job.DefaultHintLife), h.AtMS)
		}
		if v := r.checkHint(h, now); len(v) > 0 {
			return job.Record{}, &job.InvalidError{Violations: v}
		}
		if h.IntervalMS != 0 && !record.Definition.Recurring() {
			return job.Record{}, &job.PreconditionError{
				Key: key, Reason: job.ReasonNoInterval, Text: "its schedule has no interval that a hint could override",
			}
		}
	}
	result, err := r.changeJob(ctx, key, job.SetHint{Hint: h}, &record)
	return result.Record, err
}

func (r *Registry) checkHint(h job.Hint, now unixtime.Milli) []job.Violation {
	var list []job.Violation
	refuse := func(bad bool, field, description string) {
		if bad {
			list = append(list, job.Violation{Field: field, Description: description})
		}
	}
	least, interval := r.o.Limits.MinInterval, time.Duration(h.IntervalMS)*time.Millisecond
	last := now.Add(job.MaxHint)
	refuse(h.Source != job.HintOperator && h.Source != job.HintPlanner, "hint.source",
		"want SOURCE_OPERATOR or SOURCE_PLANNER")
	refuse(h.AtMS == 0 && h.IntervalMS == 0, "hint", "has neither next_run_time nor interval")
	refuse(h.IntervalMS != 0 && (interval < least || interval > job.MaxHint), "hint.interval",
		"is "+interval.String()+", want "+least.String()+" to "+job.MaxHint.String())
	refuse(h.AtMS != 0 && h.AtMS < now.Add(-hintGrace), "hint.next_run_time",
		"lies more than a minute in the past")
	refuse(h.AtMS > last, "hint.next_run_time", "lies more than 30 days ahead")
	refuse(h.UntilMS <= now && h.AtMS <= now, "hint.expire_time", "has passed")
	refuse(h.UntilMS < h.AtMS, "hint.expire_time", "lies before next_run_time")
	refuse(h.UntilMS > last, "hint.expire_time", "lies more than 30 days ahead")
	if fault := job.ValidateNote(h.Reason); fault != "" {
		refuse(true, "hint.reason", fault)
	}
	return list
}
