package convert

import (
	"cmp"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// runPolicies reads what governs the runs of a job beside one another.
func (r *Reader) runPolicies(d *job.Definition, j *fermatav1.Job) {
	d.Overlap, d.OverlapLimit = OverlapPolicies.FromPB(j.GetOverlapPolicy()), int(j.GetOverlapLimit())
	m := j.GetMisfirePolicy()
	d.Misfire = job.Misfire{
		Policy:     misfirePolicies.FromPB(m.GetPolicy()),
		Window:     r.readDuration("job.misfire_policy.catch_up_window", "", m.GetCatchUpWindow(), 0),
		MaxCatchUp: int(m.GetMaxCatchUp()),
	}
	d.Locks = nil
	for _, l := range j.GetLocks() {
		d.Locks = append(d.Locks, job.Lock{Key: l.GetKey(), Limit: cmp.Or(int(l.GetLimit()), 1)})
	}
	d.Target, d.PauseAfter = j.GetTarget(), int(j.GetPauseAfterFailures())
	d.MaxLag = r.readDuration("job.max_lag", "", j.GetMaxLag(), 0)
}

func misfireToPB(m job.Misfire) *fermatav1.MisfirePolicy {
	return &fermatav1.MisfirePolicy{
		Policy: misfirePolicies.ToPB(m.Policy), CatchUpWindow: nonZeroDurationToPB(m.Window), MaxCatchUp: int32(m.MaxCatchUp),
	}
}

func lockToPB(l job.Lock) *fermatav1.Lock {
	return &fermatav1.Lock{Key: l.Key, Limit: int32(l.Limit)}
}

// Hint reads a hint. Its source defaults to the operator.
func (r *Reader) Hint(field string, h *fermatav1.Hint) job.Hint {
	out := job.Hint{
		Source:     hintSources.FromPB(h.GetSource()),
		IntervalMS: job.RoundUpMS(r.readDuration(field, ".interval", h.GetInterval(), 0)),
		Reason:     h.GetReason(),
	}
	if t := r.Begin(field, ".next_run_time", h.GetNextRunTime()); !t.IsZero() {
		out.AtMS = unixtime.MilliOf(t)
	}
	if t := r.Begin(field, ".expire_time", h.GetExpireTime()); !t.IsZero() {
		out.UntilMS = unixtime.MilliOf(t)
	}
	return out
}

func hintToPB(h job.Hint) *fermatav1.Hint {
	if h.Source == job.HintNone {
		return nil
	}
	return &fermatav1.Hint{
		Source: hintSources.ToPB(h.Source), NextRunTime: MillisToPB(h.AtMS),
		Interval: nonZeroDurationToPB(msToDuration(h.IntervalMS)), ExpireTime: MillisToPB(h.UntilMS),
		Reason: h.Reason,
	}
}

func holdToPB(h job.Hold) *fermatav1.Hold {
	if h.Reason == job.HeldNone {
		return nil
	}
	return &fermatav1.Hold{
		Reason: holdReasons.ToPB(h.Reason), Key: h.Key, BlockedBy: h.By,
		SinceTime: MillisToPB(h.SinceMS), DueTime: MillisToPB(h.DueMS),
	}
}

// backfillToPB writes the end as the request had it: not included.
func backfillToPB(b job.Backfill) *fermatav1.Backfill {
	return &fermatav1.Backfill{
		Id: b.ID, ProgressTime: MillisToPB(b.NextMS), EndTime: MillisToPB(b.ToMS + 1), Concurrency: int32(b.Concurrency),
	}
}

var OverlapPolicies = Enum[fermatav1.OverlapPolicy, job.Overlap]{
	{fermatav1.OverlapPolicy_OVERLAP_POLICY_UNSPECIFIED, job.OverlapSkip},
	{fermatav1.OverlapPolicy_OVERLAP_POLICY_SKIP, job.OverlapSkip},
	{fermatav1.OverlapPolicy_OVERLAP_POLICY_BUFFER_ONE, job.OverlapBufferOne},
	{fermatav1.OverlapPolicy_OVERLAP_POLICY_BUFFER_ALL, job.OverlapBufferAll},
	{fermatav1.OverlapPolicy_OVERLAP_POLICY_ALLOW_ALL, job.OverlapAllowAll},
	{fermatav1.OverlapPolicy_OVERLAP_POLICY_CANCEL_OTHER, job.OverlapCancelOther},
	{fermatav1.OverlapPolicy_OVERLAP_POLICY_TERMINATE_OTHER, job.OverlapTerminateOther},
}

var misfirePolicies = Enum[fermatav1.MisfirePolicy_Policy, job.MisfirePolicy]{
	{fermatav1.MisfirePolicy_POLICY_UNSPECIFIED, job.MisfireRunOnce},
	{fermatav1.MisfirePolicy_POLICY_RUN_ONCE, job.MisfireRunOnce},
	{fermatav1.MisfirePolicy_POLICY_SKIP, job.MisfireSkip},
	{fermatav1.MisfirePolicy_POLICY_RUN_ALL, job.MisfireRunAll},
}

var hintSources = Enum[fermatav1.Hint_Source, job.HintSource]{
	{fermatav1.Hint_SOURCE_UNSPECIFIED, job.HintOperator},
	{fermatav1.Hint_SOURCE_WORKER, job.HintWorker},
	{fermatav1.Hint_SOURCE_OPERATOR, job.HintOperator},
	{fermatav1.Hint_SOURCE_PLANNER, job.HintPlanner},
}

var holdReasons = Enum[fermatav1.Hold_Reason, job.HoldReason]{
	{fermatav1.Hold_REASON_OVERLAP, job.HeldOverlap},
	{fermatav1.Hold_REASON_LOCK, job.HeldLock},
	{fermatav1.Hold_REASON_TARGET, job.HeldTarget},
	{fermatav1.Hold_REASON_PACE, job.HeldPace},
	{fermatav1.Hold_REASON_QUEUE, job.HeldQueue},
	{fermatav1.Hold_REASON_PAYLOAD, job.HeldPayload},
}

var BackoffModes = Enum[fermatav1.RunJobRequest_Backoff, job.ManualMode]{
	{fermatav1.RunJobRequest_BACKOFF_UNSPECIFIED, job.ManualReset},
	{fermatav1.RunJobRequest_BACKOFF_RESET, job.ManualReset},
	{fermatav1.RunJobRequest_BACKOFF_KEEP, job.ManualKeep},
	{fermatav1.RunJobRequest_BACKOFF_RESET_ON_SUCCESS, job.ManualResetOnSuccess},
}
