package convert

import (
	"encoding/hex"
	"math/bits"
	"unicode/utf8"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// RecordToPB writes a job with its state. nowMS, the clock of this node, decides only
// what has expired.
func RecordToPB(r job.Record, nowMS unixtime.Milli) *fermatav1.Job {
	j := DefinitionToPB(r.Definition)
	addServerFields(j, r, nowMS)
	return j
}

// addServerFields adds what clients cannot set. A sealed payload is taken out.
func addServerFields(j *fermatav1.Job, r job.Record, nowMS unixtime.Milli) {
	d := r.Definition
	if j.PayloadSealed {
		j.Payload = nil
	}
	j.Etag = d.Etag()
	j.Generation = int64(d.Generation)
	j.CreateTime, j.UpdateTime = MillisToPB(d.CreatedMS), MillisToPB(d.UpdatedMS)
	j.Status = statusToPB(d, r.State, nowMS)
}

func statusToPB(d *job.Definition, s job.State, nowMS unixtime.Milli) *fermatav1.JobStatus {
	// What is asked of it depends on nothing that compiling adds.
	c := &job.Compiled{Definition: d}
	effective := c.EffectiveInterval(int64(s.Failures))
	p := &fermatav1.JobStatus{
		State:               JobStates.ToPB(s.Status()),
		ConsecutiveFailures: int64(s.Failures),
		EffectiveInterval:   nonZeroDurationToPB(effective),
		LastOutcome:         outcomes.ToPB(s.LastOutcome),
		LastError:           s.LastError,
		LastStartTime:       MillisToPB(s.LastStarted),
		LastFinishTime:      MillisToPB(s.LastFinished),
		PauseNote:           s.PauseNote,
		PauseTime:           MillisToPB(s.PausedMS),
		RunsTotal:           int64(s.Runs),
		SucceededTotal:      int64(s.Succeeded),
		DeadTotal:           int64(s.Dead),
		LostTotal:           int64(s.Lost),
		SkippedTotal:        int64(s.Skipped),
		TimeoutTotal:        int64(s.TimedOut),
		ManualRunWaiting:    s.Pending != "",
		ConcurrentRuns:      int32(bits.OnesCount64(s.Children)),
		Backfills:           Map(s.Backfills, backfillToPB),
		BreachedLag:         nonZeroDurationToPB(msToDuration(s.LateMS)),
	}
	if s.Hint.UntilMS > nowMS {
		p.Hint = hintToPB(s.Hint)
	}
	if left, ok := c.RunsLeft(s); ok {
		p.RunsLeft = &left
	}
	if s.HasRun() {
		p.NextNominalTime, p.NextDueTime = MillisToPB(s.Nominal), MillisToPB(s.Due)
		p.CurrentRun = RunName(d.Key, s.RunID())
		p.CurrentAttempt = int32(s.Attempt) + 1
		p.CurrentLostAttempts = int32(s.Losses)
		p.DelaySource = delaySources.ToPB(s.Source)
		p.Probe = c.Probing(s, nowMS)
		if !s.Live() {
			p.Hold = holdToPB(s.Held)
		}
	}
	return p
}

func RunToPB(k job.Key, v job.RunView) *fermatav1.Run {
	p := &fermatav1.Run{
		Name:         RunName(k, v.ID),
		State:        runStates.ToPB(v.Phase),
		Trigger:      triggers.ToPB(v.Trigger),
		NominalTime:  MillisToPB(v.NominalMS),
		DueTime:      MillisToPB(v.DueMS),
		StartTime:    MillisToPB(v.StartedMS),
		FinishTime:   MillisToPB(v.FinishedMS),
		Attempts:     int32(v.Attempts),
		LostAttempts: int32(v.Losses),
		Outcome:      outcomes.ToPB(v.Outcome),
		Error:        v.Error,
		Output:       v.Output,
		Worker:       v.Worker,
		DeadLetter:   v.DeadLetter,
		Hold:         holdToPB(v.Hold),

		CorrelationId: job.Correlation(k, v.ID),
	}
	if utf8.Valid(v.Output) {
		p.OutputText = string(v.Output)
	}
	if v.TraceID != nil {
		p.TraceId = hex.EncodeToString(v.TraceID[:])
	}
	p.OwnPayload = runPayloadToPB(v.OwnPayload, v.Payload)
	p.AttemptLog = Map(v.AttemptLog, attemptToPB)
	return p
}

// RecentRunsToPB converts ended runs of a job.
func RecentRunsToPB(k job.Key, runs []job.Run) []*fermatav1.RecentRun {
	return Map(runs, func(r job.Run) *fermatav1.RecentRun {
		return &fermatav1.RecentRun{
			Name: RunName(k, r.ID), Outcome: outcomes.ToPB(r.Outcome), NominalTime: MillisToPB(r.NominalMS),
			StartTime: MillisToPB(r.StartedMS), FinishTime: MillisToPB(r.FinishedMS), Attempts: int32(r.Attempts),
		}
	})
}

var JobStates = Enum[fermatav1.JobStatus_State, job.Status]{
	{fermatav1.JobStatus_STATE_UNSPECIFIED, job.StatusAny},
	{fermatav1.JobStatus_STATE_SCHEDULED, job.StatusScheduled},
	{fermatav1.JobStatus_STATE_RUNNING, job.StatusRunning},
	{fermatav1.JobStatus_STATE_PAUSED, job.StatusPaused},
	{fermatav1.JobStatus_STATE_DEAD, job.StatusDead},
	{fermatav1.JobStatus_STATE_DONE, job.StatusDone},
}

var delaySources = Enum[fermatav1.DelaySource, job.DelaySource]{
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

var outcomes = Enum[fermatav1.Outcome, job.Outcome]{
	{fermatav1.Outcome_OUTCOME_UNSPECIFIED, job.OutcomeNone},
	{fermatav1.Outcome_OUTCOME_SUCCEEDED, job.OutcomeSucceeded},
	{fermatav1.Outcome_OUTCOME_FAILED, job.OutcomeFailed},
	{fermatav1.Outcome_OUTCOME_TIMED_OUT, job.OutcomeTimedOut},
	{fermatav1.Outcome_OUTCOME_LOST, job.OutcomeLost},
	{fermatav1.Outcome_OUTCOME_DEAD, job.OutcomeDead},
	{fermatav1.Outcome_OUTCOME_QUARANTINED, job.OutcomeQuarantined},
	{fermatav1.Outcome_OUTCOME_CANCELLED, job.OutcomeCancelled},
}

var runStates = Enum[fermatav1.Run_State, job.RunPhase]{
	{fermatav1.Run_STATE_WAITING, job.RunWaiting},
	{fermatav1.Run_STATE_RUNNING, job.RunRunning},
	{fermatav1.Run_STATE_FINISHED, job.RunFinished},
}

var triggers = Enum[fermatav1.Run_Trigger, job.Trigger]{
	{fermatav1.Run_TRIGGER_SCHEDULE, job.TriggerSchedule},
	{fermatav1.Run_TRIGGER_MANUAL, job.TriggerManual},
	{fermatav1.Run_TRIGGER_BACKFILL, job.TriggerBackfill},
}

func DeadLetterToPB(l job.DeadLetter) *fermatav1.DeadLetter {
	key := l.Record.Key()
	return &fermatav1.DeadLetter{
		Name:       DeadLetterName(l.Record),
		Run:        RunToPB(key, job.RunView{Run: l.Run, Phase: job.RunFinished}),
		Queue:      l.Queue,
		ExpireTime: MillisToPB(l.ExpireMS),
	}
}
