package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Requests and responses of the management of jobs.

// CreateRequest registers a job. An empty Definition.ID is made up by the
// registry; an empty RequestID is equal to any.
type CreateRequest struct {
	Definition Definition
	RequestID  string
	// PauseNote, when set, has the job paused from the start, with this as the reason.
	PauseNote string
}

// CreateAnswer answers a CreateRequest.
type CreateAnswer struct {
	Record Record
	Err    error
}

// Condition is a filter in the language of package jobfilter. Its text is part of the tokens of pages.
type Condition interface {
	Matches(r *Record, nowMS unixtime.Milli) bool
	MarshalText() ([]byte, error)
}

// Filter selects jobs of one namespace; zero fields match all.
type Filter struct {
	Namespace string
	// AllNamespaces selects jobs of all namespaces; Namespace is then empty.
	AllNamespaces bool `json:",omitempty"`
	// Condition, when set, has to match at NowMS, from which its relative times count.
	Condition Condition      `json:",omitempty"`
	NowMS     unixtime.Milli `json:"-"`
	// Order is that of the list. Only lists of jobs have one.
	Order Order `json:",omitempty"`

	Queue       string
	Status      Status
	IDPrefix    string
	Labels      map[string]string
	MinFailures int64
	// Covers, when set, hides jobs whose queue it does not cover: these match no filter, take no
	// place of a page and are named by no token. A dead letter has the queue of its run and that
	// of its job; both have to be covered.
	Covers func(queue string) bool `json:"-"`
	// Scope, when set, does the same for the jobs of all namespaces.
	Scope QueueScope `json:"-"`
	// Limited: the caller may not see all namespaces. Then the work of a listing does not depend on others.
	Limited bool `json:"-"`
	// TrustedPlace: the caller cannot choose where the listing continues. Then it may be a place of a walk over all jobs,
	// as nodes of an earlier version made for limited callers too.
	TrustedPlace bool `json:"-"`
}

// CoversAll reports whether none of some queues is hidden.
func (f *Filter) CoversAll(queues ...string) bool {
	return f.Covers == nil || !slices.ContainsFunc(queues, func(q string) bool { return !f.Covers(q) })
}

// Page is one page of a listing. An empty Next marks the last.
type Page struct {
	Records []Record
	Next    string
	// Incomplete: the page ended before it was full, because it took too long to find more.
	Incomplete bool
}

// UpdateRequest changes a definition. Merge gets the stored definition and returns the new one; it may be called
// more than once. If Etag is set and differs from the job's, the change is refused.
type UpdateRequest struct {
	Key       Key
	Etag      string
	RequestID string
	Merge     func(Definition) (Definition, error)
	// KeepsPayload: Merge leaves the payload of the present definition alone.
	KeepsPayload bool
	// NamesBoundFields: Merge takes from the caller all fields that a sealed payload is bound to, and none of them from
	// the present definition.
	NamesBoundFields bool
	// Restores: Merge returns a stored definition with its payload, sealed as it is.
	Restores bool
	// Reseal asks for the payload to be sealed with the present key.
	Reseal bool
	// Check, when set, refuses the call by its error. It gets the present definition, before
	// anything of it is compared or answered.
	Check func(Definition) error
}

// PreviewRequest requests nominal times of a schedule that is not stored. A zero After is now; a
// nil Backoff requests no intervals. MinInterval and MaxInterval bound the intervals like those
// of a definition.
//
// With a Job, H and jitter are those of this job. A schedule (KindNone) or backoff (nil) that
// the request leaves out is then the job's own, and the projection starts from the job's present
// failures.
type PreviewRequest struct {
	Job                      Key // the zero value is none
	Schedule                 schedule.Spec
	After                    time.Time
	Count                    int
	Backoff                  *backoff.Recurring
	MinInterval, MaxInterval time.Duration
	Retry                    *backoff.Retry // nil: that of the job, where its own schedule is shown
}

// Preview answers a PreviewRequest.
type Preview struct {
	Times     []PreviewTime
	FirstDay  string // that the periods of a calendar are counted from; "" for other schedules
	Intervals []time.Duration
	// Projected are the due times of the next runs if each of them failed, before
	// jitter.
	Projected []time.Time
	// RetryDelays are those between the attempts of one run, before jitter.
	RetryDelays []time.Duration
}

// Status is a record's state as people see it.
type Status uint8

// Statuses.
const (
	StatusAny Status = iota
	StatusScheduled
	StatusRunning
	StatusPaused
	StatusDead
	StatusDone
)

// Status returns the status of the record. A paused job with a manual run shows as scheduled or running
// meanwhile.
func (s State) Status() Status {
	switch {
	case s.Region == RegionLeased:
		return StatusRunning
	case s.Region == RegionPaused:
		return StatusPaused
	case s.Region == RegionDead:
		return StatusDead
	case s.Region == RegionDone && s.Paused:
		return StatusPaused
	case s.Region == RegionDone:
		return StatusDone
	}
	return StatusScheduled
}

