package job

import (
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Requests and responses of job management: hints, backfills, dead letters, explanations.

// BackfillRequest requests the nominal times from FromMS (inclusive) to ToMS (exclusive), both in the past.
// Overlap is OverlapBufferAll (one after the other) or OverlapAllowAll (as many at once as the job's
// OverlapLimit).
type BackfillRequest struct {
	FromMS, ToMS unixtime.Milli
	Overlap      Overlap
	// RequestID makes the call repeatable and names the backfill; an empty one is
	// made up.
	RequestID string
}

// DeadLetter is a stored dead run, with the known part of its job.
type DeadLetter struct {
	// Record is the dead letter's own, or, of a one-time job, the job's.
	Record RecordID
	// Queue is where the run was. The job may be in another one by now.
	Queue string

	Labels map[string]string
	Run    Run
	// ExpireMS is when it is deleted; NeverMS when it is kept.
	ExpireMS unixtime.Milli
	// Stored is the record as it is stored: the definition with the state in which the run died.
	Stored *Record
}

// DeadLetterPage is one page of a listing. An empty Next marks the last.
type DeadLetterPage struct {
	DeadLetters []DeadLetter
	Next        string
}

// TopQuery asks for the worst jobs.
type TopQuery struct {
	Ranking   Ranking
	Namespace string // "": of all
	Limit     int    // 1 to MaxTopJobs; 0: DefaultTopJobs
	// Shards are the shards to search; nil: all.
	Shards []int
	// Covers, when set, hides jobs whose queue it does not cover.
	Covers func(queue string) bool
}

// Bounds of TopQuery.Limit.
const (
	DefaultTopJobs = 20
	MaxTopJobs     = 100
)

// TopList are the worst jobs. It is incomplete if the search had to end before it had looked at all of them.
type TopList struct {
	Jobs       []TopJob
	Incomplete bool
}

// TopJob is one of the worst jobs.
type TopJob struct {
	Record
	// Lag, of a late job: how long its run has waited, or by how much the last one was
	// late.
	Lag time.Duration
	// Waiting: the run has not started.
	Waiting bool
}

// RedriveRequest names dead letters by their records, or selects them: by
// namespace, queue, prefix of the job's id, and labels.
type RedriveRequest struct {
	// Filter selects; of Records that are named, its Covers has those that it hides count as gone.
	Filter  Filter
	Records []RecordID
	// Token goes on where an earlier answer left off; not with Records.
	Token string
	// DryRun counts without changing anything.
	DryRun bool
	// IgnoreExclusions: no exclusion of a schedule holds the runs back.
	IgnoreExclusions bool
}

// Bulk answers a call that changes many jobs, a page of them at a time.
type Bulk struct {
	Done    int
	Refused int
	// Next is set when there is more: call again with it.
	Next string
}

// PreviewTime is one nominal time of a schedule.
type PreviewTime struct {
	Nominal, Due time.Time
	// Latest is the end of the window that jitter draws Due from, Nominal without
	// jitter. Due lies before it.
	Latest time.Time
	// Remark describes how a clock change shifted it; usually empty.
	Remark string
}

// Reasons of a PreconditionError, for programs.
const (
	ReasonTooManyBackfills = "TOO_MANY_BACKFILLS"
	ReasonTooManyRuns      = "TOO_MANY_RUNS"
	ReasonExcludedTime     = "EXCLUDED_TIME"
	ReasonNoNominalTimes   = "NO_NOMINAL_TIMES"
	ReasonNoInterval       = "NO_INTERVAL"
	ReasonJobRuns          = "JOB_RUNS"
	ReasonNodesTooOld      = "NODES_TOO_OLD"
	ReasonOneTimeJob       = "ONE_TIME_JOB"
)

// PreconditionError means that the request is valid but does not fit the state of the job.
type PreconditionError struct {
	Key    Key
	Reason string // one of the constants above
	Text   string // for people
}

func (e *PreconditionError) Error() string { return fmt.Sprintf("job %s: %s", e.Key.Record(), e.Text) }

// MissingPartError means that the job has no such part.
type MissingPartError struct {
	Key        Key
	Collection string // "backfills", "deadLetters", "revisions"
	ID         string
}

func (e *MissingPartError) Error() string {
	return fmt.Sprintf("job %s has no %s/%s", e.Key.Record(), e.Collection, e.ID)
}

// Is makes errors.Is(err, ErrNotFound) hold.
func (e *MissingPartError) Is(target error) bool { return target == ErrNotFound }

// ValidateQueue checks the parts of a queue's name.
func ValidateQueue(q QueueKey) []Violation {
	var v violations
	v.add("namespace", validateName(q.Namespace))
	v.add("queue", validateName(q.Queue))
	return v.list
}

// ValidateNote checks a text for people. It returns "" for a good one; an empty one
// is good.
func ValidateNote(note string) string {
	if len(note) > MaxNote {
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(note), MaxNote)
	}
	return validateText(note, 0, MaxNote)
}

// Bounds of QueueSettings.
const (
	MaxQueueConcurrency = 100_000
	MinQueueRate        = 0.001
	MaxQueueRate        = 100_000
)

// ValidateQueueSettings lists invalid limits of a queue. Paths start with "settings.".
func ValidateQueueSettings(s QueueSettings) []Violation {
	v := violations{prefix: "settings."}
	v.addUnless(s.MaxConcurrency >= 0 && s.MaxConcurrency <= MaxQueueConcurrency, "max_concurrency",
		"is %d, want 0 (no limit) to %d", s.MaxConcurrency, MaxQueueConcurrency)
	v.addUnless(isValidRate(s.Rate), "rate", "is %v, want 0 (no limit) or %v to %d", s.Rate, MinQueueRate, MaxQueueRate)
	v.addUnless(s.Burst >= 0 && s.Burst <= MaxQueueRate, "burst", "is %d, want 0 (one second's worth) to %d", s.Burst,
		MaxQueueRate)
	v.addUnless(s.Burst == 0 || s.Rate != 0, "burst", "has no effect without rate")
	v.addUnless(isValidRate(s.RecoveryRate), "recovery_rate", "is %v, want 0 (%v) or %v to %d",
		s.RecoveryRate, DefaultRecoveryRate, MinQueueRate, MaxQueueRate)
	return v.list
}

// isValidRate refuses NaN too.
func isValidRate(rate float64) bool { return rate == 0 || rate >= MinQueueRate && rate <= MaxQueueRate }
