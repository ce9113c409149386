package client

import fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"

// Messages of the API. Their fields are described in proto/fermata/v1.
type (
	Job           = fermatav1.Job
	JobStatus     = fermatav1.JobStatus
	Run           = fermatav1.Run
	RunAttempt    = fermatav1.RunAttempt
	DeadLetter    = fermatav1.DeadLetter
	Hint          = fermatav1.Hint
	Hold          = fermatav1.Hold
	Lock          = fermatav1.Lock
	LockStatus    = fermatav1.LockStatus
	Target        = fermatav1.Target
	RetryPolicy   = fermatav1.RetryPolicy
	BackoffPolicy = fermatav1.BackoffPolicy
	MisfirePolicy = fermatav1.MisfirePolicy
	Jitter        = fermatav1.Jitter
	Preset        = fermatav1.Preset
	TopJob        = fermatav1.TopJob
	TopList       = fermatav1.TopJobsResponse
	UpcomingRun   = fermatav1.UpcomingRun
	Explanation   = fermatav1.ExplainJobResponse
	Reason        = fermatav1.Reason
	Identity      = fermatav1.WhoAmIResponse
	Event         = fermatav1.Event
	// BackfillStatus is a backfill in the status of a job.
	BackfillStatus = fermatav1.Backfill
)

// Messages of schedules. [Every], [Cron], [EveryWeek] and others make the usual ones.
type (
	Schedule         = fermatav1.Schedule
	IntervalSchedule = fermatav1.IntervalSchedule
	CronSchedule     = fermatav1.CronSchedule
	CalendarSchedule = fermatav1.CalendarSchedule
	Exclusions       = fermatav1.Exclusions
	ExclusionPeriod  = fermatav1.Exclusions_Period
	PreviewRequest   = fermatav1.PreviewScheduleRequest
	Preview          = fermatav1.PreviewScheduleResponse
	ScheduledTime    = fermatav1.ScheduledTime
)

// Messages of [Admin].
type (
	Node             = fermatav1.Node
	LostNode         = fermatav1.LostNode
	Shard            = fermatav1.Shard
	ShardCheck       = fermatav1.CheckShardResponse
	Finding          = fermatav1.Finding
	Queue            = fermatav1.Queue
	Namespace        = fermatav1.Namespace
	LoadForecast     = fermatav1.ForecastLoadResponse
	QueueSettings    = fermatav1.QueueSettings
	Worker           = fermatav1.Worker
	AuditRecord      = fermatav1.AuditRecord
	AuditExport      = fermatav1.AuditExport
	Webhook          = fermatav1.Webhook
	UndeliveredEvent = fermatav1.UndeliveredEvent
	// JobBackup is a job with its state.
	JobBackup = fermatav1.JobBackup
)

// JobState is the state of a job.
type JobState = fermatav1.JobStatus_State

// States of a job. JobDone is that of a one-time job that has ended.
const (
	JobScheduled = fermatav1.JobStatus_STATE_SCHEDULED
	JobRunning   = fermatav1.JobStatus_STATE_RUNNING
	JobPaused    = fermatav1.JobStatus_STATE_PAUSED
	JobDead      = fermatav1.JobStatus_STATE_DEAD
	JobDone      = fermatav1.JobStatus_STATE_DONE
)

// RunState is the state of a run.
type RunState = fermatav1.Run_State

// States of a run.
const (
	RunWaiting  = fermatav1.Run_STATE_WAITING
	RunRunning  = fermatav1.Run_STATE_RUNNING
	RunFinished = fermatav1.Run_STATE_FINISHED
)

// Trigger is what created a run.
type Trigger = fermatav1.Run_Trigger

// Triggers of a run.
const (
	TriggerSchedule = fermatav1.Run_TRIGGER_SCHEDULE
	TriggerManual   = fermatav1.Run_TRIGGER_MANUAL
	TriggerBackfill = fermatav1.Run_TRIGGER_BACKFILL
)

// Outcome is the outcome of a run or of an attempt.
type Outcome = fermatav1.Outcome