// RunPhase is the phase of a run.
type RunPhase uint8

// Phases.
const (
	RunWaiting RunPhase = iota
	RunRunning
	RunFinished
)

// RunView is a run as people see it: finished, or the current one.
type RunView struct {
	Run
	Phase RunPhase
	Hold  Hold // what holds a waiting run back
	// Payload is the run's own, if OwnPayload describes one that is not sealed. Only GetRun sets it.
	Payload *RunPayload
	TraceID *TraceID // nil: the run is not traced, or the trace is unknown
}

// CurrentRun shows the planned or live run; ok is false when there is none.
func (s State) CurrentRun() (v RunView, ok bool) {
	if !s.HasRun() {
		return RunView{}, false
	}
	v.Run = Run{
		ID: s.RunID(), Trigger: s.Trigger, NominalMS: s.Nominal, DueMS: s.Due,
		Attempts: s.Attempt, Losses: s.Losses, Caller: s.findCallerTrace(),
		OwnPayload: s.OwnPayload, AttemptLog: s.loggedAttempts(),
	}
	if !s.Live() {
		v.Hold = s.Held
	}
	if s.Attempt > 0 {
		v.StartedMS = s.FirstMS
	}
	if s.Live() {
		v.Phase = RunRunning
		v.Attempts++
	}
	return v, true
}

// PendingRun shows the manual run that waits for the live one.
func (s State) PendingRun() (v RunView, ok bool) {
	if s.Pending == "" {
		return RunView{}, false
	}
	return RunView{Run: Run{ID: ManualRunID(s.Pending), Trigger: TriggerManual,
		Caller: s.traceIDOfRequest(s.Pending)}}, true
}

// ManualRunID returns the id of the run that a request for a manual run stands for.
func ManualRunID(requestID string) string { return RunID(TriggerManual, 0, 0, requestID) }

// Etag changes with each edit of a definition and when the job is created again.
func (d *Definition) Etag() string {
	return strconv.FormatInt(int64(d.CreatedMS), 36) + "-" + strconv.FormatUint(uint64(d.Revision), 36)
}

// InvalidError lists what is invalid in a request.
type InvalidError struct{ Violations []Violation }

func (e *InvalidError) Error() string {
	said := e.Violations[:min(len(e.Violations), MaxViolations)]
	parts := make([]string, len(said))
	for i, v := range said {
		parts[i] = v.Field + ": " + v.Description
	}
	return strings.Join(parts, "; ")
}

// Unwrap returns why a field was not looked at; nil: all were.
func (e *InvalidError) Unwrap() error {
	for i := range e.Violations {
		if e.Violations[i].Cause != nil {
			return e.Violations[i].Cause
		}
	}
	return nil
}

// MaxViolations is the greatest number of violations that an error lists. A request may have millions of invalid
// items.
const MaxViolations = 100

// Invalid makes an InvalidError of one violation.
func Invalid(field, format string, args ...any) error {
	return &InvalidError{Violations: []Violation{{Field: field, Description: fmt.Sprintf(format, args...)}}}
}

// ExistsError means that the id belongs to a job that differs from the request.
type ExistsError struct {
	Key    Key
	Reason string
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("job %s exists: %s", e.Key.Record(), e.Reason)
}

// MissingError means that the job, or the run of it, does not exist.
type MissingError struct {
	Key   Key
	RunID string
}

func (e *MissingError) Error() string {
	if e.RunID != "" {
		return fmt.Sprintf("job %s has no run %s", e.Key.Record(), e.RunID)
	}
	return fmt.Sprintf("no such job: %s", e.Key.Record())
}

// Is makes errors.Is(err, ErrNotFound) hold.
func (e *MissingError) Is(target error) bool { return target == ErrNotFound }

// EtagError means that the job was edited since the caller read it.
type EtagError struct {
	Key        Key
	Have, Want string
}

func (e *EtagError) Error() string {
	return fmt.Sprintf("job %s was edited: its etag is %s, not %s", e.Key.Record(), e.Have, e.Want)
}

// BusyError means that the id belongs to a deleted job whose last run is live, or that a rename keeps it.
type BusyError struct {
	Key Key
	// Renaming: a rename keeps it.
	Renaming bool
}

func (e *BusyError) Error() string {
	if e.Renaming {
		return fmt.Sprintf("the name %s is reserved for a rename that is under way: try again later, or choose another one",
			e.Key.Record())
	}
	return fmt.Sprintf("job %s is deleted, but its last run has not ended", e.Key.Record())
}

// Is makes errors.Is(err, ErrBusy) hold.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }
