package rpc

import (
	"encoding/hex"
	"math/bits"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// recordToPB writes a job with its state. nowMS is this node's clock: it tells only
// what has expired.
func recordToPB(r job.Record, nowMS int64) *fermatav1.Job {
	d := r.Definition
	j := definitionToPB(d)
	if j.PayloadSealed {
		j.Payload = nil
	}
	j.Etag = d.Etag()
	j.Generation = int64(d.Generation)
	j.CreateTime, j.UpdateTime = msToPB(d.CreatedMS), msToPB(d.UpdatedMS)
	j.Status = statusToPB(d, r.State, nowMS)
	return j
}

func statusToPB(d *job.Definition, s job.State, nowMS int64) *fermatav1.JobStatus {
	// What is asked of it depends on nothing that compiling adds.
	c := &job.Compiled{Definition: d}
	effective := c.EffectiveInterval(int64(s.Failures))
	p := &fermatav1.JobStatus{
		State:               jobStates.pb(s.Status()),
		ConsecutiveFailures: int64(s.Failures),
		EffectiveInterval:   positive(effective),
		LastOutcome:         outcomes.pb(s.LastOutcome),
		LastError:           s.LastError,
		LastStartTime:       msToPB(s.LastStarted),
		LastFinishTime:      msToPB(s.LastFinished),
		PauseNote:           s.PauseNote,
		PauseTime:           msToPB(s.PausedMS),
		RunsTotal:           int64(s.Runs),
		SucceededTotal:      int64(s.Succeeded),
		DeadTotal:           int64(s.Dead),
		LostTotal:           int64(s.Lost),
		SkippedTotal:        int64(s.Skipped),
		TimeoutTotal:        int64(s.TimedOut),
		ManualRunWaiting:    s.Pending != "",
		ConcurrentRuns:      int32(bits.OnesCount64(s.Children)),
		Backfills:           each(s.Backfills, backfillToPB),
		BrokenLag:           positive(msToDuration(s.LateMS)),
	}
	if s.Hint.UntilMS > nowMS {
		p.Hint = hintToPB(s.Hint)
	}
	if left, ok := c.RunsLeft(s); ok {
		p.RunsLeft = &left
	}
	if s.HasRun() {
		p.NextNominalTime, p.NextDueTime = msToPB(s.Nominal), msToPB(s.Due)
		p.CurrentRun = RunName(d.Key, s.RunID())
		p.CurrentAttempt = int32(s.Attempt) + 1
		p.CurrentLosses = int32(s.Losses)
		p.DelaySource = delaySources.pb(s.Source)
		p.Probe = c.Probing(s, nowMS)
		if !s.Live() {
			p.Hold = holdToPB(s.Held)
		}
	}
	return p
}

func runToPB(k job.Key, v job.RunView) *fermatav1.Run {
	p := &fermatav1.Run{
		Name:        RunName(k, v.ID),
		State:       runStates.pb(v.Phase),
		Trigger:     triggers.pb(v.Trigger),
		NominalTime: msToPB(v.NominalMS),
		DueTime:     msToPB(v.DueMS),
		StartTime:   msToPB(v.StartedMS),
		FinishTime:  msToPB(v.FinishedMS),
		Attempts:    int32(v.Attempts),
		Losses:      int32(v.Losses),
		Outcome:     outcomes.pb(v.Outcome),
		Error:       v.Error,
		Output:      v.Output,
		Worker:      v.Worker,
		DeadLetter:  v.DeadLetter,
		Hold:        holdToPB(v.Hold),

		CorrelationId: job.Correlation(k, v.ID),
	}
	if v.TraceID != nil {
		p.TraceId = hex.EncodeToString(v.TraceID[:])
	}
	return p
}

func msToDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

var jobStates = enum[fermatav1.JobStatus_State, job.Status]{
	{fermatav1.JobStatus_STATE_UNSPECIFIED, job.StatusAny},
	{fermatav1.JobStatus_STATE_SCHEDULED, job.StatusScheduled},
	{fermatav1.JobStatus_STATE_RUNNING, job.StatusRunning},
	{fermatav1.JobStatus_STATE_PAUSED, job.StatusPaused},
	{fermatav1.JobStatus_STATE_DEAD, job.StatusDead},
	{fermatav1.JobStatus_STATE_DONE, job.StatusDone},
}

var delaySources = enum[fermatav1.DelaySource, job.DelaySource]{
	{fermatav1.DelaySource_DELAY_SOURCE_SCHEDULE, job.DelaySchedule},
	{fermatav1.DelaySource_DELAY_SOURCE_RETRY, job.DelayRetry},
	{fermatav1.DelaySource_DELAY_SOURCE_BACKOFF, job.DelayBackoff},
	{fermatav1.DelaySource_DELAY_SOURCE_HINT, job.DelayHint},
	{fermatav1.DelaySource_DELAY_SOURCE_MANUAL, job.DelayManual},
	{fermatav1.DelaySource_DELAY_SOURCE_CATCH_UP, job.DelayCatchUp},
	{fermatav1.DelaySource_DELAY_SOURCE_BACKFILL, job.DelayBackfill},
	{fermatav1.DelaySource_DELAY_SOURCE_REDRIVE, job.DelayRedrive},
	{fermatav1.DelaySource_DELAY_SOURCE_HELD, job.DelayHeld},
	{fermatav1.DelaySource_DELAY_SOURCE_JITTER, job.DelayJitter},
}

var outcomes = enum[fermatav1.Outcome, job.Outcome]{
	{fermatav1.Outcome_OUTCOME_UNSPECIFIED, job.OutcomeNone},
	{fermatav1.Outcome_OUTCOME_SUCCEEDED, job.OutcomeSucceeded},
	{fermatav1.Outcome_OUTCOME_FAILED, job.OutcomeFailed},
	{fermatav1.Outcome_OUTCOME_TIMED_OUT, job.OutcomeTimedOut},
	{fermatav1.Outcome_OUTCOME_LOST, job.OutcomeLost},
	{fermatav1.Outcome_OUTCOME_DEAD, job.OutcomeDead},
	{fermatav1.Outcome_OUTCOME_QUARANTINED, job.OutcomeQuarantined},
	{fermatav1.Outcome_OUTCOME_CANCELLED, job.OutcomeCancelled},
}

var runStates = enum[fermatav1.Run_State, job.RunPhase]{
	{fermatav1.Run_STATE_WAITING, job.RunWaiting},
	{fermatav1.Run_STATE_RUNNING, job.RunRunning},
	{fermatav1.Run_STATE_FINISHED, job.RunFinished},
}

var triggers = enum[fermatav1.Run_Trigger, job.Trigger]{
	{fermatav1.Run_TRIGGER_SCHEDULE, job.TriggerSchedule},
	{fermatav1.Run_TRIGGER_MANUAL, job.TriggerManual},
	{fermatav1.Run_TRIGGER_BACKFILL, job.TriggerBackfill},
}