// Outcomes. Runs and attempts succeed, fail, time out or are cancelled. Only attempts are lost, with their
// workers. Only runs are dead or quarantined.
const (
	OutcomeSucceeded   = fermatav1.Outcome_OUTCOME_SUCCEEDED
	OutcomeFailed      = fermatav1.Outcome_OUTCOME_FAILED
	OutcomeTimedOut    = fermatav1.Outcome_OUTCOME_TIMED_OUT
	OutcomeLost        = fermatav1.Outcome_OUTCOME_LOST
	OutcomeDead        = fermatav1.Outcome_OUTCOME_DEAD
	OutcomeQuarantined = fermatav1.Outcome_OUTCOME_QUARANTINED
	OutcomeCancelled   = fermatav1.Outcome_OUTCOME_CANCELLED
)

// OverlapPolicy is what happens at a scheduled time while an earlier run of the job has not ended.
type OverlapPolicy = fermatav1.OverlapPolicy

// Values of [OverlapPolicy].
const (
	OverlapSkip           = fermatav1.OverlapPolicy_OVERLAP_POLICY_SKIP
	OverlapBufferOne      = fermatav1.OverlapPolicy_OVERLAP_POLICY_BUFFER_ONE
	OverlapBufferAll      = fermatav1.OverlapPolicy_OVERLAP_POLICY_BUFFER_ALL
	OverlapAllowAll       = fermatav1.OverlapPolicy_OVERLAP_POLICY_ALLOW_ALL
	OverlapCancelOther    = fermatav1.OverlapPolicy_OVERLAP_POLICY_CANCEL_OTHER
	OverlapTerminateOther = fermatav1.OverlapPolicy_OVERLAP_POLICY_TERMINATE_OTHER
)

// Values of [MisfirePolicy].Policy: what happens after scheduled times that passed without a run.
const (
	MisfireRunOnce = fermatav1.MisfirePolicy_POLICY_RUN_ONCE
	MisfireSkip    = fermatav1.MisfirePolicy_POLICY_SKIP
	MisfireRunAll  = fermatav1.MisfirePolicy_POLICY_RUN_ALL
)

// Values of [RetryPolicy].Strategy: how the delay between attempts grows.
const (
	RetryFixed        = fermatav1.RetryPolicy_STRATEGY_FIXED
	RetryLinear       = fermatav1.RetryPolicy_STRATEGY_LINEAR
	RetryExponential  = fermatav1.RetryPolicy_STRATEGY_EXPONENTIAL
	RetryDecorrelated = fermatav1.RetryPolicy_STRATEGY_DECORRELATED
)

// Values of [Jitter].Kind.
const (
	JitterNone         = fermatav1.Jitter_KIND_NONE
	JitterDown         = fermatav1.Jitter_KIND_DOWN
	JitterProportional = fermatav1.Jitter_KIND_PROPORTIONAL
	JitterSpread       = fermatav1.Jitter_KIND_SPREAD
	JitterFull         = fermatav1.Jitter_KIND_FULL
	JitterEqual        = fermatav1.Jitter_KIND_EQUAL
)

// Values of [CalendarSchedule].Unit.
const (
	CalendarDay   = fermatav1.CalendarSchedule_UNIT_DAY
	CalendarWeek  = fermatav1.CalendarSchedule_UNIT_WEEK
	CalendarMonth = fermatav1.CalendarSchedule_UNIT_MONTH
)

// Values of [CalendarSchedule].ShortMonth: the day in a month that does not have it.
const (
	ShortMonthLastDay = fermatav1.CalendarSchedule_SHORT_MONTH_LAST_DAY
	ShortMonthSkip    = fermatav1.CalendarSchedule_SHORT_MONTH_SKIP
)

// Local times that a clock change leaves out, or repeats: values of the fields DstGap and DstRepeat.
const (
	DSTGapShift    = fermatav1.DstGap_DST_GAP_SHIFT
	DSTGapSkip     = fermatav1.DstGap_DST_GAP_SKIP
	DSTRepeatFirst = fermatav1.DstRepeat_DST_REPEAT_FIRST
	DSTRepeatLast  = fermatav1.DstRepeat_DST_REPEAT_LAST
	DSTRepeatBoth  = fermatav1.DstRepeat_DST_REPEAT_BOTH
)

// DelaySource is why a run is due when it is.
type DelaySource = fermatav1.DelaySource

// Values of [DelaySource].
const (
	DelaySourceSchedule = fermatav1.DelaySource_DELAY_SOURCE_SCHEDULE
	DelaySourceRetry    = fermatav1.DelaySource_DELAY_SOURCE_RETRY
	DelaySourceBackoff  = fermatav1.DelaySource_DELAY_SOURCE_BACKOFF
	DelaySourceHint     = fermatav1.DelaySource_DELAY_SOURCE_HINT
	DelaySourceManual   = fermatav1.DelaySource_DELAY_SOURCE_MANUAL
	DelaySourceCatchUp  = fermatav1.DelaySource_DELAY_SOURCE_CATCH_UP
	DelaySourceBackfill = fermatav1.DelaySource_DELAY_SOURCE_BACKFILL
	DelaySourceRedrive  = fermatav1.DelaySource_DELAY_SOURCE_REDRIVE
	DelaySourceHeld     = fermatav1.DelaySource_DELAY_SOURCE_HELD
	DelaySourceJitter   = fermatav1.DelaySource_DELAY_SOURCE_JITTER
)

// Values of [Hold].Reason: what a due run waits for.
const (
	HoldOverlap = fermatav1.Hold_REASON_OVERLAP
	HoldLock    = fermatav1.Hold_REASON_LOCK
	HoldTarget  = fermatav1.Hold_REASON_TARGET
	HoldPace    = fermatav1.Hold_REASON_PACE
	HoldQueue   = fermatav1.Hold_REASON_QUEUE
	HoldPayload = fermatav1.Hold_REASON_PAYLOAD
)

// Values of [Reason].Kind: why a job does not run now.
const (
	ReasonNotDue           = fermatav1.Reason_KIND_NOT_DUE
	ReasonRetry            = fermatav1.Reason_KIND_RETRY
	ReasonBackoff          = fermatav1.Reason_KIND_BACKOFF
	ReasonHint             = fermatav1.Reason_KIND_HINT
	ReasonPaused           = fermatav1.Reason_KIND_PAUSED
	ReasonRunning          = fermatav1.Reason_KIND_RUNNING
	ReasonOverlap          = fermatav1.Reason_KIND_OVERLAP
	ReasonLock             = fermatav1.Reason_KIND_LOCK
	ReasonTarget           = fermatav1.Reason_KIND_TARGET
	ReasonPace             = fermatav1.Reason_KIND_PACE
	ReasonQueueConcurrency = fermatav1.Reason_KIND_QUEUE_CONCURRENCY
	ReasonQueueRate        = fermatav1.Reason_KIND_QUEUE_RATE
	ReasonNoWorker         = fermatav1.Reason_KIND_NO_WORKER
	ReasonNoSlot           = fermatav1.Reason_KIND_NO_SLOT
	ReasonNoHolder         = fermatav1.Reason_KIND_NO_HOLDER
	ReasonDead             = fermatav1.Reason_KIND_DEAD
	ReasonDone             = fermatav1.Reason_KIND_DONE
	ReasonSchedule         = fermatav1.Reason_KIND_SCHEDULE
	ReasonPayload          = fermatav1.Reason_KIND_PAYLOAD
	ReasonQueuePaused      = fermatav1.Reason_KIND_QUEUE_PAUSED
	ReasonExclusion        = fermatav1.Reason_KIND_EXCLUSION
	ReasonOversizedShard   = fermatav1.Reason_KIND_OVERSIZED_SHARD
)

// Values of [Hint].Source: who gave a hint.
const (
	HintByWorker   = fermatav1.Hint_SOURCE_WORKER
	HintByOperator = fermatav1.Hint_SOURCE_OPERATOR
	HintByPlanner  = fermatav1.Hint_SOURCE_PLANNER
)

// Values of [Identity].Authentication.
const (
	AuthenticatedByNothing     = fermatav1.WhoAmIResponse_AUTHENTICATION_NONE
	AuthenticatedByToken       = fermatav1.WhoAmIResponse_AUTHENTICATION_TOKEN
	AuthenticatedByCertificate = fermatav1.WhoAmIResponse_AUTHENTICATION_CERTIFICATE
	AuthenticatedByJWT         = fermatav1.WhoAmIResponse_AUTHENTICATION_JWT
)
