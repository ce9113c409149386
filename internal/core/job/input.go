package job

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Input is an input of the state machine.
type Input interface{ isEvent() }

// FinishAttempt is the result of the attempt with this token.
type FinishAttempt struct {
	Token   uint64
	Outcome Outcome // Succeeded, Failed, TimedOut or Cancelled
	// Permanent failures are not retried.
	Permanent  bool
	Error      string
	Output     []byte
	RetryAfter time.Duration  // next delay that the worker asks for; 0 is none
	StartedMS  unixtime.Milli // shard clock, as the worker's node saw it
	Worker     string
}

// LoseLease reports that the lease of this token ended without a result.
type LoseLease struct{ Token uint64 }

// ReturnLease reports that the attempt of this token never started and never will.
type ReturnLease struct{ Token uint64 }

// Pause holds the job until Resume.
type Pause struct {
	Note string
	// ID, when set, is the id of a pause of many jobs. It pauses only jobs that are not paused (Stale), and each job
	// once, whatever became of it since (Duplicate).
	ID string
}

// Resume ends a pause.
type Resume struct {
	// CatchUp applies the misfire policy to the nominal times that passed, instead of skipping them.
	CatchUp bool
	// PausedMS, when set, ends only the pause that began at this instant: otherwise the answer is Stale.
	PausedMS unixtime.Milli
}

// RequestManualRun asks for a manual run.
type RequestManualRun struct {
	RequestID string
	Mode      ManualMode
	// IgnoreExclusions: the schedule's exclusions do not hold the run back.
	IgnoreExclusions bool
	// Trace is the context of the call; nil: not sampled.
	Trace *Trace
	// Payload, when set, is the payload of this run alone. Mode then has no effect. Base is then as in Update: a sealed
	// payload is bound to fields of the definition.
	Payload *RunPayload
	Base    string
}

// RunLeased reports that the run of this token was leased. The answer is the decision of the overlap and misfire
// policies: see [Arrival].
type RunLeased struct{ Token uint64 }

// HoldBack returns a leased run that a gate holds back, until an instant of the
// shard's clock or until it is woken.
type HoldBack struct {
	Token   uint64
	Reason  HoldReason
	Key, By string
	UntilMS unixtime.Milli
	// Paced: the hold is the run's turn in the recovery budget.
	Paced bool
}

// CheckLateness asks whether the current run has broken its lateness objective. Without a token
// it is about a run that waits; with one about a leased run that started at StartedMS of the
// shard's clock (0: it has not started).
type CheckLateness struct {
	Token     uint64
	StartedMS unixtime.Milli
}

// Wake makes a run due that this gate holds back.
type Wake struct {
	Reason HoldReason
	Key    string
}

// SetHint takes a hint; one without a source clears it.
type SetHint struct{ Hint Hint }

// StartBackfill runs the nominal times of a range: after FromMS, up to ToMS.
type StartBackfill struct{ Backfill Backfill }

// StopBackfill ends a backfill; runs of it that have started go on.
type StopBackfill struct{ ID string }

// Terminate ends the run of a child record at once, live or not.
type Terminate struct{}

// Redrive tries a dead run again: that of a one-time job, or, decided on a dead
// letter, the letter's.
type Redrive struct {
	// IgnoreExclusions: the schedule's exclusions do not hold the run back.
	IgnoreExclusions bool
	// FinishedMS, when set, is when the run died: a run that died again since is left alone, as NotDead.
	FinishedMS unixtime.Milli
}

// CancelRun ends the run of this id.
type CancelRun struct{ RunID string }

// Update replaces the definition. The decision carries the definition to store.
type Update struct {
	New       *Compiled
	RequestID string
	// Base is the etag of the definition that New was made from; when the job was
	// edited since, or deleted and created again, the answer is Stale. "" is any.
	Base string
	// By is the call that edits.
	By Edit
	// Reseal: only the seal of the payload changes.
	Reseal bool
	// NoRevision: the definition that is replaced does not become a revision. Those that are stored stay.
	NoRevision bool
}

// Delete removes the job. Base is as in Update.
type Delete struct{ Base string }

func (FinishAttempt) isEvent()    {}
func (LoseLease) isEvent()        {}
func (ReturnLease) isEvent()      {}
func (Pause) isEvent()            {}
func (Resume) isEvent()           {}
func (RequestManualRun) isEvent() {}
func (CancelRun) isEvent()        {}
func (Update) isEvent()           {}
func (Delete) isEvent()           {}

func (RunLeased) isEvent()     {}
func (HoldBack) isEvent()      {}
func (Wake) isEvent()          {}
func (CheckLateness) isEvent() {}
func (SetHint) isEvent()       {}
func (StartBackfill) isEvent() {}
func (StopBackfill) isEvent()  {}
func (Redrive) isEvent()       {}
func (Terminate) isEvent()     {}

// Arrival is the decision on a leased run.
type Arrival uint8

// Arrivals.
const (
	ArrivalStart    Arrival = iota // it starts in its place
	ArrivalSpawn                   // it starts as the child record in Decision.Spawn
	ArrivalSkipped                 // it does not start
	ArrivalHeld                    // it waits for others
	ArrivalExcluded                // it waits for the end of an exclusion
)

// Answer is the outcome of an event for the caller.
type Answer uint8

