package job

import (
	"fmt"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Requests and responses of changes of all jobs, or dead letters, that match a filter.

// BulkAction is what such a change does to each match.
type BulkAction uint8

// Actions.
const (
	BulkPauseJobs BulkAction = iota
	BulkResumeJobs
	BulkRunJobs
	BulkCancelRuns
	BulkDeleteJobs
	BulkRedriveDeadLetters
	BulkDiscardDeadLetters
)

// String returns the method of the API.
func (a BulkAction) String() string {
	return enumName(a, "BulkPauseJobs", "BulkResumeJobs", "BulkRunJobs", "BulkCancelRuns", "BulkDeleteJobs",
		"BulkRedriveDeadLetters", "BulkDiscardDeadLetters")
}

// Bounds of changes by a filter.
const (
	// MaxUnconfirmedMatches is how many matches are changed without a confirmation.
	MaxUnconfirmedMatches = 100
	// MaxBulkNames is how many names of a kind one page has.
	MaxBulkNames = 20
)

// BulkOptions are what the call says beside the filter. Each action has some of them.
type BulkOptions struct {
	Note             string     `json:",omitempty"` // of BulkPauseJobs
	PauseID          string     `json:",omitempty"` // of BulkResumeJobs: only jobs that this pause stopped
	CatchUp          bool       `json:",omitempty"` // of BulkResumeJobs
	Mode             ManualMode `json:",omitempty"` // of BulkRunJobs
	IgnoreExclusions bool       `json:",omitempty"` // of BulkRunJobs and BulkRedriveDeadLetters
}

// BulkRequest asks for one page of a change, or of its dry run.
type BulkRequest struct {
	Action BulkAction
	// Filter has a namespace and a condition. NowMS is that of the dry run.
	Filter  Filter
	Options BulkOptions
	// Caller is the identity of the caller.
	Caller string

	DryRun       bool
	Confirmation string
	RequestID    string
	Token        string
}

// BulkTarget is a match: a job or a dead letter, or one run of a job.
type BulkTarget struct {
	Record RecordID `json:"r"`
	// RunID is that of the run, or of the dead letter.
	RunID string `json:"i,omitempty"`
	// Etag is that of the job when it was found; of a dead letter it is empty.
	Etag string `json:"e,omitempty"`
	// AtMS is when the pause began, or when the run died.
	AtMS unixtime.Milli `json:"t,omitempty"`
}

// BulkRefusal counts matches that were not changed for one reason.
type BulkRefusal struct {
	Reason string       `json:"r"`
	Count  int          `json:"n"`
	Names  []BulkTarget `json:"names,omitempty"`
}

// BulkCounts are the counts of one page, or of several.
type BulkCounts struct {
	Matched int64 `json:"m,omitempty"`
	Changed int64 `json:"c,omitempty"`
	Refused int64 `json:"r,omitempty"`
}

// Plus returns the sum of two counts.
func (c BulkCounts) Plus(d BulkCounts) BulkCounts {
	return BulkCounts{c.Matched + d.Matched, c.Changed + d.Changed, c.Refused + d.Refused}
}

// BulkPage is one page of a change or of its dry run.
type BulkPage struct {
	BulkCounts
	Refusals []BulkRefusal
	Names    []BulkTarget
	// Total has the counts of this page and all pages before it.
	Total BulkCounts
	Next  string
	// Confirmation is set on the last page of a dry run, and expires at ExpireMS.
	Confirmation string
	ExpireMS     unixtime.Milli
	// Repeat: an earlier call has finished this page, or has begun it. Finished: it has finished it.
	Repeat, Finished bool
}

// Reasons for which a match is not changed.
const (
	RefusedGone          = "GONE"    // the job, run or dead letter no longer exists
	RefusedChanged       = "CHANGED" // the job was edited, paused or resumed after it was found
	RefusedTooManyRuns   = ReasonTooManyRuns
	RefusedExcludedTime  = ReasonExcludedTime
	RefusedUnusable      = "JOB_CORRUPT" // what is stored of the job cannot be used
	RefusedKeepsChanging = "CONFLICT"    // the job kept changing
)

// Reasons of a BulkError.
const (
	ReasonConfirmationRequired = "CONFIRMATION_REQUIRED"
	ReasonConfirmationExpired  = "CONFIRMATION_EXPIRED"
	ReasonTooManyMatches       = "TOO_MANY_MATCHES"
	ReasonBulkChangeUnknown    = "BULK_CHANGE_UNKNOWN"
	ReasonTooManyBulkChanges   = "TOO_MANY_BULK_CHANGES"
)

// BulkError means that a change by a filter cannot begin, or cannot continue.
type BulkError struct {
	Reason string // one of the constants above
	Text   string // for people
	// Matched and Confirmed are numbers of matches, where they are known.
	Matched, Confirmed int64
}

func (e *BulkError) Error() string { return e.Text }

// NewTooManyMatchesError is the error of a change that finds many more matches than were confirmed.
func NewTooManyMatchesError(matched, confirmed int64) *BulkError {
	return &BulkError{Reason: ReasonTooManyMatches, Matched: matched, Confirmed: confirmed, Text: fmt.Sprintf(
		"%d or more match, and %d were confirmed; this page changed nothing: count again by a dry run", matched, confirmed)}
}
