package job

import (
	"errors"
	"fmt"

	"github.com/fermata-io/fermata/internal/core/backoff"
)

// Declarative configuration (apply): the desired definitions of jobs, and the result of applying them.

// OwnerLabel names the set of files that a job belongs to.
const OwnerLabel = "fermata.io/owner"

// ReasonOtherOwner is the reason of a PreconditionError about a job that belongs to
// another set of files.
const ReasonOtherOwner = "OTHER_OWNER"

// ErrTooLarge means that the call concerns more than it may read at once. A smaller call succeeds.
var ErrTooLarge = errors.New("too much for one call")

// DesiredJob is the desired definition of a job.
type DesiredJob struct {
	Definition Definition
	// Err is the part of the desired job that could not be parsed; the rest is in Definition.
	Err error
	// Doubtful are fields of the policies whose claimed sources do not match their values. A claim counts if the
	// job to be replaced has the same source; otherwise the source is the job.
	Doubtful backoff.FieldSet
	// Refresh: the sources of the policies are those of now, whatever they were.
	Refresh bool
	// AsRead: the definition was read while its payload was sealed, so that it has none of its own and keeps the
	// stored one.
	AsRead bool
	// Etag of the job that is to be replaced or deleted; "": there must be none.
	Etag   string
	Delete bool
	// Pause and Resume set whether the job is paused; neither leaves it as it is.
	Pause, Resume bool
	// Check, when set, refuses the desired job by its error. It gets the definition that the job
	// has, nil if there is no job: where the job is read, before anything of it is compared
	// or answered, and again when the job has changed by the time of the write.
	Check func(present *Definition) error
	// MayCompare, when set, decides whether the caller may learn how its payload compares with the sealed one of the
	// job. In a plan for others the payload of the job stays, and the answer does not depend on it.
	MayCompare func(present *Definition) bool
}

// HidesPayload reports whether the payload is not to be compared with that of a job.
func (w *DesiredJob) HidesPayload(present *Definition) bool {
	return !w.AsRead && w.HidesStored(present)
}

// HidesStored reports whether the answer must not depend on the payload of a job.
func (w *DesiredJob) HidesStored(present *Definition) bool {
	return present.PayloadKey != "" && w.MayCompare != nil && !w.MayCompare(present)
}

// Allowed returns the error of Check.
func (w *DesiredJob) Allowed(present *Definition) error {
	if w.Check == nil {
		return nil
	}
	return w.Check(present)
}

// ApplyAction is the action that a desired job requires.
type ApplyAction uint8

// Actions.
const (
	ApplyNone ApplyAction = iota
	ApplyCreate
	ApplyUpdate
	ApplyUnchanged
	ApplyDelete
	// ApplyPassed: a one-time job that does not exist and whose time has passed.
	ApplyPassed
)

// ApplyResult answers a DesiredJob.
type ApplyResult struct {
	Action ApplyAction
	// Before is the job before the call, After the job after it; nil is none.
	Before, After *Record
	// PauseChanges: the job is to be paused, or is to be resumed.
	PauseChanges bool
	// PayloadHidden: the payload was not compared with the stored one: see [DesiredJob.MayCompare].
	PayloadHidden bool
	Err           error
}

// MayTakeOwnership refuses to give a job a definition of another owner. A job that has no owner
// may be taken by anybody.
func MayTakeOwnership(present, wished *Definition) error {
	owner := present.Labels[OwnerLabel]
	if owner == "" || owner == wished.Labels[OwnerLabel] {
		return nil
	}
	text := fmt.Sprintf("it belongs to owner %q", Clip(owner, MaxLabel))
	return &PreconditionError{Key: present.Key, Reason: ReasonOtherOwner, Text: text}
}