// Answers.
const (
	// Applied: the decision holds a new state, or there was nothing to change.
	Applied Answer = iota
	// Duplicate: this event was taken before; nothing changes.
	Duplicate
	// Stale: the token is not that of the live lease, or the definition was
	// edited since the caller read it; nothing changes.
	Stale
	// Joined: another manual run already waits; the request is one with it.
	Joined
	// NoSuchRun: the run is not the current one.
	NoSuchRun
	// TooMany: the job has no room for another backfill, or for another parallel run.
	TooMany
	// NotDead: there is no dead run to try again.
	NotDead
	// Excluded: the schedule excludes this instant.
	Excluded
	// OneTime: the job has one run and no others beside it.
	OneTime
)

// Decision is the result of Decide: what to write and to report.
type Decision struct {
	Answer Answer
	// Changed: State differs from the input state and must be written.
	Changed bool
	State   State
	// IndexMS is the instant that the record's score carries in its new region.
	IndexMS unixtime.Milli
	// Delete: the record, its definition and its history go instead.
	Delete bool
	// Ended is the run that ended, for the history.
	Ended *Run
	// EarlierRun is the run that the state has kept until now, for the history: see State.KeptRun.
	EarlierRun string
	// DeadLetter: Ended is kept for people as a child record, in this slot.
	DeadLetter bool
	DeadSlot   int
	// Arrival answers RunLeased.
	Arrival Arrival
	// Spawn is a child record to write with the state. In region leased it takes over the parent's score.
	Spawn *Spawned
	// CancelChildren are slots of live runs that are to be cancelled next.
	CancelChildren []int
	// TerminateChildren are slots of runs that are to end at once next.
	TerminateChildren []int
	// Definition must be written with the state.
	Definition *Definition
	// RemoveRevisions: no earlier revision of the job may be kept. Otherwise the replaced definition becomes one.
	RemoveRevisions bool
	// Ranked: the ranks of State are other ones than before; of a job that is deleted,
	// it had some.
	Ranked bool
	// WatchMS is when the objective of the record's run is broken if the run has not started
	// by then: the index of objectives must have the record at that instant, or earlier. 0:
	// it does; WatchNever: the record goes, and its entry with it.
	WatchMS unixtime.Milli
	// Notices are the events of the decision, in order; the one source of metrics, logs and history.
	Notices []Notice
}

// Reasons of RunDead and RunQuarantined.
const (
	DeadOutOfAttempts = "out of attempts"
	DeadPermanent     = "permanent"   // its handler reported a permanent failure
	DeadPoison        = "poison"      // several workers in a row were lost with it
	DeadUndelivered   = "undelivered" // it was leased several times in a row without reaching a worker
	DeadCorrupt       = "corrupt"     // its state could not be read
)

// DeadReasons returns all of them.
func DeadReasons() []string {
	return []string{DeadOutOfAttempts, DeadPermanent, DeadPoison, DeadUndelivered, DeadCorrupt}
}

// NoticeKind names a lifecycle event.
type NoticeKind uint8

// Lifecycle events.
const (
	JobCreated NoticeKind = iota
	JobUpdated
	JobDeleted
	JobPaused
	JobResumed
	ScheduleUpdated  // the next due time changed without a run
	ManualRunStarted // a manual run became due
	AttemptStarted
	AttemptFailed
	AttemptTimedOut
	AttemptLost
	AttemptReturned
	RunSucceeded
	RunDead
	RunQuarantined
	RunCancelled
	BackoffApplied // a failed run made the interval longer
	NominalSkipped // nominal times passed without a run
	StaleRefused
	RunHeld         // a gate holds a run back
	HintSet         // a hint was given or cleared
	BackfillStarted // a range of past nominal times is to be run
	BackfillDone
	RunRedriven // a dead run is tried again
	LagBreached // a run did not start in the time that its job allows
)

func (k NoticeKind) String() string {
	names := [...]string{
		"job_created", "job_updated", "job_deleted", "job_paused", "job_resumed", "schedule_updated",
		"manual_run_started", "attempt_started", "attempt_failed", "attempt_timed_out", "attempt_lost",
		"attempt_returned", "run_succeeded", "run_dead", "run_quarantined", "run_cancelled",
		"backoff_applied", "nominal_skipped", "stale_refused", "run_held", "hint_set", "backfill_started",
		"backfill_done", "run_redriven", "lag_breached",
	}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Notice is one lifecycle event.
type Notice struct {
	Kind    NoticeKind
	Key     Key
	Queue   string
	RunID   string
	Attempt uint32
	Trigger Trigger
	DueMS   unixtime.Milli // next due time, or the ended run's
	AtMS    unixtime.Milli
	// StartedMS is the start of the attempt that ended, FirstMS that of its run's first
	// attempt; 0 where none has ended, or none had begun.
	StartedMS, FirstMS unixtime.Milli
	// HeldMS is how long a gate (Held) had held the run that starts, or a pause the job
	// that resumes.
	HeldMS   int64
	Held     HoldReason
	Failures uint32
	Count    int64  // of skipped nominal times, and of broken promises
	Reason   string // why, for skipped, dead and cancelled; LagLate or LagMissed
	Error    string
	Worker   string
	Labels   map[string]string // the job's, of AttemptStarted; read-only
	// TraceID is the trace of a run that is traced; nil: it is not.
	TraceID *TraceID
}
